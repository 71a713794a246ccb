"""Credit against values worked out by hand and a NumPy loop over groups."""

import itertools

import jax
import numpy as np
import pytest

from jaxmarl_llm import credit

# Two interleaved groups and one padding row (key 2).
#   group 0: 1, 3, 8     mean 4, deviations -3 -1 4, population variance (9+1+16)/3 = 26/3
#   group 1: 2, 2, 2     no signal
RETURNS_R = np.array([1.0, 2.0, 3.0, 2.0, 8.0, 2.0, 99.0])
GROUP_R = np.array([0, 1, 0, 1, 0, 1, 2])
STD_0 = np.sqrt(26 / 3)

EXPECTED = {
    ("mean", False): [-3, 0, -1, 0, 4, 0, 0],
    # Mean of the two others: 5.5, 4.5, 2.
    ("leave_one_out", False): [-4.5, 0, -1.5, 0, 6, 0, 0],
    ("max", False): [-7, 0, -5, 0, 0, 0, 0],
    ("none", False): [1, 2, 3, 2, 8, 2, 0],
    ("mean", True): np.array([-3, 0, -1, 0, 4, 0, 0]) / STD_0,
    ("leave_one_out", True): np.array([-4.5, 0, -1.5, 0, 6, 0, 0]) / STD_0,
    ("max", True): np.array([-7, 0, -5, 0, 0, 0, 0]) / STD_0,
}


@pytest.mark.parametrize(("baseline", "normalise"), EXPECTED)
def test_advantage_by_hand(baseline, normalise):
    got_R = credit.group_advantage(RETURNS_R, GROUP_R, num_groups=2, baseline=baseline, normalise=normalise)
    np.testing.assert_allclose(got_R, EXPECTED[baseline, normalise], rtol=1e-6)


def test_advantage_is_the_same_under_jit_and_on_device_arrays():
    jitted = jax.jit(credit.group_advantage, static_argnames=("num_groups", "baseline", "normalise"))
    for options in ({}, {"baseline": "leave_one_out", "normalise": True}):
        got_R = jitted(jax.numpy.asarray(RETURNS_R), jax.numpy.asarray(GROUP_R), num_groups=2, **options)
        expected_R = credit.group_advantage(RETURNS_R, GROUP_R, num_groups=2, **options)
        np.testing.assert_allclose(got_R, expected_R, rtol=1e-6)


