"""Timing: the interval against full and sampled bootstraps, the procedure against simulated machines."""

import collections
import dataclasses
import itertools
import math
import random
import statistics
import time

import numpy as np
import pytest

from jaxmarl_llm.executor.measuring import timing
from jaxmarl_llm.executor.measuring.intervals import MOST_VALUES, median_interval
from jaxmarl_llm.executor.measuring.timing import BASELINE, CANDIDATE, TWIN, TimingPlan, WrongAnswer, measure

PLAN = TimingPlan(budget_seconds=1e6)


class Machine:
    """A `sample` without a clock: inputs of 20 to 40 ms, and a candidate `truth` times as fast.

    sigma: standard deviation of the log of a call's time. slow(machine, which): factor on a call's time,
    given what was called before. calls: [(which, input seed)] so far.
    """

    def __init__(self, truth=1.0, sigma=0.0, seed=0, slow=lambda machine, which: 1.0):
        self.truth, self.sigma, self.slow, self.rng = truth, sigma, slow, random.Random(seed)
        self.calls = []

    def __call__(self, which, input_seed):
        seconds = 0.02 * (1 + random.Random(input_seed).random()) * self.rng.lognormvariate(0, self.sigma)
        seconds *= self.slow(self, which)
        self.calls.append((which, input_seed))
        return seconds / self.truth if which == CANDIDATE else seconds

    def count(self, which):
        return sum(called == which for called, _ in self.calls)


def seeded(seed, **fields):
    return dataclasses.replace(PLAN, seed=seed, **fields)


# --- the interval


def test_median_and_interval_by_hand():
    assert median_interval([3.0, 1.0, 2.0], 0.1) == (2.0, 2.0, 2.0)
    # The smallest of five is the median of a resample with probability
    # 10 (1/5)^3 (4/5)^2 + 5 (1/5)^4 (4/5) + (1/5)^5 = 0.05792, so it belongs to the interval at 0.95, where
    # 0.025 are left out below, and not at 0.85, where 0.075 are. The two smallest: 0.31744.
    values = [50.0, 10.0, 40.0, 20.0, 30.0]
    assert median_interval(values, 0.95) == (30.0, 10.0, 50.0)
    assert median_interval(values, 0.85) == (30.0, 20.0, 40.0)
    assert median_interval(values, 0.3) == (30.0, 30.0, 30.0)


@pytest.mark.parametrize("count", [3, 5, 7])
def test_interval_equals_that_of_all_resamples(count):
    values = np.random.default_rng(count).lognormal(size=count)
    resamples = np.array(list(itertools.product(range(count), repeat=count)), np.int8)
    medians = np.median(values[resamples], axis=1)
    for confidence in (0.5, 0.8, 0.9, 0.95, 0.99):
        tails = [(1 - confidence) / 2, (1 + confidence) / 2]
        low, high = np.quantile(medians, tails, method="inverted_cdf")
        assert median_interval(list(values), confidence) == (np.median(values), low, high)


@pytest.mark.parametrize("count", [17, 25, 51])
def test_interval_equals_that_of_many_resamples(count):
    rng = np.random.default_rng(count)
    values = rng.lognormal(size=count)
    medians = np.median(rng.choice(values, (40_000, count)), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975], method="inverted_cdf")
    assert median_interval(list(values), 0.95) == (np.median(values), low, high)


def test_interval_holds_the_median_nearly_as_often_as_it_says():
    # Of n values a Binomial(n, 1/2) number lies below the true median, whatever continuous law they follow.
    for count in range(9, 102, 2):
        _, low, high = median_interval(range(count), 0.95)
        covered = sum(math.comb(count, below) for below in range(low + 1, high + 1)) / 2**count
        assert 0.9 < covered < 0.97


def test_interval_needs_an_odd_number_of_values():
    for values in ([], [1.0, 2.0], [1.0] * (MOST_VALUES + 2)):
        with pytest.raises(ValueError, match=f"{len(values)} values; allowed"):
            median_interval(values, 0.95)
    assert median_interval([1.0] * MOST_VALUES, 0.95) == (1.0, 1.0, 1.0)


# --- what the numbers are worth, on simulated machines


