"""Group keys and advantages against values worked out by hand and NumPy loops over groups."""

import itertools

import jax
import numpy as np
import pytest
from group_returns import GROUP_R, RETURNS_R, STD_0

from jaxmarl_llm import credit

EXPECTED = {
    ("mean", False): [-3, 0, -1, 0, 4, 0, 0],
    # Mean of the two others: 5.5, 4.5, 2.
    ("leave_one_out", False): [-4.5, 0, -1.5, 0, 6, 0, 0],
    ("max", False): [-7, 0, -5, 0, 0, 0, 0],
    ("none", False): [1, 2, 3, 2, 8, 2, 0],
    **{(name, True): np.array([-3, 0, -1, 0, 4, 0, 0]) / STD_0 for name in credit.BASELINES},
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


@pytest.mark.parametrize("baseline", credit.BASELINES)
@pytest.mark.parametrize("value", [0.1, 1.7, 1e6, 0.0, -3.3])
def test_equal_returns_give_exactly_zero(baseline, value):
    # In float32 the mean of three 0.1 is not 0.1: dividing that error by the floor of the std would make
    # advantages of 7e-3 out of nothing.
    got_R = credit.group_advantage(
        np.full(3, value), np.zeros(3, int), num_groups=1, baseline=baseline, normalise=True
    )
    np.testing.assert_array_equal(got_R, 0.0)


@pytest.mark.parametrize("baseline", credit.BASELINES)
@pytest.mark.parametrize("most, one", [(0.35, 0.75), (0.4, 0.3), (0.3, 1.0), (1e3 + 0.1, 1e3 + 0.7)])
def test_one_among_equal_returns_is_bounded_by_the_size_of_the_group(baseline, most, one):
    """The others' deviation is 0, and its rounding error in float32 is no divisor: sqrt(G - 1), not thousands."""
    returns_R = [most] * 7 + [one]
    got_R = credit.group_advantage(returns_R, [0] * 8, num_groups=1, baseline=baseline, normalise=True)
    sign = 1 if one > most else -1
    np.testing.assert_allclose(got_R, sign * np.array([-(7**-0.5)] * 7 + [7**0.5]), rtol=1e-3)


def test_a_group_of_one_has_no_advantage():
    got_R = credit.group_advantage([5.0], np.array([0]), num_groups=1, baseline="leave_one_out")
    np.testing.assert_array_equal(got_R, 0.0)


def test_negative_keys_are_padding_too():
    got_R = credit.group_advantage([1.0, 3.0, 50.0], np.array([0, 0, -1]), num_groups=1)
    np.testing.assert_array_equal(got_R, [-1, 1, 0])


def test_row_groups_number_the_last_axis():
    group_R, num_groups = credit.row_groups((2, 1, 3))
    np.testing.assert_array_equal(group_R, [0, 0, 0, 1, 1, 1])
    assert num_groups == 2


# How the four baselines are related: MAGRPO, MARLOO, MAReMax, MAREINFORCE.

G, GROUPS = 4, 3
RETURNS_JG = np.array([[0.0, 1.0, 3.0, 4.0], [2.0, 2.0, 8.0, 0.0], [-1.0, 5.0, 6.0, 2.0]], np.float32)
MEAN_J1, TOP_J1 = RETURNS_JG.mean(1, keepdims=True), RETURNS_JG.max(1, keepdims=True)
STD_J1 = RETURNS_JG.std(1, keepdims=True)


def of_baseline(baseline, normalise=False):
    keys_R = np.repeat(np.arange(GROUPS), G)
    found_R = credit.group_advantage(
        RETURNS_JG.reshape(-1), keys_R, num_groups=GROUPS, baseline=baseline, normalise=normalise
    )
    return np.asarray(found_R).reshape(GROUPS, G)


def test_without_normalisation_baselines_differ_by_a_factor_or_by_a_number_per_group():
    mean = of_baseline("mean")
    np.testing.assert_allclose(mean, RETURNS_JG - MEAN_J1, atol=1e-6)
    np.testing.assert_allclose(of_baseline("leave_one_out"), mean * (G / (G - 1)), rtol=1e-6)
    np.testing.assert_allclose(of_baseline("max"), mean - (TOP_J1 - MEAN_J1), atol=1e-6)
    np.testing.assert_allclose(of_baseline("none"), mean + MEAN_J1, atol=1e-6)
    for first, second in itertools.combinations(credit.BASELINES, 2):
        assert np.abs(of_baseline(first) - of_baseline(second)).max() > 0.5, (first, second)


@pytest.mark.parametrize("baseline", credit.BASELINES)
def test_with_normalisation_they_coincide(baseline):
    """As in CoMLRL 1.4.3, which takes the baseline off first, then centres and scales what is left."""
    actual, normalised = of_baseline(baseline), of_baseline(baseline, True)
    again = (actual - actual.mean(1, keepdims=True)) / np.maximum(actual.std(1, keepdims=True), 1e-6)
    np.testing.assert_allclose(normalised, again, atol=1e-5)
    np.testing.assert_allclose(normalised, (RETURNS_JG - MEAN_J1) / STD_J1, atol=1e-6)
    np.testing.assert_array_equal(normalised, of_baseline("mean", True))
    # 1, 2, 6: mean 3, variance (4 + 1 + 9) / 3.
    by_hand = credit.group_advantage([1.0, 2, 6], [0] * 3, num_groups=1, baseline=baseline, normalise=True)
    np.testing.assert_allclose(by_hand, [-0.926, -0.463, 1.389], atol=5e-4)


def test_with_normalisation_per_agent_mean_and_leave_one_out_coincide_and_max_does_not():
    def per_agent(baseline, centre=False):
        rows, agent_R = of_baseline(baseline).reshape(-1), np.repeat([0, 1, 1], G)
        return np.asarray(credit.normalise_per_agent(rows, agent_R, num_agents=2, centre=centre))

    np.testing.assert_allclose(per_agent("leave_one_out"), per_agent("mean"), rtol=1e-5)
    for centre in (False, True):  # agent 1 has two groups, whose shifts differ
        assert np.abs(per_agent("max", centre) - per_agent("mean", centre)).max() > 0.1


# Normalisation per agent.


def test_per_agent_by_hand():
    # Agent 0: 1, 3, 8 as above; agent 1: 2, 2, 2, without any spread: the floor divides.
    scaled = credit.normalise_per_agent(RETURNS_R, GROUP_R, num_agents=2, eps=0.5)
    np.testing.assert_allclose(scaled, [1 / STD_0, 4, 3 / STD_0, 4, 8 / STD_0, 4, 0], rtol=1e-6)
    centred = credit.normalise_per_agent(RETURNS_R, GROUP_R, num_agents=2, centre=True)
    np.testing.assert_allclose(centred, EXPECTED["mean", True], rtol=1e-6)


def test_per_agent_keeps_that_one_prompt_teaches_more_than_another():
    # Two prompts of one agent, returns 0, 2 and 0, 20: advantages -1, 1, -10, 10, of variance (2 + 200) / 4.
    returns_R, keys_R = [0.0, 2.0, 0.0, 20.0], [0, 0, 1, 1]
    by_group = credit.group_advantage(returns_R, keys_R, num_groups=2, normalise=True)
    np.testing.assert_allclose(by_group, [-1, 1, -1, 1], rtol=1e-6)
    advantages_R = credit.group_advantage(returns_R, keys_R, num_groups=2)
    actual = credit.normalise_per_agent(advantages_R, [0] * 4, num_agents=1)
    np.testing.assert_allclose(actual, np.array([-1, 1, -10, 10]) / np.sqrt(50.5), rtol=1e-6)


def test_centred_returns_per_agent_are_the_normalised_advantage_of_a_group_that_is_the_agent():
    rng = np.random.default_rng(3)
    returns_R, agent_R = rng.normal(size=30), rng.integers(0, 3, size=30)
    actual = credit.normalise_per_agent(returns_R, agent_R, num_agents=3, centre=True)
    wanted = credit.group_advantage(returns_R, agent_R, num_groups=3, normalise=True)
    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


# Keys.


def test_keys_number_tuples_in_the_order_of_appearance():
    items, agents = np.array([7, 7, 3, 3, 7]), ["b", "a", "b", "b", "b"]
    keys_R, num_groups = credit.group_keys(items, agents)
    assert keys_R.dtype == np.int32 and keys_R.tolist() == [0, 1, 2, 2, 0] and num_groups == 3
    assert credit.group_keys(items)[0].tolist() == [0, 0, 1, 1, 0]
    assert credit.group_keys(jax.numpy.array([5, 4, 5]), [None, 0, None])[0].tolist() == [0, 1, 0]
    assert credit.group_keys([])[1] == 0


# Two items; agents a, b; turn 1 follows the first sample of turn 0.
COLUMNS = {
    "item": [0, 0, 0, 0, 1, 1, 0, 0],
    "agent": ["a", "a", "b", "b", "a", "b", "a", "b"],
    "turn": [0, 0, 0, 0, 0, 0, 1, 1],
    "parent": [None, None, None, None, None, None, 0, 0],
    "environment": [0, 0, 0, 0, 1, 1, 0, 0],
    "joint": [0, 1, 0, 1, 2, 2, 3, 3],
}


@pytest.mark.parametrize("grouping, keys", [
    ("item", [0, 0, 0, 0, 1, 1, 0, 0]),
    ("item_agent", [0, 0, 1, 1, 2, 3, 0, 1]),
    ("environment_agent_turn", [0, 0, 1, 1, 2, 3, 4, 5]),
    ("parent", [0, 0, 1, 1, 2, 3, 4, 5]),
    ("joint", [0, 1, 0, 1, 2, 2, 3, 3]),
])  # fmt: skip
def test_named_groupings(grouping, keys):
    actual, num_groups = credit.keys_by(grouping, **COLUMNS)
    assert actual.tolist() == keys and num_groups == max(keys) + 1


def test_every_grouping_is_tested_above():
    (mark,) = test_named_groupings.pytestmark
    assert {case[0] for case in mark.args[1]} == set(credit.GROUPINGS)


def test_siblings_are_compared_with_each_other_only():
    """C3's leave-one-out over replays of one place: two parents with two and three alternatives."""
    # Parent 0: 1, 3; parent 1: 0, 3, 6. Less the mean of the others: 1 - 3, 3 - 1; -4.5, 3 - 3, 6 - 1.5.
    values_R = [1.0, 0.0, 3.0, 3.0, 6.0]
    keys_R, num_groups = credit.keys_by("parent", item=[0] * 5, agent=["a"] * 5, parent=[0, 1, 0, 1, 1])
    actual = credit.group_advantage(values_R, keys_R, num_groups=num_groups, baseline="leave_one_out")
    np.testing.assert_allclose(actual, [-2, -4.5, 2, 0, 4.5], rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: credit.group_advantage([1.0], np.array([0]), num_groups=1, baseline="rloo"),
            "leave_one_out",
        ),
        (lambda: credit.group_advantage([1.0, 2.0], np.array([0]), num_groups=1), r"\(2,\).*\(1,\)"),
        (lambda: credit.group_advantage([1.0], np.array([0.0]), num_groups=1), "integers"),
        (lambda: credit.group_advantage([1.0], np.array([0]), num_groups=0), "num_groups=0"),
        (lambda: credit.row_groups((2, 0)), "none empty"),
        (lambda: credit.group_keys([1, 2], [1]), r"lengths \[2, 1\]"),
        (lambda: credit.group_keys(), r"lengths \[\]; allowed: one or more"),
        (lambda: credit.keys_by("agent", agent=[0]), "grouping='agent' is unknown; allowed: item"),
        (lambda: credit.keys_by("item_agent", item=[0]), "missing: agent"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
