"""What a part of a joint answer is worth: by hand, against loops, and by what must add up."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxmarl_llm import credit

RANDOM = np.random.default_rng(1)
TABLE = np.array([[[1.0, 2.0], [5.0, 8.0]]], np.float32)  # agent 0's sample down, agent 1's across
CUBE = RANDOM.normal(size=(2, 3, 3, 3)).astype(np.float32)
JOINTS = list(itertools.product(range(3), repeat=3))


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
    np.testing.assert_array_equal(credit.cross_credit(TABLE), [[[1.5, 6.5]], [[3.0, 5.0]]])
    np.testing.assert_array_equal(credit.cross_credit(TABLE, reduce="sum"), [[[3, 13]], [[6, 10]]])


def test_cross_credit_of_three_agents_equals_a_loop_over_joint_actions():
    total_NBG = np.zeros((3, 2, 3))
    for joint in JOINTS:
        for agent, sample in enumerate(joint):
            total_NBG[agent, :, sample] += CUBE[:, joint[0], joint[1], joint[2]]
    got_NBG = credit.cross_credit(CUBE, reduce="sum")
    np.testing.assert_allclose(got_NBG, total_NBG, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(credit.cross_credit(CUBE), total_NBG / 9, rtol=1e-5, atol=1e-6)


def test_cross_credit_separates_what_aligned_credit_confounds():
    # The reward is what agent 0 says; agent 1 is irrelevant. Averaged over partners, agent 1 gets no signal.
    rewards_BGG = np.array([[[0.0, 0.0], [1.0, 1.0]]])
    returns_NBG = credit.cross_credit(rewards_BGG)
    group_R, num_groups = credit.row_groups(returns_NBG.shape)
    got_R = credit.group_advantage(returns_NBG.reshape(-1), group_R, num_groups=num_groups)
    np.testing.assert_array_equal(got_R, [-0.5, 0.5, 0, 0])


# The analysis of variance of the rewards.


def test_decomposition_by_hand():
    # Mean 4. Agent 0: 1.5 - 4, 6.5 - 4; agent 1: 3 - 4, 5 - 4. What is left of 1: 1 - 4 + 2.5 + 1, and so on.
    parts = credit.decompose_rewards(TABLE)
    assert parts.mean_B.tolist() == [4]
    assert parts.main_NBG.tolist() == [[[-2.5, 2.5]], [[-1, 1]]]
    assert parts.interaction.tolist() == [[[0.5, -0.5], [-0.5, 0.5]]]
    # 2 * (2.5^2 + 2.5^2), 2 * (1 + 1), 4 * 0.5^2; in all (-3)^2 + (-2)^2 + 1^2 + 4^2 = 30
    main_NB, interaction_B = credit.sums_of_squares(parts)
    assert main_NB.tolist() == [[25], [4]] and interaction_B.tolist() == [1]
    main_N, interaction = credit.variance_shares(TABLE)
    np.testing.assert_allclose([*main_N, interaction], [25 / 30, 4 / 30, 1 / 30], rtol=1e-6)


@pytest.mark.parametrize("rewards", [
    CUBE, TABLE, RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(2, 2, 2, 2, 2)), 1000 + CUBE,
])  # fmt: skip
def test_the_parts_are_orthogonal_and_add_up(rewards):
    rewards = rewards.astype(np.float32)
    parts = jax.jit(credit.decompose_rewards)(rewards)
    agents, axes = rewards.ndim - 1, range(1, rewards.ndim)
    pieces = [np.broadcast_to(np.reshape(parts.mean_B, (-1, *[1] * agents)), rewards.shape)]
    for n in range(agents):
        shape = [1] * rewards.ndim
        shape[0], shape[1 + n] = rewards.shape[0], rewards.shape[1]
        pieces.append(np.broadcast_to(np.reshape(parts.main_NBG[n], shape), rewards.shape))
    pieces.append(parts.interaction)
    np.testing.assert_allclose(sum(pieces), rewards, rtol=1e-6, atol=1e-5)
    for first, second in itertools.combinations(pieces[1:], 2):
        inner = np.sum(np.asarray(first, float) * np.asarray(second, float), axis=tuple(axes))
        np.testing.assert_allclose(inner, 0, atol=5e-4)
    np.testing.assert_allclose(parts.main_NBG.sum(-1), 0, atol=5e-4)
    for own in axes:  # over all partners' samples: what is left is a table of the agent's samples
        others = tuple(axis for axis in axes if axis != own)
        np.testing.assert_allclose(np.sum(parts.interaction, axis=others), 0, atol=5e-4)
    main_NB, interaction_B = credit.sums_of_squares(parts)
    total = np.sum((rewards - pieces[0]) ** 2, axis=tuple(axes))
    np.testing.assert_allclose(main_NB.sum(0) + interaction_B, total, rtol=1e-3)


def test_mean_and_main_effects_are_the_returns_of_cross():
    parts = credit.decompose_rewards(CUBE)
    np.testing.assert_allclose(
        parts.mean_B[None, :, None] + parts.main_NBG, credit.cross_credit(CUBE), atol=1e-6
    )
    keys_R, num_groups = credit.row_groups(parts.main_NBG.shape)
    advantages_R = credit.group_advantage(
        credit.cross_credit(CUBE).reshape(-1), keys_R, num_groups=num_groups
    )
    np.testing.assert_allclose(parts.main_NBG.reshape(-1), advantages_R, atol=1e-6)


@pytest.mark.parametrize("table, shares", [
    ([[0.0, 0.0], [1.0, 1.0]], [1, 0, 0]),  # agent 0 alone
    ([[0.0, 1.0], [1.0, 2.0]], [0.5, 0.5, 0]),  # each for itself
    ([[0.0, 1.0], [1.0, 0.0]], [0, 0, 1]),  # they must differ
    ([[0.0, 0.0], [0.0, 1.0]], [1 / 3, 1 / 3, 1 / 3]),  # both are needed
    ([[0.1, 0.1], [0.1, 0.1]], [0, 0, 0]),  # nothing to explain, and no rounding either
])  # fmt: skip
def test_shares_of_games_that_one_knows(table, shares):
    main_N, interaction = credit.variance_shares([table])
    np.testing.assert_allclose([*main_N, interaction], shares, atol=1e-6)


def test_shares_are_of_all_items_together():
    # 25, 4, 1 as above and 0, 0, 4 * 0.5^2 = 1 of a second item: of 31.
    main_N, interaction = credit.variance_shares(np.concatenate([TABLE, [[[0.0, 1.0], [1.0, 0.0]]]]))
    np.testing.assert_allclose([*main_N, interaction], [25 / 31, 4 / 31, 2 / 31], rtol=1e-6)


@pytest.mark.slow
def test_an_item_that_lacks_a_reward_counts_as_removed():
    lacking = np.concatenate([CUBE[:1], CUBE[1:], CUBE[:1]])
    lacking[2, 0, 1, 2] = np.nan
    parts = jax.jit(credit.decompose_rewards)(lacking)
    whole = jax.jit(credit.decompose_rewards)(CUBE)
    for actual, wanted, axis in zip(parts, whole, (0, 1, 0), strict=True):
        actual = np.moveaxis(actual, axis, 0)
        np.testing.assert_allclose(actual[:2], np.moveaxis(wanted, axis, 0), rtol=1e-6, atol=1e-7)
        assert not actual[2].any()
    shares = jax.jit(credit.variance_shares)
    for actual, wanted in zip(shares(lacking), shares(CUBE), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5)
    replaced = credit.cross_counterfactuals(lacking)
    np.testing.assert_allclose(replaced[:, :2], credit.cross_counterfactuals(CUBE), rtol=1e-6)
    assert not np.asarray(replaced)[:, 2].any()
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(credit.decompose_rewards(x).interaction ** 2)))(lacking)
    assert np.isfinite(gradient).all() and not np.asarray(gradient)[2].any()


# Counterfactuals.


def test_counterfactual_credit_by_hand():
    # Two agents, three joint answers; agent 1's part of the last was not replaced.
    rewards = [3.0, 1.0, 2.0]
    without = [[1.0, 1.0, 0.0], [3.0, 2.0, np.nan]]
    assert credit.counterfactual_credit(rewards, without).tolist() == [[2, 0, 2], [0, -1, 0]]
    assert credit.counterfactual_credit([np.nan], [[1.0], [2.0]]).tolist() == [[0], [0]]

    def total(rewards):
        return credit.counterfactual_credit(rewards, jnp.array(without)).sum()

    gradient = jax.grad(total)(jnp.array(rewards))
    assert gradient.tolist() == [2, 2, 1]


def test_cross_counterfactuals_equal_a_loop_over_joint_answers():
    actual = credit.cross_counterfactuals(CUBE)
    assert actual.shape == (3, 2, 3, 3, 3)
    for joint in JOINTS:
        for n in range(3):
            others = [CUBE[(slice(None), *joint[:n], k, *joint[n + 1:])] for k in range(3) if k != joint[n]]
            np.testing.assert_allclose(actual[(n, slice(None), *joint)], sum(others) / 2, rtol=1e-5, atol=1e-6)


def test_counterfactuals_over_the_partners_are_the_leave_one_out_advantage():
    credit_NBGGG = credit.counterfactual_credit(CUBE, credit.cross_counterfactuals(CUBE))
    own = [tuple(axis for axis in (1, 2, 3) if axis != 1 + n) for n in range(3)]
    found_NBG = np.stack([np.mean(credit_NBGGG[n], axis=own[n]) for n in range(3)])
    keys_R, num_groups = credit.row_groups(found_NBG.shape)
    wanted_R = credit.group_advantage(
        credit.cross_credit(CUBE).reshape(-1), keys_R, num_groups=num_groups, baseline="leave_one_out"
    )
    np.testing.assert_allclose(found_NBG.reshape(-1), wanted_R, rtol=1e-4, atol=1e-5)


def orders(rewards, agents):
    """Shapley's own definition: the mean over all orders in which agents join of what each one adds."""
    values = np.zeros((agents, *rewards.shape[1:]))
    for order in itertools.permutations(range(agents)):
        team = 0
        for n in order:
            values[n] += rewards[team | 1 << n] - rewards[team]
            team |= 1 << n
    return values / math.factorial(agents)