@pytest.mark.parametrize("truth, sigma", [(1.0, 0.04), (1.2, 0.01), (1.2, 0.1), (3.0, 0.04)])
def test_interval_holds_the_truth_about_as_often_as_it_says(truth, sigma):
    first = int(1000 * truth)
    runs = [measure(Machine(truth, sigma, seed), seeded(seed)) for seed in range(first, first + 400)]
    covered = sum(run.low <= truth <= run.high for run in runs) / len(runs)
    assert 0.9 <= covered <= 0.98  # 0.92 to 0.955 over 2000 runs, the lower numbers where it stops early


def test_the_baseline_is_no_better_than_itself():
    for sigma in (0.01, 0.04, 0.1):
        runs = [measure(Machine(1.0, sigma, seed), seeded(seed)) for seed in range(150)]
        assert sum(not run.significant for run in runs) >= 0.95 * len(runs)
        assert all(run.credited == 1.0 for run in runs if not run.significant)


def test_real_differences_are_significant_both_ways():
    for truth in (0.5, 1.2, 3.0):
        result = measure(Machine(truth, 0.03), PLAN)
        assert result.significant and result.credited == result.speedup == pytest.approx(truth, rel=0.03)
        assert result.low < result.speedup < result.high and not result.capped
        ratio = result.baseline_seconds / result.candidate_seconds
        assert ratio == pytest.approx(truth, rel=0.05) and 0.02 < result.baseline_seconds < 0.04


def test_small_differences_drown_in_noise():
    result = measure(Machine(1.05, 0.2), PLAN)
    assert not result.significant and result.noise > 1.05 and result.credited == 1.0


@pytest.mark.parametrize("twin", [0.95, 1.05])
@pytest.mark.parametrize("truth", [0.97, 1.03])
def test_the_noise_floor_decides_not_the_distance_from_one(twin, truth):
    uneven = Machine(truth, 0.002, slow=lambda _, which: twin if which == TWIN else 1.0)
    result = measure(uneven, PLAN)
    assert result.low > 1 or result.high < 1
    assert result.noise == pytest.approx(max(twin, 1 / twin), rel=0.01)
    assert not result.significant and result.credited == 1.0


def test_slowdown_midway_moves_unpaired_times_only():
    pairs = 17
    plan = seeded(3, min_pairs=pairs, max_pairs=pairs)
    slow_after = 2 * pairs + pairs  # calls: the noise floor, then half of the candidate's pairs
    halves = Machine(1.2, 0.01, slow=lambda machine, _: 1.0 if len(machine.calls) < slow_after else 2.0)
    result = measure(halves, plan)
    assert result.speedup == pytest.approx(1.2, rel=0.02) and result.low < 1.2 < result.high
    # The same machine in LessonL's order: all calls of the candidate, then all of the baseline.
    blocks = Machine(1.2, 0.01, slow=lambda machine, _: 1.0 if len(machine.calls) < pairs else 2.0)
    times = {which: [blocks(which, seed) for seed in range(pairs)] for which in (CANDIDATE, BASELINE)}
    unpaired = statistics.median(times[BASELINE]) / statistics.median(times[CANDIDATE])
    assert unpaired == pytest.approx(2.4, rel=0.05)


def test_one_sided_outliers_do_not_move_the_median():
    disturbed = Machine(1.5, 0.02, slow=lambda machine, _: 20.0 if machine.rng.random() < 0.15 else 1.0)
    result = measure(disturbed, PLAN)
    assert result.speedup == pytest.approx(1.5, rel=0.03) and result.significant


def test_a_disadvantage_of_the_second_place_counts_as_noise():
    second = Machine(1.0, 0.005, slow=lambda machine, _: 1.1 if len(machine.calls) % 2 else 1.0)
    result = measure(second, PLAN)
    assert result.noise > 1.08 and not result.significant


def test_drift_tells_that_the_baseline_runs_slower_next_to_the_candidate():
    def disturb(machine, which):
        return 1.5 if which == BASELINE and machine.count(CANDIDATE) else 1.0

    result = measure(Machine(1.0, 0.01, slow=disturb), PLAN)
    assert result.speedup == pytest.approx(1.5, rel=0.03)  # the attack works where the caller lets it
    assert result.drift == pytest.approx(1.5, rel=0.03)
    assert measure(Machine(1.0, 0.01), PLAN).drift == pytest.approx(1.0, rel=0.03)


