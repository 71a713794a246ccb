"""KL estimates, losses and penalties against hand values and exact expectations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm import losses

LOGITS_V = np.array([1.0, -0.5, 0.3, 2.0])
REF_LOGITS_V = np.array([0.2, 0.4, -1.0, 1.0])


def _probs(logits_V):
    return np.exp(logits_V) / np.exp(logits_V).sum()


def _kl(logits_V, ref_logits_V):
    probs_V = jax.nn.softmax(logits_V)
    return jnp.sum(probs_V * (jnp.log(probs_V) - jax.nn.log_softmax(ref_logits_V)))


def test_kl_estimates_by_hand():
    # pi = 1/2, ref = 1/4: d = -log 2. k1 = log 2, k2 = (log 2)^2 / 2, k3 = 1/2 + log 2 - 1.
    log2 = np.log(2.0)
    args = (np.log([0.5]), np.log([0.25]))
    for kind, expected in {"k1": log2, "k2": log2**2 / 2, "k3": log2 - 0.5}.items():
        np.testing.assert_allclose(losses.kl_estimate(*args, kind), [expected], rtol=1e-5)
    # The other way round d = log 2: k1 is negative, k3 = 2 - log 2 - 1 is not.
    np.testing.assert_allclose(losses.kl_estimate(*args[::-1], "k1"), [-log2], rtol=1e-6)
    np.testing.assert_allclose(losses.kl_estimate(*args[::-1], "k3"), [1 - log2], rtol=1e-5)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_k1_and_k3_are_unbiased(kind):
    estimate_V = losses.kl_estimate(np.log(_probs(LOGITS_V)), np.log(_probs(REF_LOGITS_V)), kind)
    np.testing.assert_allclose(_probs(LOGITS_V) @ estimate_V, _kl(LOGITS_V, REF_LOGITS_V), rtol=1e-5)


def _expected_kl_loss_gradient(kind):
    """Exact E over tokens v ~ pi of the gradient of kl_loss: sum_v pi_v grad loss(v)."""

    def loss(logits_V, token):
        now_BL = losses.token_logprobs(logits_V[None, None], token[None, None])
        ref_BL = losses.token_logprobs(jnp.asarray(REF_LOGITS_V)[None, None], token[None, None])
        return losses.kl_loss(now_BL, ref_BL, np.ones((1, 1), bool), kind=kind).mean()

    grads_VV = jax.vmap(jax.grad(loss), in_axes=(None, 0))(jnp.asarray(LOGITS_V, jnp.float32), jnp.arange(4))
    return _probs(LOGITS_V) @ grads_VV


@pytest.mark.slow
def test_expected_gradients_of_the_kl_loss_are_as_documented():
    logits_V, ref_V = jnp.asarray(LOGITS_V, jnp.float32), jnp.asarray(REF_LOGITS_V, jnp.float32)
    close = dict(rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(_expected_kl_loss_gradient("k1"), np.zeros(4), **close)
    np.testing.assert_allclose(_expected_kl_loss_gradient("k2"), jax.grad(_kl)(logits_V, ref_V), **close)
    forward_V = jax.grad(lambda logits_V: _kl(ref_V, logits_V))(logits_V)
    np.testing.assert_allclose(_expected_kl_loss_gradient("k3"), forward_V, **close)


def test_kl_penalty_is_a_constant_sum_over_the_row():
    # d = -log 2 and log 2, then a masked NaN: k3 = (log 2 - 1/2) + (1 - log 2) = 1/2.
    now_BL = np.log([[0.5, 0.25, np.nan]])
    ref_BL = np.log([[0.25, 0.5, 0.1]])
    mask_BL = np.array([[1, 1, 0]], bool)
    np.testing.assert_allclose(losses.kl_penalty(now_BL, ref_BL, mask_BL), [0.5], rtol=1e-5)
    np.testing.assert_allclose(losses.kl_penalty(now_BL, ref_BL, mask_BL, kind="k1"), [0.0], atol=1e-6)
    grad_BL = jax.grad(lambda x: losses.kl_penalty(x, ref_BL, mask_BL).sum())(jnp.asarray(now_BL))
    np.testing.assert_array_equal(grad_BL, 0.0)


def test_kl_loss_over_masked_tokens_is_finite_and_counts_only_the_rest():
    now_BL, ref_BL = np.log([[0.5, np.nan]]), np.log([[0.25, 0.5]])
    mask_BL = np.array([[1, 0]], bool)
    got = losses.kl_loss(now_BL, ref_BL, mask_BL, kind="k2", aggregation="token")
    np.testing.assert_allclose(got.sum, np.log(2) ** 2 / 2, rtol=1e-5)
    assert got.count == 1
    grad_BL = jax.grad(lambda x: losses.kl_loss(x, ref_BL, mask_BL).mean())(jnp.asarray(now_BL))
    np.testing.assert_allclose(grad_BL, [[0.5, 0.0]], rtol=1e-5)  # k3: 1 - exp(d) = 1 - 1/2


def test_far_apart_policies_give_a_finite_kl():
    estimate = losses.kl_estimate(np.array([-500.0]), np.array([-1.0]), "k3")
    np.testing.assert_allclose(estimate, [np.exp(20.0) - 21.0], rtol=1e-5)


def test_unknown_kind_lists_the_allowed():
    with pytest.raises(ValueError, match="k1, k2, k3"):
        losses.kl_estimate(np.zeros(1), np.zeros(1), "k4")
