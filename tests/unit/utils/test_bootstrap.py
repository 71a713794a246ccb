"""statistics/bootstrap.py: intervals by hand and by SciPy."""

import math

import numpy as np
import pytest
from scipy import stats

from jaxmarl_llm.utils.statistics import bootstrap
from jaxmarl_llm.utils.statistics.bootstrap import interval


@pytest.mark.parametrize("values, mean, low, high", [
    ([5.0], 5, np.nan, np.nan),  # nothing is known of other seeds
    ([1.0, 3.0], 2, 1, 3),  # means 1, 2, 2, 3: each of the ends has a quarter of the chance
    # 27 resamples: 000 and 666 have 1/27 = 3.7 % each, more than the 2.5 % that are cut off at an end
    ([0.0, 3.0, 6.0], 3, 0, 6),
    # 256 resamples: the number of 4s is binomial (4, 1/4): none 31.6 %, up to two 94.9 %, up to three 99.6 %
    ([0.0, 0.0, 0.0, 4.0], 1, 0, 3),
])  # fmt: skip
def test_intervals_by_hand(values, mean, low, high):
    np.testing.assert_allclose(interval(values), [mean, low, high])


def test_intervals_of_many_runs_are_scipys():
    values = np.random.default_rng(5).normal(50, 10, 12)
    ours = interval(values)
    other = stats.bootstrap((values,), np.mean, n_resamples=20000, method="percentile", random_state=1)
    ends = other.confidence_interval
    np.testing.assert_allclose(ours[1:], [ends.low, ends.high], atol=0.6)  # the interval is 11 wide
    assert ours.mean == pytest.approx(values.mean())


def test_columns_are_computed_from_the_runs_that_have_a_value():
    values_ST = [[1, np.nan, np.nan], [3, 7, np.nan], [np.nan, 9, np.nan]]
    # column 0: runs 1 and 3; column 1: 7 and 9; column 2: nothing
    expected = [[2, 8, np.nan], [1, 7, np.nan], [3, 9, np.nan]]
    np.testing.assert_allclose(interval(values_ST), expected)


def test_few_values_are_resampled_in_all_ways():
    # how often both values occur in 00, 01, 10, 11
    assert bootstrap.resample_counts(2).tolist() == [[2, 0], [1, 1], [1, 1], [0, 2]]
    assert bootstrap.resample_counts(4).shape == (256, 4)
    assert bootstrap.resample_counts(9).shape == (bootstrap.DRAWN, 9)
    assert (bootstrap.resample_counts(9).sum(axis=1) == 9).all()


def test_interval_of_constants_has_no_width():
    assert interval(np.full(7, 62.5)) == (62.5, 62.5, 62.5)


def test_an_interval_needs_two_values():
    np.testing.assert_equal(tuple(interval([3.0, math.nan])), (3.0, math.nan, math.nan))
    np.testing.assert_equal(tuple(interval([math.nan])), (math.nan,) * 3)
    np.testing.assert_equal(tuple(interval([])), (math.nan,) * 3)


def test_interval_is_the_normal_one_for_many_items():
    values = np.random.default_rng(1).normal(50, 20, 400)
    actual = interval(values)
    half = 1.96 * values.std() / 20
    assert actual.mean == pytest.approx(values.mean())
    # The ends are order statistics of 2000 means of standard error 1: their own error is about 0.06.
    assert actual.low == pytest.approx(values.mean() - half, abs=0.25)
    assert actual.high == pytest.approx(values.mean() + half, abs=0.25)
    assert actual == interval(values)


def test_a_ratio_weighs_each_text_by_its_bytes():
    # resamples of (1 nat of 1 byte, 2 nats of 8 bytes): 2/2, 3/9, 3/9, 4/16
    np.testing.assert_allclose(bootstrap.ratio([1.0, 2.0], [1, 8]), [1 / 3, 0.25, 1.0])
    np.testing.assert_equal(tuple(bootstrap.ratio([3.0], [4])), (0.75, math.nan, math.nan))


def test_intervals_of_ratios_are_scipys():
    random = np.random.default_rng(3)
    bytes_S = random.integers(1, 9, 60)
    nats_S = bytes_S * random.gamma(2, 0.3, 60)
    other = stats.bootstrap(
        (nats_S, bytes_S), lambda x, y, axis: x.sum(axis) / y.sum(axis), paired=True, vectorized=True,
        n_resamples=20000, method="percentile", random_state=1,
    )  # fmt: skip
    ends = other.confidence_interval
    # 0.28 wide; the chance in 2000 resamples moves an end by 0.004 (standard error)
    np.testing.assert_allclose(bootstrap.ratio(nats_S, bytes_S)[1:], [ends.low, ends.high], atol=0.015)
