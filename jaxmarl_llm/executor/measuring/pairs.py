"""Pairs of timed calls: on which inputs, in which order, and when there are enough of them. See `timing`."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Iterator

from ..errors import InputError
from .intervals import MOST_VALUES, median_interval

BASELINE, TWIN, CANDIDATE = "baseline", "twin", "candidate"
Sample = Callable[[str, int], float]
LOOK_GROWTH = 1.5  # pairs at one look at the interval's width over those at the look before


class WrongAnswer(Exception):
    """Raised by `sample` where the candidate gives no right answer on a timed input."""


@dataclasses.dataclass(frozen=True)
class TimingPlan:
    """How to measure one candidate. The noise floor takes additional pairs, by the same rules.

    min_pairs, max_pairs: pairs of calls, both odd, so that the median is one of the ratios. min_pairs are
        always taken; LessonL uses 10 inputs.
    target_width: stop when the interval's width is at most this share of the median. This is tested after
        min_pairs, and again whenever the number of pairs has grown by half: a test after each pair would stop
        at lucky moments, and the interval would contain the true value less often.
    budget_seconds: no new pair begins after all calls took this CPU time (s), at most half of it for the
        noise floor. It is not wall time, so that equal times give an equal result; the caller's limits per
        call bound wall time.
    cap: largest speed-up reported. LessonL has none; the geometric means reported for it and its rivals lie
        between 1.5 and 3.6, and one outlier of 1000 should not outweigh a batch of these.
    confidence: of the interval, see `intervals.median_interval`.
    min_seconds: least median CPU time (s) of the baseline. The overhead of a call (messages, a process: some
        milliseconds) is counted for both and moves the ratios of short calls towards 1.
    seed: of the inputs and of the order within pairs. One per measurement, unknown to the candidate.
    """

    min_pairs: int = 17
    max_pairs: int = 51
    target_width: float = 0.05
    budget_seconds: float = 20.0
    cap: float = 10.0
    confidence: float = 0.95
    min_seconds: float = 0.01
    seed: int = 0

    def __post_init__(self):
        for name in ("target_width", "budget_seconds", "min_seconds"):
            self._check(name, float, lambda value: 0 < value < math.inf, "a finite number > 0")
        self._check("cap", float, lambda value: 1 < value < math.inf, "a finite number > 1")
        self._check("confidence", float, lambda value: 0 < value < 1, "a number between 0 and 1")
        self._check("seed", int, lambda value: value >= 0, "a whole number >= 0")
        # Even from the smallest of n values to the largest, an interval misses the median with 2 ** (1 - n).
        least = next(n for n in itertools.count(3, 2) if 2.0 ** (1 - n) <= 1 - self.confidence)
        self._check_pairs("min_pairs", least)
        self._check_pairs("max_pairs", self.min_pairs)

    def _check(self, name, kind, fits, allowed):
        value = getattr(self, name)
        kinds = (int, float) if kind is float else int
        if not isinstance(value, kinds) or isinstance(value, bool) or not fits(value):
            raise InputError(f"TimingPlan.{name} is {value!r}; allowed: {allowed}")

    def _check_pairs(self, name, least):
        allowed = f"an odd whole number from {least} to {MOST_VALUES}"
        self._check(name, int, lambda value: least <= value <= MOST_VALUES and value % 2, allowed)


class Pairs:
    """Pairs of the baseline and one other program; the same inputs and orders for every other program.

    baseline_seconds, other_seconds: CPU time (s) of each call. ratios: the former over the latter, per pair.
    spent: CPU time (s) of all calls, an interrupted pair's included.
    """

    def __init__(self, sample: Sample, other: str, plan: TimingPlan):
        self.sample, self.other, self.plan = sample, other, plan
        self.baseline_seconds, self.other_seconds, self.ratios, self.spent = [], [], [], 0.0
        self.next_look = plan.min_pairs

    def run(self, budget: float) -> str:
        """Add pairs until one of the plan's rules ends it; return its name."""
        for input_seed, baseline_first in _schedule(self.plan.seed):
            self._add(input_seed, baseline_first)
            reason = self._reason_to_end(budget)
            if reason:
                return reason

    def interval(self) -> tuple[float, float, float]:
        """(median, low, high) of the ratios, of which there must be an odd number."""
        return median_interval(self.ratios, self.plan.confidence)

    def _add(self, input_seed, baseline_first):
        order = (BASELINE, self.other) if baseline_first else (self.other, BASELINE)
        taken = {which: self._call(which, input_seed) for which in order}
        self.baseline_seconds.append(taken[BASELINE])
        self.other_seconds.append(taken[self.other])
        self.ratios.append(ratio(taken[BASELINE], taken[self.other]))

    def _call(self, which, input_seed) -> float:
        try:
            taken = self.sample(which, input_seed)
        except WrongAnswer as error:
            if which == CANDIDATE:
                raise
            raise InputError(f"the {which} fails on the input of seed {input_seed}: {error}") from None
        if not isinstance(taken, (int, float)) or isinstance(taken, bool) or not 0 <= taken < math.inf:
            raise InputError(f"sample({which!r}, {input_seed}) is {taken!r}; allowed: finite seconds >= 0")
        self.spent += taken
        return taken

    def _reason_to_end(self, budget) -> str:
        """Why the pairs so far are enough, "" if they are not."""
        count, plan = len(self.ratios), self.plan
        if count < plan.min_pairs or count % 2 == 0:
            return ""
        last = count >= plan.max_pairs
        if last or count >= self.next_look:
            self.next_look = int(LOOK_GROWTH * count) | 1
            median, low, high = (min(value, plan.cap) for value in self.interval())
            if high - low <= plan.target_width * median:
                return "target-width"
        if last:
            return "max-pairs"
        return "budget" if self.spent >= budget else ""


def ratio(above: float, below: float) -> float:
    """above / below, infinite over 0; 1 for two zeros."""
    if not above and not below:
        return 1.0
    return above / below if below else math.inf


def _schedule(seed: int) -> Iterator[tuple[int, bool]]:
    """Endless (seed of an input, whether the baseline goes first); each goes first once in two pairs."""
    rng, used = random.Random(seed), set()
    while True:
        first = rng.random() < 0.5
        for baseline_first in (first, not first):
            input_seed = rng.randrange(2**32, 2**63)
            while input_seed in used:
                input_seed = rng.randrange(2**32, 2**63)
            used.add(input_seed)
            yield input_seed, baseline_first
