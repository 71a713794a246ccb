"""Fields of task.kind=commits: examples that the writer of a message reads, and the reward of a message."""

from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict, is_dotted

KIND, SIX = "commits", "six"
PROTOCOLS = ("pipeline", "tree")  # in which the second agent reads the first one's text


def of(config: ConfigDict) -> bool:
    """Whether the task is to write messages of commits."""
    return config.task.kind == KIND


def shows_diffs(config: ConfigDict) -> bool:
    """Whether a writer reads diffs; for the source six it reads one word in place of each diff."""
    sources = (config.task.source, config.task.eval_source, config.task.test_source)
    return of(config) and any(name.partition("[")[0] != SIX for name in sources if name)


_DIFFS = Read(
    shows_diffs, "only task.kind='commits' reads it, and not of task.source='six', which shows no diffs"
)
_PAID = Read(
    lambda c: of(c) and not c.task.reward,
    "only task.kind='commits' reads it, where task.reward pays nothing else",
)
_EXAMPLES = Read(lambda c: of(c) and c.commits.examples > 0, "only commits.examples above 0 reads it")
_COPIES = Read(
    lambda c: _PAID.when(c) and c.commits.reward == "round_trip",
    "only commits.reward='round_trip' reads it, where task.reward pays nothing else",
)
FIELDS = (
    number("commits.examples", 0, "Commits of the training split in the writer's prompt, each with its "
           "diff and message.", low=0,
           read=_DIFFS),
    choice("commits.rule", "bm25", "How these commits are chosen.",
           {"bm25": "most common words", "cosine": "most similar vectors of commits.encoder",
            "two_step": "the most similar of the 50 that share most words",
            "random": "at random, but always the same for one commit"}, read=_EXAMPLES),
    value("commits.encoder", "ngrams",
          "Vectors of diffs for the rules cosine and two_step: ngrams (counts of words and word pairs), or "
          "the dotted name of a function of your own, texts -> (X, D).",
          Read(lambda c: _EXAMPLES.when(c) and c.commits.rule in ("cosine", "two_step"),
               "only commits.rule='cosine' and 'two_step' read it")),
    number("commits.max_diff_tokens", 510, "Longest diff in the writer's prompt, in words and signs; the "
           "rest is cut off.",
           low=1, read=_DIFFS),
    choice("commits.reward", "round_trip", "Reward of both agents; all scores are reported.",
           {"bleu": "BLEU-4 of the message", "rouge_l": "ROUGE-L", "meteor": "METEOR",
            "round_trip": "tests that the second agent's program passes, see docs/commits.md"}, read=_PAID),
    number("commits.copy_share", 0.3, "Share of the diff that a message may copy without a penalty.",
           low=0, high=1,
           read=_COPIES),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that makes writing or rebuilding impossible."""
    if not of(config):
        return []
    agents, where, own = tuple(config.team.agents), "task.kind='commits'", config.commits
    bad = []
    if len(agents) > 2:
        bad.append(f"team.agents={agents!r}: {where} allows a writer, or a writer and a rebuilder")
    protocol = config.train.protocol
    if len(agents) == 2 and protocol not in PROTOCOLS and not is_dotted(protocol):
        bad.append(
            f"train.protocol={protocol!r}: in {where} the rebuilder has to read the message, allowed are "
            f"{' and '.join(map(repr, PROTOCOLS))}"
        )
    if len(agents) == 1 and own.reward == "round_trip" and not config.task.reward:
        bad.append(
            f"commits.reward='round_trip': team.agents={agents!r} has no rebuilder, allowed are bleu, rouge_l "
            "and meteor"
        )
    if own.encoder != "ngrams" and not is_dotted(own.encoder):
        bad.append(f"commits.encoder={own.encoder!r}: allowed are ngrams and the dotted name of a function")
    if config.task.centralised:
        bad.append(
            f"task.centralised=True: {where} has a rebuilder who must not read the diff, allowed is False"
        )
    return bad