def test_advantage_equals_a_loop_over_groups():
    rng = np.random.default_rng(0)
    returns_R, group_R = rng.normal(size=40), rng.integers(0, 6, size=40)
    expected_R = np.empty(40)
    for key in range(6):
        rows = group_R == key
        expected_R[rows] = (returns_R[rows] - returns_R[rows].mean()) / returns_R[rows].std()
    got_R = credit.group_advantage(returns_R, group_R, num_groups=6, normalise=True)
    np.testing.assert_allclose(got_R, expected_R, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out", "max"])
@pytest.mark.parametrize("value", [0.1, 1.7, 1e6, 0.0, -3.3])
def test_equal_returns_give_exactly_zero(baseline, value):
    # In float32 the mean of three 0.1 is not 0.1: dividing that error by the floor of the std would make
    # advantages of 7e-3 out of nothing.
    got_R = credit.group_advantage(
        np.full(3, value), np.zeros(3, int), num_groups=1, baseline=baseline, normalise=True
    )
    np.testing.assert_array_equal(got_R, 0.0)


def test_a_group_of_one_has_no_advantage():
    got_R = credit.group_advantage([5.0], np.array([0]), num_groups=1, baseline="leave_one_out")
    np.testing.assert_array_equal(got_R, 0.0)


def test_small_spread_on_a_large_offset_keeps_its_std():
    # E[x^2] - E[x]^2 would be 0 or negative in float32 here. 1000 +- 0.0625 is exact in float32.
    std_J = credit.segment_std([1000.0625, 999.9375], np.array([0, 0]), num_groups=1)
    np.testing.assert_allclose(std_J, [0.0625], rtol=1e-6)


def test_segment_statistics_by_hand():
    np.testing.assert_array_equal(credit.segment_count(GROUP_R, num_groups=3), [3, 3, 1])
    np.testing.assert_array_equal(credit.segment_sum(RETURNS_R, GROUP_R, num_groups=4), [12, 6, 99, 0])
    np.testing.assert_array_equal(credit.segment_mean(RETURNS_R, GROUP_R, num_groups=4), [4, 2, 99, 0])
    np.testing.assert_allclose(credit.segment_std(RETURNS_R, GROUP_R, num_groups=2), [STD_0, 0], rtol=1e-6)
    np.testing.assert_array_equal(credit.segment_max(RETURNS_R, GROUP_R, num_groups=3), [8, 2, 99])


def test_negative_keys_are_padding_too():
    got_R = credit.group_advantage([1.0, 3.0, 50.0], np.array([0, 0, -1]), num_groups=1)
    np.testing.assert_array_equal(got_R, [-1, 1, 0])


def test_row_groups_number_the_last_axis():
    group_R, num_groups = credit.row_groups((2, 1, 3))
    np.testing.assert_array_equal(group_R, [0, 0, 0, 1, 1, 1])
    assert num_groups == 2


def test_aligned_credit_is_shared_by_all_agents():
    rewards_BG = np.array([[1.0, 2.0], [3.0, 4.0]])
    returns_NBG = credit.aligned_credit(rewards_BG, num_agents=3)
    assert returns_NBG.shape == (3, 2, 2)
    for returns_BG in returns_NBG:
        np.testing.assert_array_equal(returns_BG, rewards_BG)


def test_cross_credit_of_two_agents_by_hand():
    #            agent 1: g=0  g=1
    # agent 0, g=0:         1    2     -> mean 1.5, sum 3
    # agent 0, g=1:         5    8     -> mean 6.5, sum 13
    # agent 1:      mean    3    5        sum 6, 10
    rewards_BGG = np.array([[[1.0, 2.0], [5.0, 8.0]]])
    np.testing.assert_array_equal(credit.cross_credit(rewards_BGG), [[[1.5, 6.5]], [[3.0, 5.0]]])
    np.testing.assert_array_equal(credit.cross_credit(rewards_BGG, reduce="sum"), [[[3, 13]], [[6, 10]]])


def test_cross_credit_of_three_agents_equals_a_loop_over_joint_actions():
    rng = np.random.default_rng(1)
    rewards_BGGG = rng.normal(size=(2, 3, 3, 3))
    total_NBG = np.zeros((3, 2, 3))
    for joint in itertools.product(range(3), repeat=3):
        for agent, sample in enumerate(joint):
            total_NBG[agent, :, sample] += rewards_BGGG[:, joint[0], joint[1], joint[2]]
    got_NBG = credit.cross_credit(rewards_BGGG, reduce="sum")
    np.testing.assert_allclose(got_NBG, total_NBG, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(credit.cross_credit(rewards_BGGG), total_NBG / 9, rtol=1e-5, atol=1e-6)


def test_cross_credit_separates_what_aligned_credit_confounds():
    # The reward is what agent 0 says; agent 1 is irrelevant. Averaged over partners, agent 1 gets no signal.
    rewards_BGG = np.array([[[0.0, 0.0], [1.0, 1.0]]])
    returns_NBG = credit.cross_credit(rewards_BGG)
    group_R, num_groups = credit.row_groups(returns_NBG.shape)
    got_R = credit.group_advantage(returns_NBG.reshape(-1), group_R, num_groups=num_groups)
    np.testing.assert_array_equal(got_R, [-0.5, 0.5, 0, 0])


def test_zero_signal_share_and_spread_by_hand():
    # Of groups 0 (signal), 1 (none) and the empty group 2: one of two.
    group_R = np.where(GROUP_R == 2, 9, GROUP_R)
    assert credit.zero_signal_share(RETURNS_R, group_R, num_groups=3) == 0.5
    advantages_R = credit.group_advantage(RETURNS_R, group_R, num_groups=3)
    spread = credit.advantage_spread(advantages_R, group_R, num_groups=3)
    np.testing.assert_allclose(spread, STD_0 / 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: credit.group_advantage([1.0], np.array([0]), num_groups=1, baseline="rloo"),
            "leave_one_out",
        ),
        (
            lambda: credit.group_advantage(
                [1.0], np.array([0]), num_groups=1, baseline="none", normalise=True
            ),
            "allowed: mean",
        ),
        (lambda: credit.group_advantage([1.0, 2.0], np.array([0]), num_groups=1), r"\(2,\).*\(1,\)"),
        (lambda: credit.group_advantage([1.0], np.array([0.0]), num_groups=1), "integers"),
        (lambda: credit.group_advantage([1.0], np.array([0]), num_groups=0), "num_groups=0"),
        (lambda: credit.cross_credit(np.zeros((1, 2, 3))), r"\(1, 2, 3\)"),
        (lambda: credit.cross_credit(np.zeros((1, 2, 2)), reduce="max"), "mean, sum"),
        (lambda: credit.aligned_credit(np.zeros(3), num_agents=2), r"\[B, G\]"),
        (lambda: credit.row_groups((2, 0)), "none empty"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
