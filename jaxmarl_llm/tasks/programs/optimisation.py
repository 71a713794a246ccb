"""Program optimisation: every agent writes a faster version of the same program; each is judged alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.programs import optimisation_prompts
from jaxmarl_llm.tasks.programs.optimisation_items import OptimisationItem
from jaxmarl_llm.tasks.programs.task import ProgramTask, shares
from jaxmarl_llm.tasks.programs.timed_judge import UNBUILT, TimedJudge, reward


class OptimisationTask(ProgramTask):
    """Problems with a correct but slow program; see `ProgramTask` for prompts and judging.

    Args:
      items: see `optimisation_items.load_items`.
      judge: measures programs; ValueError if some items are in C++ and no compiler works.
      agents: names, one or more that differ.

    An agent earns the logarithm of its program's speed-up (`timed_judge.reward`), the team earns the mean of
    these.
    Parts: "log_speedup" (mean of log max(1, score), as in LessonL's evaluation), "correct" and "compiles"
    (shares of the agents), "best" (the largest score, 0 where no program is right). The verdict is 'pass'
    if a right program is faster than the given one, 'no-faster' if one is right.
    """

    part_names = ("log_speedup", "correct", "compiles", "best")
    _says = optimisation_prompts

    def __init__(self, items: Sequence[OptimisationItem], judge: TimedJudge, agents: Sequence[str]):
        super().__init__(items, agents)
        self._judge = judge
        self._outcomes = judge.judge
        self._most = math.log(judge.cap)
        self.reward_range = (UNBUILT, self._most)
        judge.require_compiler(self.items)

    def remeasure(self, items: Sequence[OptimisationItem], programs: Sequence[str]) -> list[Outcome]:
        """Outcomes of programs on held-out inputs; see `TimedJudge.remeasure`."""
        return self._judge.remeasure(items, programs)

    def know(
        self, items: Sequence[OptimisationItem], outcomes: Sequence[Outcome], held_out: bool = False
    ) -> None:
        """Reuse outcomes that an earlier process measured; see `TimedJudge.know`."""
        self._judge.know(items, outcomes, held_out)

    def solved(self, outcome: Outcome) -> bool:
        """Never: a program can always be faster."""
        return False

    def good(self, outcome: Outcome) -> bool:
        """Whether a program needs no repair: it is right, and faster by more than noise."""
        return outcome.status == "ok" and outcome.score >= optimisation_prompts.SIGNIFICANT

    def normalise(self, scores: dict[str, float]) -> dict[str, float]:
        """`scores` (or means of them) in percent of the maximum, the total as "return".

        A return of 0 means unchanged programs, 100 a speed-up at the cap; wrong programs give less than 0.
        """
        most = {"total": self._most, "log_speedup": self._most, "best": self._judge.cap}
        return {
            "return" if name == "total" else name: 100.0 * value / most.get(name, 1.0)
            for name, value in scores.items()
        }

    def source(self, item: OptimisationItem) -> str:
        """The text against which the relevance of a lesson is measured: the given program."""
        return item.source

    def given(self, item: OptimisationItem) -> str:
        """The correct but slow program with which every search begins."""
        return item.source

    def _reward(self, outcome: Outcome) -> float:
        return reward(outcome)

    def _passes(self, outcome: Outcome) -> bool:
        return outcome.status == "ok" and outcome.score > 1

    def _parts(self, outcomes: Sequence[Outcome]) -> dict[str, float]:
        gains = [math.log(max(1.0, outcome.score)) for outcome in outcomes]
        best = max(outcome.score for outcome in outcomes)
        return {"log_speedup": sum(gains) / len(gains), **shares(outcomes), "best": best}
