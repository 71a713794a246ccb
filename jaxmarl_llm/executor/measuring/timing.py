"""Measures how much faster a candidate is than a baseline: procedure and statistics, no processes, no clock.

Why pairs. A machine's speed drifts (other users, CPU frequency, heat) by more than most speed-ups. The two
calls of a pair run one after the other on the same input, in random order, and only their ratio counts, so
that anything that slows both cancels. The median of the ratios ignores single disturbed calls. LessonL
(arXiv 2505.23946) divides two medians of wall times on ParEval and PolyBench: all calls of the candidate
first, then all of the baseline, in one process, on inputs that it has checked before. There, drift between
the halves counts as speed-up. Adopted from it: at least ten inputs, 0 for a wrong program, and the floor of 1
that its evaluation applies to every program.

Why CPU time of the child's process, read from outside. Wall time includes other work of the machine, and
the candidate could alter every clock of its own interpreter. Sleeping gains nothing: the caller's wall limit
ends it, as a wrong answer. CPU time still depends on shared caches and on the frequency: hence the pairs.

The noise floor. First the baseline is measured against its twin, the same program treated like a candidate.
The end of that interval that is farther from 1 is the ratio that pure noise reaches on this machine. Only a
candidate whose whole interval lies beyond it is significantly faster or slower. This needs a fresh process
per call: in a process that is kept, lucky memory placement affects all pairs and looks like speed.

Measures against cheating, and who must take them:
- Each pair has its own input, made from its seed, so a table of answers contains none of them. The caller
  uses other seeds for checking (ours are random, at least 2**32) and keeps the plan's seed secret.
- The caller compares answers on other inputs before, and on every timed input: `sample` raises WrongAnswer
  for everything but the right answer, as plain data and in time, and that ends the measurement with 0.
- Precomputation while loading is not bounded here. The time that `sample` returns must therefore span the
  process's whole life, including loading and all that follows the answer, and each call must have a fresh
  process: then every call pays for its tables, and memoisation has no earlier results.
- No process of a candidate may be alive while the baseline runs: it could slow it through shared caches.
  `drift` compares the baseline with its earlier self; a rise that comes with some programs is an alarm.

Remaining loopholes: for the median, speed on just over half of the inputs is enough; a program may be fast
only on the kinds and sizes that the generator makes; the answers to few possible inputs fit in a table.
"""

from __future__ import annotations

import dataclasses
import math
import statistics

from .pairs import BASELINE, CANDIDATE, TWIN, Pairs, Sample, TimingPlan, WrongAnswer, ratio

__all__ = ["BASELINE", "CANDIDATE", "REASONS", "TWIN", "Timing", "TimingPlan", "WrongAnswer", "measure"]

REASONS = (
    "target-width",  # the interval is as narrow as asked for
    "max-pairs",
    "budget",
    "too-fast",  # the baseline takes less than min_seconds: the caller must give larger inputs
    "wrong-answer",  # the candidate's answer on a timed input was wrong or did not come
)


@dataclasses.dataclass(frozen=True)
class Timing:
    """Outcome of one measurement. Reward `credited`, not `speedup`.

    speedup: median of CPU time of the baseline over that of the candidate, at most the plan's cap; 0 after a
        wrong answer, 1 where the baseline was too fast to measure. low, high: its interval, capped likewise.
    pairs: number of pairs (baseline, candidate) that were used.
    noise: ratio, at least 1, that the baseline reaches against itself.
    significant: the interval lies wholly above `noise`, or wholly below 1 / `noise`.
    baseline_seconds, candidate_seconds: median CPU time (s) of one call; None where there was no result.
    drift: median CPU time of the baseline, divided by that on the same inputs before the candidate ever ran.
        The machine's own drift affects it too; None if there was no result.
    cpu_seconds: of all calls of the measurement together.
    capped: the median was above the cap.
    reason: why the measurement ended, one of REASONS. detail: the text of WrongAnswer.
    """

    speedup: float
    low: float
    high: float
    pairs: int
    noise: float
    significant: bool
    baseline_seconds: float | None
    candidate_seconds: float | None
    drift: float | None
    cpu_seconds: float
    capped: bool
    reason: str
    detail: str = ""

    @property
    def credited(self) -> float:
        """What a reward should use: `speedup` where significant or wrong, else 1.

        The mean of log(max(1, credited)) over problems is LessonL's evaluation of speed-ups; it gives 0 to
        wrong, slower and indistinguishable programs.
        """
        return self.speedup if self.significant or self.reason == "wrong-answer" else 1.0


def measure(sample: Sample, plan: TimingPlan) -> Timing:
    """Measure the noise floor, then the candidate.

    sample(which, input_seed) makes one call of BASELINE, TWIN (the baseline again, in the candidate's place)
    or CANDIDATE on the input of that seed and returns its CPU time (s). It raises WrongAnswer where the
    candidate fails; every other exception passes through. ValueError for a time that is not a finite number
    >= 0, and for WrongAnswer from a baseline. Equal times give an equal result.
    """
    floor = Pairs(sample, TWIN, plan)
    floor.run(plan.budget_seconds / 2)
    _, low, high = floor.interval()
    noise = max(high, 1 / low if low else math.inf)
    if statistics.median(floor.baseline_seconds) < plan.min_seconds:
        return _no_result(1.0, noise, floor.spent, "too-fast")
    pairs = Pairs(sample, CANDIDATE, plan)
    try:
        reason = pairs.run(plan.budget_seconds - floor.spent)
    except WrongAnswer as error:
        return _no_result(0.0, noise, floor.spent + pairs.spent, "wrong-answer", str(error))
    median, low, high = pairs.interval()
    both = zip(pairs.baseline_seconds, floor.baseline_seconds, strict=False)  # either may have ended earlier
    return Timing(
        speedup=min(median, plan.cap),
        low=min(low, plan.cap),
        high=min(high, plan.cap),
        pairs=len(pairs.ratios),
        noise=noise,
        significant=low > noise or high < 1 / noise,
        baseline_seconds=statistics.median(pairs.baseline_seconds),
        candidate_seconds=statistics.median(pairs.other_seconds),
        drift=statistics.median(ratio(now, before) for now, before in both),
        cpu_seconds=floor.spent + pairs.spent,
        capped=median > plan.cap,
        reason=reason,
    )


def _no_result(speedup, noise, spent, reason, detail="") -> Timing:
    """A Timing without an interval: both of its ends are the speed-up."""
    return Timing(
        speedup=speedup,
        low=speedup,
        high=speedup,
        pairs=0,
        noise=noise,
        significant=False,
        baseline_seconds=None,
        candidate_seconds=None,
        drift=None,
        cpu_seconds=spent,
        capped=False,
        reason=reason,
        detail=detail,
    )
