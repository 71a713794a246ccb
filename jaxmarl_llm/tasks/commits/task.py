"""Commit messages: a writer reads a diff, and a rebuilder repeats the change from the message alone."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from jaxmarl_llm.executor import Program, Report
from jaxmarl_llm.memory import Index, Item, Relevance, words
from jaxmarl_llm.tasks.commits import diffs, metrics, prompts
from jaxmarl_llm.tasks.commits.items import Commit, families
from jaxmarl_llm.tasks.judgement import Judgement, check_batch, check_given
from jaxmarl_llm.tasks.program_text import answers
from jaxmarl_llm.tasks.programs.prompts import Messages
from jaxmarl_llm.utils.errors import UserError

TEXT_METRICS = ("bleu", "rouge_l", "meteor")
ROUND_TRIP = "round_trip"
REWARDS = (*TEXT_METRICS, ROUND_TRIP)
NO_PROGRAM = "no-program"


class CommitTask:
    """Items, prompts and judge for a writer, or for a writer and a rebuilder who answers after it.

    The rebuilder's prompt has the program before the commit; a protocol in which it reads the writer's text,
    such as `protocols.Pipeline`, adds the message. The prompt has neither the diff nor the program after the
    commit.

    Parts, from 0 to 1: the metrics of `metrics` against the reference message; ``copied``, the share of the diff that
    the message repeats (`diffs.copied`). With a rebuilder also ``round_trip``,

        (passed by the rebuilt program - passed before) / (passed after - passed before),

    the share of fixed tests that is fixed again, from -1 to 1 (if it breaks more tests than there were to
    fix, -1), and ``restored``, whether the rebuilt program passes as many tests as the program after the
    commit. The reward is one of the metrics, or the round trip minus the share copied above ``copy_share``.

    Args:
      items: see `load.load_items`.
      executor: its `run(list[Program]) -> list[Report]` runs all programs of a batch in one call; None: no rebuilder.
      agents: one name, the writer's, or two: the writer's and the rebuilder's.
      reward: one of `REWARDS`.
      copy_share: share of the diff that a message may repeat at no cost.
      max_diff_tokens: most words and signs of a diff that the writer reads.
      examples: number of pairs of diff and message that the writer reads first, from ``pool``.
      pool: training commits; those of the item's own program are never used as its examples.
      rule: how to select examples, see `memory.Index`; "random" always selects the same for an item.
      relevance: similarity of diffs, for the rules ``cosine`` and ``two_step``.

    Raises:
      UserError: if the reward needs a rebuilder and there is none, and if a rebuilder's commits have no
        tests.
    """

    def __init__(
        self,
        items: Sequence[Commit],
        executor,
        agents: Sequence[str] = ("writer", "rebuilder"),
        reward: str = ROUND_TRIP,
        copy_share: float = 0.3,
        max_diff_tokens: int = 510,
        examples: int = 0,
        pool: Sequence[Commit] = (),
        rule: str = "bm25",
        relevance: Relevance | None = None,
    ):
        self.items, self.agents = tuple(items), tuple(agents)
        check_given(self.items, self.agents)
        self._rebuilds = len(self.agents) == 2
        if len(self.agents) > 2:
            raise UserError(f"agents is {self.agents!r}; allowed: a writer, or a writer and a rebuilder")
        if reward not in REWARDS:
            raise UserError(f"reward is {reward!r}; allowed: {', '.join(REWARDS)}")
        if reward == ROUND_TRIP and not self._rebuilds:
            raise UserError(f"reward='round_trip' needs a rebuilder, and agents is {self.agents!r}")
        untested = [item.task_id for item in self.items if not item.test]
        if self._rebuilds and untested:
            raise UserError(
                f"commit {untested[0]!r} is of a program without tests, and a rebuilder's is judged by tests; allowed "
                "is the writer alone with a metric of its text as the reward"
            )
        idle = [item.task_id for item in self.items if item.passed_after <= item.passed_before]
        if self._rebuilds and idle:
            raise UserError(f"commit {idle[0]!r} changes no test's result, so there is nothing to mend again")
        self._executor, self._reward, self._copy_share = executor, reward, copy_share
        self._most, self._number, self._rule = max_diff_tokens, examples, rule
        self._pool, self._relevance = tuple(pool), relevance
        self._prompts: dict[str, dict[str, Messages]] = {}
        self.part_names = (*TEXT_METRICS, "copied", *((ROUND_TRIP, "restored") if self._rebuilds else ()))
        self.reward_range = (copy_share - 2.0, 1.0) if reward == ROUND_TRIP else (0.0, 1.0)

    def prompts(self, item: Commit) -> dict[str, Messages]:
        """Chat messages per agent."""
        if item.task_id not in self._prompts:  # the examples of an item stay the same
            first = self.agents[0]
            chats = {
                first: prompts.writer(item, [(e.diff, e.message) for e in self.examples(item)], self._most)
            }
            chats |= {agent: prompts.rebuilder(item, first) for agent in self.agents[1:]}
            self._prompts[item.task_id] = chats
        return self._prompts[item.task_id]

    def examples(self, item: Commit) -> list[Commit]:
        """The training commits that the writer reads before a diff, the best one first."""
        if not self._number:
            return []
        family = self._family(item)
        own = sum(self._family(other) == family for other in self._pool)
        generator = np.random.default_rng(zlib.crc32(item.task_id.encode("utf-8", "surrogatepass")))
        best = self._index.select(diffs.tagged(item.diff), self._number + own, self._rule, generator)
        others = [self._pool[one.provenance["place"]] for one in best]
        return [other for other in others if self._family(other) != family][: self._number]

    def _family(self, commit: Commit) -> str:
        """A key that commits of one program share; these are no examples for each other."""
        known = None if commit.problem else self._families.get(commit.before.strip())
        return known or commit.family

    @functools.cached_property
    def _families(self) -> dict[str, str]:
        return families([*self.items, *self._pool])

    @functools.cached_property
    def _index(self) -> Index:
        kept = [
            Item(other.message, {"diff": diffs.tagged(other.diff)}, provenance={"place": place})
            for place, other in enumerate(self._pool)
        ]
        return Index(kept, "diff", self._relevance)

    def references(self, item: Commit) -> dict[str, str]:
        """The reference message, and the program after the commit."""
        right = next((word for word, text in item.choices.items() if text == item.after), item.after)
        return dict(zip(self.agents, (item.message, right), strict=False))

    def judge(self, items: Sequence[Commit], completions: dict[str, list[str]]) -> list[Judgement]:
        """Judgements of joint answers, in order; all programs run in one call of the executor."""
        check_batch(items, completions, self.agents)
        first = completions[self.agents[0]]
        written = [self._written(item, text) for item, text in zip(items, first, strict=True)]
        if not self._rebuilds:
            return [Judgement(parts, parts[self._reward], "judged") for parts in written]
        texts = [_rebuilt(item, text) for item, text in zip(items, completions[self.agents[1]], strict=True)]
        reports = iter(self._run(items, texts))
        return [
            self._judgement(item, parts, text, next(reports) if text else None)
            for item, parts, text in zip(items, written, texts, strict=True)
        ]

    def normalise(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Scores, or means of them, in percent, the total as "return"."""
        return {"return" if name == "total" else name: 100.0 * value for name, value in scores.items()}

    def _written(self, item: Commit, text: str) -> dict[str, float]:
        """The scores of a message on its own."""
        own, reference = words(text), words(item.message)
        return {
            "bleu": metrics.bleu(own, [reference]),
            "rouge_l": metrics.rouge_l(own, reference),
            "meteor": metrics.meteor(own, reference),
            "copied": diffs.copied(item.diff, text),
        }

    def _run(self, items: Sequence[Commit], texts: Sequence[str]) -> list[Report]:
        """Reports of the texts that are not '', in one call."""
        programs = [
            Program({"program": text}, item.entry_point, item.test, item.prelude)
            for item, text in zip(items, texts, strict=True)
            if text
        ]
        return self._executor.run(programs) if programs else []

    def _judgement(
        self, item: Commit, parts: dict[str, float], text: str, report: Report | None
    ) -> Judgement:
        passed = report.passed if report else 0
        share = (passed - item.passed_before) / (item.passed_after - item.passed_before)
        parts = {
            **parts,
            ROUND_TRIP: min(1.0, max(-1.0, share)),
            "restored": float(passed >= item.passed_after),
        }
        total = parts[self._reward]
        if self._reward == ROUND_TRIP:
            total -= max(0.0, parts["copied"] - self._copy_share)
        if report is None:
            return Judgement(parts, total, NO_PROGRAM)
        return Judgement(parts, total, report.verdict, tuple(report.failures), text)


def _rebuilt(item: Commit, text: str) -> str:
    """The program in a rebuilder's answer, '' if there is none."""
    if item.choices:
        return item.choices.get(text.strip(), "")
    return answers.program(text, item.entry_point, source=item.before)