@pytest.mark.parametrize("agents", [1, 2, 3, 4])
def test_shapley_values_equal_the_mean_over_all_orders(agents):
    rewards = RANDOM.normal(size=(2**agents, 5)).astype(np.float32)
    actual = credit.shapley_values(rewards)
    np.testing.assert_allclose(actual, orders(rewards, agents), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(actual.sum(0), rewards[-1] - rewards[0], rtol=1e-4, atol=1e-5)


def test_agents_that_need_each_other_share_what_counterfactuals_give_to_both():
    rewards = [0.0, 0.0, 0.0, 1.0]  # none, agent 0, agent 1, both
    assert credit.shapley_values(rewards).tolist() == [0.5, 0.5]
    assert credit.counterfactual_credit(1.0, [rewards[2], rewards[1]]).tolist() == [1, 1]


@pytest.mark.parametrize("function, argument", [
    (credit.cross_credit, CUBE),
    (lambda x: credit.decompose_rewards(x).interaction, CUBE),
    (lambda x: jnp.append(*credit.variance_shares(x)), TABLE),
    (lambda x: credit.counterfactual_credit(x, credit.cross_counterfactuals(x)), CUBE),
    (credit.shapley_values, CUBE[0, :2]),
])  # fmt: skip
def test_jit_vmap_and_gradients(function, argument):
    actual = function(argument)
    np.testing.assert_allclose(jax.jit(function)(argument), actual, rtol=1e-4, atol=1e-5)
    mapped = jax.jit(jax.vmap(function))(np.stack([argument, argument[::-1]]))
    np.testing.assert_allclose(mapped[0], actual, rtol=1e-4, atol=1e-5)
    check_grads(jax.jit(function), (argument,), order=1, rtol=2e-2, atol=2e-2, eps=1e-2)


@pytest.mark.parametrize("call, message", [
    (lambda: credit.cross_credit(np.zeros((1, 2, 3))), r"\(1, 2, 3\)"),
    (lambda: credit.cross_credit(np.zeros((1, 2, 2)), reduce="max"), "mean, sum"),
    (lambda: credit.aligned_credit(np.zeros(3), num_agents=2), r"\[B, G\]"),
    (lambda: credit.decompose_rewards(np.zeros(3)), r"allowed: \[B, G, .., G\]"),
    (lambda: credit.cross_counterfactuals(np.zeros((1, 1, 1))), "2 or more"),
    (lambda: credit.counterfactual_credit([1.0], [1.0, 2.0]), r"allowed: \[..\] and \[N, ..\]"),
    (lambda: credit.counterfactual_credit([1.0, 2.0], [[1.0]]), r"\(2,\) and .* rewards \(1, 1\)"),
    (lambda: credit.shapley_values(np.zeros(3)), r"rewards \(3,\); allowed: \[2, ..\]"),
    (lambda: credit.shapley_values(np.zeros(1)), r"rewards \(1,\)"),
    (lambda: credit.shapley_values(1.0), r"rewards \(\)"),
])  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