def test_real_work_on_a_real_clock():
    def work(which, input_seed):
        begin, x = time.process_time(), input_seed
        for _ in range(10_000 if which == CANDIDATE else 30_000):
            x = x * 3 % 1000003
        return time.process_time() - begin

    result = measure(work, TimingPlan(min_seconds=1e-5))
    assert result.significant and 2 < result.speedup < 4.5


# --- the procedure


def test_pairs_share_an_input_of_their_own_and_take_turns():
    machine = Machine(1.2, 0.1)
    result = measure(machine, PLAN)
    couples = [machine.calls[i : i + 2] for i in range(0, len(machine.calls), 2)]
    assert all(a[1] == b[1] and {a[0], b[0]} in ({BASELINE, TWIN}, {BASELINE, CANDIDATE}) for a, b in couples)
    floor, pairs = ([c for c in couples if name in dict(c)] for name in (TWIN, CANDIDATE))
    assert couples == floor + pairs and len(pairs) == result.pairs == 51
    seeds = [first[1] for first, _ in pairs]
    assert len(set(seeds)) == len(seeds) and min(seeds) >= 2**32
    assert [c[0][1] for c in floor] == seeds[: len(floor)]  # what `drift` compares
    firsts = [first[0] for first, _ in pairs]
    blocks = [tuple(firsts[i : i + 2]) for i in range(0, 50, 2)]
    assert collections.Counter(blocks).keys() == {(BASELINE, CANDIDATE), (CANDIDATE, BASELINE)}
    assert {seed for _, seed in machine.calls}.isdisjoint(seed for _, seed in other_calls(PLAN.seed + 1))


def other_calls(seed):
    machine = Machine(1.2, 0.1)
    measure(machine, seeded(seed))
    return machine.calls


def test_equal_times_give_an_equal_result():
    once, again = (measure(Machine(1.3, 0.05, seed=4), seeded(9)) for _ in range(2))
    assert once == again
    assert once != measure(Machine(1.3, 0.05, seed=4), seeded(10))


def test_stops_at_the_target_width():
    quiet, noisy = measure(Machine(2.0, 0.001), PLAN), measure(Machine(2.0, 0.04), PLAN)
    assert (quiet.reason, quiet.pairs) == ("target-width", 17)
    assert noisy.reason == "target-width" and noisy.pairs in (25, 37)
    assert noisy.high - noisy.low <= PLAN.target_width * noisy.speedup
    wide = measure(Machine(2.0, 0.04), seeded(0, target_width=0.5))
    assert (wide.reason, wide.pairs) == ("target-width", 17)


def test_stops_at_most_pairs():
    machine = Machine(2.0, 0.5)
    result = measure(machine, seeded(0, max_pairs=31))
    assert (result.reason, result.pairs, machine.count(TWIN), machine.count(CANDIDATE)) == (
        "max-pairs",
        31,
        31,
        31,
    )


def test_stops_at_the_budget_but_not_before_the_fewest_pairs():
    machine = Machine(1.0, 0.5)
    result = measure(machine, seeded(0, budget_seconds=3.6))
    assert result.reason == "budget" and 17 < result.pairs < 51
    assert 3.6 <= result.cpu_seconds < 4.6  # a call takes some 30 ms, and no more than two pairs go beyond
    assert 17 < machine.count(TWIN) < 51  # half of it for the noise floor
    tight = measure(Machine(1.0, 0.5), seeded(0, budget_seconds=1e-3))
    assert (tight.reason, tight.pairs) == ("budget", 17)


def test_speedup_is_capped():
    result = measure(Machine(100.0, 0.3), PLAN)
    assert (result.speedup, result.low, result.high) == (10.0, 10.0, 10.0)
    assert (
        result.capped and result.significant and result.reason == "target-width" and result.credited == 10.0
    )
    # Ratios 5.5, 6, .. 13.5 in some order: the median is 9.5, the fifth from either end 7.5 and 11.5.
    ratios = iter(random.Random(0).sample([5.5 + i / 2 for i in range(17)], 17))
    plan = seeded(0, max_pairs=17)
    result = measure(lambda which, _: 1.0 / next(ratios) if which == CANDIDATE else 1.0, plan)
    assert (result.low, result.speedup, result.high) == pytest.approx((7.5, 9.5, 10.0))
    assert not result.capped and result.reason == "max-pairs"
    nothing = measure(lambda which, _: 0.0 if which == CANDIDATE else 0.05, PLAN)
    assert nothing.speedup == 10.0 and nothing.capped and nothing.candidate_seconds == 0.0


