"""Advantages over time by hand, against loops in Python, and at both ends of lambda."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxmarl_llm import credit

NAN = np.nan
RANDOM = np.random.default_rng(0)
B, L = 5, 7
REWARDS, VALUES = RANDOM.normal(size=(2, B, L)).astype(np.float32)
LENGTHS = np.array([7, 4, 1, 0, 6])
BOOTSTRAP = RANDOM.normal(size=B).astype(np.float32)
ENDS = RANDOM.random((B, L)) < 0.3
RATES = [(1.0, 1.0), (0.9, 0.5), (0.5, 0.0), (0.0, 0.7)]


def loop(rewards, values, bootstrap, ends, gamma, lam):
    """A row of the definition: delta, then the sum, from the back."""
    actual, advantage, value = [], 0.0, bootstrap
    for reward, own, end in reversed(list(zip(rewards, values, ends, strict=True))):
        delta = reward + (0.0 if end else gamma * value) - own
        advantage = delta + (0.0 if end else gamma * lam * advantage)
        actual, value = [advantage, *actual], own
    return actual


def test_gae_by_hand():
    # gamma 0.5, lam 0.5, V = 4, 2, 8, then 6: deltas 1 + 1 - 4, 0 + 4 - 2, 3 + 3 - 8 = -2, 2, -2
    # A: -2; 2 - 0.5 = 1.5; -2 + 0.375
    actual = credit.gae([1.0, 0.0, 3.0], [4.0, 2.0, 8.0], 3, gamma=0.5, lam=0.5, bootstrap_B=6.0)
    assert actual.tolist() == [-1.625, 1.5, -2]
    # An episode ends after the second: 0 + 0 - 2 = -2; -2 - 0.5
    actual = credit.gae(
        [1.0, 0.0, 3.0], [4.0, 2.0, 8.0], 3, gamma=0.5, lam=0.5, bootstrap_B=6.0, ends_BL=[False, True, False]
    )
    assert actual.tolist() == [-2.5, -2, -2]


@pytest.mark.parametrize("gamma, lam", RATES)
@pytest.mark.parametrize("ends", [None, ENDS])
def test_gae_equals_a_loop_on_ragged_rows(gamma, lam, ends):
    actual = credit.gae(
        REWARDS, VALUES, LENGTHS, gamma=gamma, lam=lam, bootstrap_B=BOOTSTRAP, ends_BL=ends
    )
    for b, length in enumerate(LENGTHS):
        over = np.zeros(L, bool) if ends is None else ends[b]
        wanted = loop(REWARDS[b, :length], VALUES[b, :length], BOOTSTRAP[b], over[:length], gamma, lam)
        np.testing.assert_allclose(actual[b, :length], wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(actual[b, length:], 0)


def test_lambda_1_is_the_discounted_return_less_the_value():
    returns = credit.discounted_returns(REWARDS, LENGTHS, discount=0.9, bootstrap_B=BOOTSTRAP)
    for b, length in enumerate(LENGTHS):
        for l in range(length):
            powers = 0.9 ** np.arange(length - l + 1)
            wanted = powers @ np.append(REWARDS[b, l:length], BOOTSTRAP[b])
            np.testing.assert_allclose(returns[b, l], wanted, rtol=1e-4, atol=1e-5)
    actual = credit.gae(REWARDS, VALUES, LENGTHS, gamma=0.9, lam=1.0, bootstrap_B=BOOTSTRAP)
    within = np.arange(L)[None] < LENGTHS[:, None]
    np.testing.assert_allclose(actual, np.where(within, returns - VALUES, 0), rtol=1e-4, atol=1e-5)


def test_lambda_0_is_the_one_step_difference():
    actual = credit.gae(REWARDS, VALUES, L, gamma=0.9, lam=0.0, bootstrap_B=BOOTSTRAP)
    following = np.concatenate([VALUES[:, 1:], BOOTSTRAP[:, None]], axis=1)
    np.testing.assert_allclose(actual, REWARDS + 0.9 * following - VALUES, rtol=1e-5, atol=1e-6)


def test_token_gae_is_gae_with_the_reward_on_the_last_token():
    rewards_B = np.arange(1.0, 6.0)
    at_end = np.zeros((B, L))
    at_end[[0, 1, 2, 4], [6, 3, 0, 5]] = [1, 2, 3, 5]
    np.testing.assert_array_equal(credit.rewards_at_end(rewards_B, LENGTHS, num_tokens=L), at_end)
    actual = credit.token_gae(rewards_B, VALUES, LENGTHS, gamma=0.99, lam=0.95, bootstrap_B=BOOTSTRAP)
    wanted = credit.gae(at_end, VALUES, LENGTHS, gamma=0.99, lam=0.95, bootstrap_B=BOOTSTRAP)
    np.testing.assert_array_equal(actual, wanted)


T, N = 3, 2
STEP_REWARDS, STEP_VALUES = RANDOM.normal(size=(2, B, T, N)).astype(np.float32)
STEPS = np.array([3, 2, 1, 0, 3])
STEP_ENDS = RANDOM.random((B, T)) < 0.4


@pytest.mark.parametrize("gamma, lam", RATES)
@pytest.mark.parametrize("ends", [None, STEP_ENDS])
def test_agent_chained_gae_goes_through_agents_then_steps(gamma, lam, ends):
    actual = credit.agent_chained_gae(
        STEP_REWARDS, STEP_VALUES, STEPS, gamma=gamma, lam=lam, bootstrap_B=BOOTSTRAP, ends_BT=ends
    )
    for b, steps in enumerate(STEPS):
        later = 0.0
        for t in reversed(range(steps)):
            for n in reversed(range(N)):
                end = ends is not None and n == N - 1 and ends[b, t]
                following = STEP_VALUES[b].reshape(-1)[: steps * N].tolist() + [BOOTSTRAP[b]]
                value = 0.0 if end else following[t * N + n + 1]
                later = STEP_REWARDS[b, t, n] + gamma * value - STEP_VALUES[b, t, n] + (
                    0.0 if end else gamma * lam * later
                )
                np.testing.assert_allclose(actual[b, t, n], later, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(actual[b, steps:], 0)


def test_a_chain_of_one_agent_is_gae_over_turns():
    actual = credit.agent_chained_gae(REWARDS[..., None], VALUES[..., None], LENGTHS, gamma=0.9, lam=0.8)
    np.testing.assert_array_equal(actual[..., 0], credit.gae(REWARDS, VALUES, LENGTHS, gamma=0.9, lam=0.8))


def test_agent_chained_gae_of_tokens_is_gae_of_all_that_was_said():
    lengths = RANDOM.integers(0, 5, size=(B, T, N))
    values = RANDOM.normal(size=(B, T, N, 4)).astype(np.float32)
    values[np.arange(4) >= lengths[..., None]] = NAN
    actual = credit.agent_chained_token_gae(
        STEP_REWARDS, values, lengths, gamma=0.9, lam=0.8, bootstrap_B=BOOTSTRAP
    )
    for b in range(B):
        places = [(t, n, l) for t in range(T) for n in range(N) for l in range(lengths[b, t, n])]
        rewards = [STEP_REWARDS[b, t, n] * (l == lengths[b, t, n] - 1) for t, n, l in places]
        chained_values = [values[b][place] for place in places]
        wanted = loop(rewards, chained_values, BOOTSTRAP[b], [False] * len(places), 0.9, 0.8)
        np.testing.assert_allclose([actual[b][place] for place in places], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(actual[np.arange(4) >= lengths[..., None]], 0)


def test_what_lies_beyond_the_lengths_reaches_nothing():
    beyond = np.arange(L)[None] >= LENGTHS[:, None]
    function = functools.partial(
        credit.gae, lengths_B=LENGTHS, gamma=0.9, lam=0.8, bootstrap_B=BOOTSTRAP, ends_BL=ENDS
    )
    rewards, values = (jnp.where(beyond, jnp.nan, x) for x in (REWARDS, VALUES))
    np.testing.assert_array_equal(function(rewards, values), function(REWARDS, VALUES))
    weights = jnp.arange(1.0, B * L + 1).reshape(B, L)
    gradients = jax.grad(lambda r, v: jnp.sum(weights * function(r, v)), argnums=(0, 1))(rewards, values)
    for gradient in gradients:
        assert np.isfinite(gradient).all() and not np.asarray(gradient)[beyond].any()


def test_a_bootstrap_after_the_end_is_not_read():
    actual = credit.gae([1.0, 2.0], [0.0, 0.0], 2, bootstrap_B=NAN, ends_BL=[False, True])
    assert actual.tolist() == [3, 2]


@pytest.mark.parametrize("function", [
    lambda r, v: credit.gae(r, v, LENGTHS[:3], gamma=0.9, lam=0.8, ends_BL=ENDS[:3]),
    lambda r, v: credit.token_gae(r[:, 0], v, LENGTHS[:3], gamma=0.9, lam=0.8),
    lambda r, v: credit.agent_chained_gae(r[:, :, None], v[:, :, None], LENGTHS[:3], gamma=0.9, lam=0.8),
    lambda r, v: credit.discounted_returns(r, LENGTHS[:3], discount=0.9) - v,
])  # fmt: skip
def test_jit_vmap_and_gradients(function):
    rewards, values = REWARDS[:3], VALUES[:3]
    actual = function(rewards, values)
    np.testing.assert_allclose(jax.jit(function)(rewards, values), actual, rtol=1e-5, atol=1e-6)
    mapped = jax.jit(jax.vmap(function))(*(np.stack([x, 2 * x]) for x in (rewards, values)))
    np.testing.assert_allclose(mapped, np.stack([actual, 2 * actual]), rtol=1e-5, atol=1e-5)  # it is linear
    check_grads(jax.jit(function), (rewards, values), order=1, rtol=1e-2, atol=1e-2, eps=1e-2)


@pytest.mark.parametrize("call, message", [
    (lambda: credit.gae([1.0], [1.0], 1, gamma=1.1), "gamma=1.1; allowed: 0 to 1"),
    (lambda: credit.gae([1.0], [1.0], 1, lam=-1), "lam=-1; allowed: 0 to 1"),
    (lambda: credit.gae([1.0], [1.0, 2.0], 1), r"rewards \(1,\) and values \(2,\)"),
    (lambda: credit.gae(REWARDS, VALUES, LENGTHS[:2]), r"lengths have shape \(2,\); allowed: \(5,\)"),
    (lambda: credit.gae(REWARDS, VALUES, L, bootstrap_B=[1.0]), r"bootstrap have shape \(1,\)"),
    (lambda: credit.gae(REWARDS, VALUES, L, ends_BL=ENDS[0]), r"ends have shape \(7,\)"),
    (lambda: credit.agent_chained_gae([1.0], [1.0], 1), r"allowed: both \[.., T, N\]"),
    (lambda: credit.agent_chained_token_gae([[1.0]], [[1.0]], [[1]]), r"\[.., T, N, L\]"),
])  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
