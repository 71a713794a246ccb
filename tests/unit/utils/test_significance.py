"""statistics/significance.py: intervals and p-values by hand and by SciPy."""

import math

import numpy as np
import pytest
from scipy import stats

from jaxmarl_llm.utils.statistics.significance import DRAWN, EXACT, paired_t, sign_flips, t_interval


def test_the_t_interval_by_hand():
    # mean 2, s = 1, standard error 1 / sqrt(3) = 0.57735; t(0.975, 2) = 4.30265; half 2.48414
    actual = t_interval([1.0, 2.0, 3.0])
    np.testing.assert_allclose(actual, (2, -0.48414, 4.48414), atol=1e-5)
    assert t_interval([5.0, 5.0]) == (5, 5, 5)


def test_no_interval_from_fewer_than_two():
    np.testing.assert_equal(tuple(t_interval([5.0])), (5, math.nan, math.nan))
    np.testing.assert_equal(tuple(t_interval([])), (math.nan,) * 3)


def test_the_paired_t_test_by_hand():
    # t = 2 / 0.57735 = sqrt(12). Of two degrees of freedom F(t) = 1/2 + t / (2 sqrt(2 + t^2)), so that
    # p = 2 (1 - F) = 1 - sqrt(12 / 14) = 0.07418
    assert paired_t([1.0, 2.0, 3.0]) == pytest.approx(1 - math.sqrt(12 / 14))
    assert paired_t([-1.0, -2.0, -3.0]) == pytest.approx(1 - math.sqrt(12 / 14))
    # Of one degree F(t) = 1/2 + arctan(t) / pi; here mean 2, s = sqrt(2), t = 2 / (sqrt(2) / sqrt(2)) = 2
    assert paired_t([1.0, 3.0]) == pytest.approx(1 - 2 * math.atan(2) / math.pi)


def test_the_paired_t_test_where_nothing_varies():
    assert paired_t([0.0, 0.0, 0.0]) == 1
    assert paired_t([2.0, 2.0, 2.0]) == 0
    assert math.isnan(paired_t([2.0])) and math.isnan(paired_t([]))


def test_interval_and_test_agree_with_scipy():
    generator = np.random.default_rng(1)
    for number in (2, 3, 5, 9):
        ours, theirs = generator.normal(size=(2, number)) + np.array([[0.8], [0.0]])
        wanted = stats.ttest_rel(ours, theirs)
        assert paired_t(ours - theirs) == pytest.approx(wanted.pvalue)
        actual, ends = t_interval(ours - theirs), wanted.confidence_interval()
        np.testing.assert_allclose(actual[1:], (ends.low, ends.high))
        assert (paired_t(ours - theirs) < 0.05) == (not actual.low <= 0 <= actual.high)


def test_sign_flips_by_hand():
    # Sums of the 8 flips of 1, 2, 3: ±6, ±4, ±2, 0, 0; two are as far out as 6
    assert sign_flips([1.0, 2.0, 3.0]) == 2 / 8
    # of 1, 2, -3: 0, which all reach; of 1, -2, 4: 3, which 7, 5 and 3 of either sign reach, 1 does not
    assert sign_flips([1.0, 2.0, -3.0]) == 1
    assert sign_flips([1.0, -2.0, 4.0]) == 6 / 8
    assert sign_flips([1.0, 0.0, 2.0, 0.0, 3.0]) == 2 / 8  # zeros do not count
    assert sign_flips([0.0, 0.0]) == sign_flips([]) == 1
    # 0.1 + 0.2 + 0.3 and -0.1 - 0.2 - 0.3 in any order of adding
    assert sign_flips([0.1, 0.2, 0.3]) == sign_flips([0.3, 0.2, 0.1]) == 2 / 8


def test_sign_flips_of_many_problems():
    assert sign_flips(np.ones(EXACT)) == 2 / 2**EXACT
    assert sign_flips(np.ones(EXACT + 30)) == 1 / (1 + DRAWN)  # never 0
    generator = np.random.default_rng(2)
    values = generator.normal(0.2, 1.0, size=60)
    wanted = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=20_000, rng=3)
    # both from random flips: a standard error of sqrt(p (1 - p) / 10,000), 0.005 at most, each
    assert sign_flips(values) == pytest.approx(wanted.pvalue, abs=0.02)
