"""Let systems take turns at the same work, and compute ratios of their times, round by round.

The other load of a machine changes from minute to minute, so only ratios within a round mean much.
"""

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence

from jaxmarl_llm.utils.errors import UserError

Seconds = dict[str, float]  # by phase


def alternate(units: Mapping[str, Callable[[], Seconds]], rounds: int) -> dict[str, list[Seconds]]:
    """Seconds by system and round, after a round that does not count (it compiles and fills caches).

    Every other round runs in reverse order, so a machine that slows down evenly affects all equally.
    """
    if rounds < 1:
        raise UserError(f"rounds={rounds} must be at least 1")
    seconds = {name: [] for name in units}
    for run in units.values():
        run()
    for i in range(rounds):
        for name in list(units)[:: 1 if i % 2 == 0 else -1]:
            seconds[name].append(units[name]())
    return seconds


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A ratio over several rounds: the median and the range of the rounds' ratios."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}..{self.most:.2f})"


def ratios(theirs: Sequence[Seconds], ours: Sequence[Seconds]) -> dict[str, Ratio]:
    """Their time divided by ours, by phase and for the ``whole``.

    Times are compared within a round. A phase that only one side has counts only in the whole.
    """
    pairs = [(_with_whole(a), _with_whole(b)) for a, b in zip(theirs, ours, strict=True)]
    shared = [phase for phase in pairs[0][1] if phase in pairs[0][0]]
    by_phase = {phase: [a[phase] / b[phase] for a, b in pairs] for phase in shared}
    return {phase: Ratio(statistics.median(x), min(x), max(x)) for phase, x in by_phase.items()}


def medians(seconds: Sequence[Seconds]) -> Seconds:
    """Median over the rounds of each phase, and of the ``whole``."""
    rounds = [_with_whole(one) for one in seconds]
    return {phase: statistics.median(one[phase] for one in rounds) for phase in rounds[0]}


def _with_whole(phases: Seconds) -> Seconds:
    return {**phases, "whole": sum(phases.values())}
