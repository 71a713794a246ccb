"""Statistics per key against values worked out by hand."""

import numpy as np
import pytest
from group_returns import GROUP_R, RETURNS_R, STD_0

from jaxmarl_llm import credit


def test_segment_statistics_by_hand():
    np.testing.assert_array_equal(credit.segment_count(GROUP_R, num_groups=3), [3, 3, 1])
    np.testing.assert_array_equal(credit.segment_sum(RETURNS_R, GROUP_R, num_groups=4), [12, 6, 99, 0])
    np.testing.assert_array_equal(credit.segment_mean(RETURNS_R, GROUP_R, num_groups=4), [4, 2, 99, 0])
    np.testing.assert_allclose(credit.segment_std(RETURNS_R, GROUP_R, num_groups=2), [STD_0, 0], rtol=1e-6)
    variance_J = credit.segment_variance(RETURNS_R, GROUP_R, num_groups=4)
    np.testing.assert_allclose(variance_J, [26 / 3, 0, 0, 0], rtol=1e-6)
    np.testing.assert_array_equal(credit.segment_max(RETURNS_R, GROUP_R, num_groups=3), [8, 2, 99])


def test_leave_one_out_by_hand():
    # Others of 1, 3, 8: (3 + 8) / 2, (1 + 8) / 2, (1 + 3) / 2; of 2: 2; 99 is alone, then no sample.
    wanted = [5.5, 2, 4.5, 2, 2, 2]
    np.testing.assert_array_equal(
        credit.segment_leave_one_out(RETURNS_R, GROUP_R, num_groups=3), [*wanted, 99]
    )
    np.testing.assert_array_equal(
        credit.segment_leave_one_out(RETURNS_R, GROUP_R, num_groups=2), [*wanted, 0]
    )


def test_small_spread_on_a_large_offset_keeps_its_std():
    # E[x^2] - E[x]^2 would be 0 or negative in float32 here. 1000 +- 0.0625 is exact in float32.
    std_J = credit.segment_std([1000.0625, 999.9375], np.array([0, 0]), num_groups=1)
    np.testing.assert_allclose(std_J, [0.0625], rtol=1e-6)


def test_a_nan_is_no_spread_of_0():
    std_J = credit.segment_std([1.0, np.nan, 3.0, 1.0, 3.0], np.array([0, 0, 0, 1, 1]), num_groups=2)
    np.testing.assert_array_equal(std_J, [np.nan, 1.0])
    # Divided by a spread of 0, the others would be a million times too large.
    scaled_R = credit.normalise_per_agent([1.0, np.nan, 3.0], [0, 0, 0], num_agents=1)
    assert np.isnan(scaled_R).all()


@pytest.mark.parametrize("value", [0.1, 1e6])
def test_equal_values_have_no_variance_at_all(value):
    # In float32 the mean of three 0.1 is not 0.1.
    assert credit.segment_variance([value] * 3, [0] * 3, num_groups=1).tolist() == [0]