def test_calls_too_short_to_measure_are_no_speedup():
    for shortest in (0.05, 0.0001):  # the inputs take 20 to 40 ms
        machine = Machine(3.0, 0.01)
        result = measure(machine, seeded(0, min_seconds=shortest))
        fast = shortest == 0.05
        assert (result.reason == "too-fast") == fast and (machine.count(CANDIDATE) == 0) == fast
    assert measure(lambda which, seed: 0.0, PLAN).reason == "too-fast"
    result = measure(Machine(3.0, 0.01), seeded(0, min_seconds=0.05))
    assert (result.speedup, result.low, result.high, result.credited) == (1.0, 1.0, 1.0, 1.0)
    assert not result.significant and result.pairs == 0 and result.baseline_seconds is None


def test_a_wrong_answer_ends_it_with_nothing():
    machine = Machine(5.0, 0.01)

    def sample(which, input_seed):
        if which == CANDIDATE and machine.count(CANDIDATE) == 16:
            raise WrongAnswer("f([3, 1]) is [3, 1]")
        return machine(which, input_seed)

    result = measure(sample, PLAN)
    assert (result.reason, result.detail) == ("wrong-answer", "f([3, 1]) is [3, 1]")
    assert (result.speedup, result.low, result.high, result.credited) == (0.0, 0.0, 0.0, 0.0)
    assert not result.significant and result.pairs == 0 and result.noise > 1
    assert machine.count(CANDIDATE) == 16 and result.cpu_seconds > 1


@pytest.mark.parametrize("culprit", [BASELINE, TWIN])
def test_a_baseline_that_fails_is_no_result(culprit):
    def sample(which, input_seed):
        if which == culprit:
            raise WrongAnswer("overflow")
        return 0.05

    with pytest.raises(ValueError, match=rf"{culprit} fails on the input of seed \d+: overflow"):
        measure(sample, PLAN)


def test_other_exceptions_pass_through():
    def sample(which, input_seed):
        raise ConnectionError("worker gone")

    with pytest.raises(ConnectionError, match="worker gone"):
        measure(sample, PLAN)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1e-9, "0.1", True, None])
def test_what_is_no_time_is_refused(seconds):
    with pytest.raises(ValueError, match=rf"sample\('candidate', \d+\) is {seconds!r}; allowed: finite"):
        measure(lambda which, _: seconds if which == CANDIDATE else 0.05, PLAN)


def test_reasons_are_the_listed_ones():
    seen = {measure(Machine(2.0, sigma), PLAN).reason for sigma in (0.0, 0.5)}
    assert seen == {"target-width", "max-pairs"} and seen < set(timing.REASONS)


@pytest.mark.parametrize(
    "field, value",
    [
        *[
            (name, x)
            for name in ("target_width", "budget_seconds", "min_seconds")
            for x in (0, -1, math.inf, "1")
        ],
        *[("cap", x) for x in (1, 0.5, math.nan, None)],
        *[("confidence", x) for x in (0, 1, 95, True)],
        *[("seed", x) for x in (-1, 1.0, None)],
        *[("min_pairs", x) for x in (5, 18, 17.0, "17", MOST_VALUES + 2)],
        *[("max_pairs", x) for x in (15, 52, math.inf, MOST_VALUES + 2)],
    ],
)
def test_plan_names_what_is_wrong(field, value):
    with pytest.raises(ValueError, match=rf"TimingPlan\.{field} is {value!r}; allowed: "):
        TimingPlan(**{field: value})


def test_fewest_pairs_can_reach_the_confidence():
    # Between the smallest and the largest of n values the median lies with 1 - 2 ** (1 - n).
    assert TimingPlan(min_pairs=7, confidence=0.95) and TimingPlan(min_pairs=9, confidence=0.99)
    with pytest.raises(ValueError, match="min_pairs is 7; allowed: an odd whole number from 9 to 999"):
        TimingPlan(min_pairs=7, confidence=0.99)
