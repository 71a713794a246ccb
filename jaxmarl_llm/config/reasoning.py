"""Fields of task.kind=reasoning: the team's reward for its answers, and what agents read of them."""

import re

from jaxmarl_llm.config import programs, remote, systems, workload
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict, is_dotted

KIND = "reasoning"
PRICED = ("scripted:cheap", "scripted:mid", "scripted:dear")  # answer the questions of routes
ROUTES = ("routes", "routes:two_step")
REPEATED = (
    "clues",
    "trust",
    "trust:shuffled",
    "lock3",
    "lock3:shuffled",
)  # whose words 'scripted:repeater' repeats
FEEDBACKS = ("heard", "heard_scored")
OWN_FEEDBACK = (
    "leader",
    "teams",
    "dialogue",
    "routed",
)  # these say themselves what agents read between turns


def _reasoning(config: ConfigDict) -> bool:
    return config.task.kind == KIND or is_dotted(config.task.kind)


def _solves(config: ConfigDict) -> bool:
    return config.task.kind == KIND and not config.task.reward and config.train.system != systems.SFT


def between_turns(config: ConfigDict) -> bool:
    """Whether there are later turns before which agents read the task's feedback."""
    c = config.train
    return c.turns > 1 and c.protocol not in (*programs.METHODS, *OWN_FEEDBACK)


def shows_scores(config: ConfigDict) -> bool:
    """Whether agents are shown a score of each answer between turns."""
    asked = between_turns(config) or is_dotted(config.train.protocol)
    return asked and _reasoning(config) and config.task.feedback == "heard_scored"


_SCORES = Read(
    shows_scores, "only task.feedback='heard_scored' of task.kind='reasoning' shows scores, between turns"
)
FIELDS = (
    choice("task.total", "mean", "The team's reward for the answers of its agents.",
           {"mean": "the share that is right", "last": "1 if the last agent's answer is right",
            "vote": "1 if the majority's answer is right; in a tie, as of two agents that "
                    "differ, the first answer counts"},
           read=Read(_reasoning, "only task.kind='reasoning' reads it")),
    value("task.grades", (), "Grades of the questions to use, of all splits, such as (1, 3); empty: all.",
          Read(_reasoning, "only task.kind='reasoning' reads it")),
    number("task.drop_easier_than", 1.0,
           "Leave out training problems that the initial team solves in more than this share of its "
           "answers, measured by the team's reward; 1: leave out none.", low=0, high=1,
           read=Read(_solves, "only task.kind='reasoning' without task.reward, and no train.system='sft', reads it")),
    choice("task.shown_score", "noised",
           "The score that agents read beside each answer, which is never the reward itself; or the dotted "
           "name of a verifier of your own, (questions, texts) -> a number from 0 to 1 for each, see "
           "docs/reasoning.md.",
           {"noised": "1 for a right answer and 0 for a wrong one, exchanged with probability "
            "task.score_flip"},
           dotted=True, read=_SCORES),
    choice("eval.vote", "",
           "In evaluations, also choose one answer from eval.chains conversations (score voted@c); empty: "
           "no vote. The values name the votes.",
           {"": "", "last": "the last agents' answers", "majority": "the answers of all agents",
            "judge": "the last agents' answers; an answer that no other agent gave is replaced by the "
            "first agent's",
            "best": "no vote: the answer with the best score"},
           read=Read(lambda c: c.task.kind == KIND and not c.task.reward,
                     "only task.kind='reasoning' without task.reward has votes")),
    number("task.score_flip", 0.2, "Probability that a noised score is wrong.", low=0.01, high=0.5),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that the questions, the protocol or the number of samples do not allow."""
    return [] if config.task.kind != KIND else [*_repeats(config), *_vote(config), *_grades(config)]


def _grades(config: ConfigDict) -> list[str]:
    """Grades that are no whole numbers, or given twice; those of a source are known when it is read."""
    grades = tuple(config.task.grades)
    if all(type(grade) is int and grade >= 0 for grade in grades) and len(set(grades)) == len(grades):
        return []
    return [f"task.grades={grades!r}: allowed are whole numbers from 0, each once"]


def _source(config: ConfigDict) -> str:
    """The source of the questions without its slice; the name of a file may begin with that of a riddle."""
    return re.sub(r"\[-?\d*:-?\d*(:[1-9]\d*)?\]$", "", config.task.source)


def _repeats(config: ConfigDict) -> list[str]:
    """A script whose questions the source does not have."""
    source = _source(config)
    answerers = [agent for agent, name in remote.agents(config).items() if name == "scripted:answerer"]
    if answerers and source != "guess":
        return [
            f"the model 'scripted:answerer' of agent {answerers[0]!r}: it knows the pairs of guess, task.source is "
            f"{config.task.source!r}"
        ]
    priced = [name for name in remote.agents(config).values() if name in PRICED]
    if priced and source not in ROUTES:
        return [
            f"the model {priced[0]!r}: it answers the questions of routes, task.source is {config.task.source!r}"
        ]
    repeats = [agent for agent, name in remote.agents(config).items() if name == "scripted:repeater"]
    if not repeats or source in REPEATED:
        return []
    return [
        f"the model 'scripted:repeater' of agent {repeats[0]!r}: it repeats the words of clues and trust, "
        f"or of lock3; task.source is {config.task.source!r}"
    ]


def _vote(config: ConfigDict) -> list[str]:
    """Votes that are impossible."""
    vote, chains, why = config.eval.vote, config.eval.chains, ""
    if not vote:
        return [f"eval.chains={chains}: eval.vote is '', allowed is 1"] if chains > 1 else []
    if _source(config) == "clues":
        why = "the agents of clues have answers of their own, allowed is ''"
    elif vote == "best" and config.train.protocol != "retrieve":
        why = f"train.protocol={config.train.protocol!r} has no scores, 'retrieve' has"
    elif vote != "best" and config.train.protocol == "retrieve":
        why = "with train.protocol='retrieve' the scores decide, allowed are '' and 'best'"
    elif vote == "judge" and (number := workload.agents_per_turn(config)) < 3:
        whole, turn = (
            tuple(config.team.agents),
            f", and with train.protocol='relay' a turn has {number} of them",
        )
        why = f"needs two agents and a judge, team.agents is {whole!r}{turn if number < len(whole) else ''}"
    bad = [f"eval.vote={vote!r}: {why}"] if why else []
    if chains > config.eval.samples:
        bad.append(f"eval.chains={chains}: allowed is 1 to eval.samples={config.eval.samples}")
    return bad
