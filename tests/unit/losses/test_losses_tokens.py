"""Log-probs and entropy against hand values."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import losses


def test_token_logprobs_by_hand():
    # softmax(0, log 3) = 1/4, 3/4; at temperature 0.5: 1/10, 9/10.
    logits_BLV = np.log(np.array([[[1.0, 3.0], [3.0, 1.0]]]))
    tokens_BL = np.array([[1, 1]])
    np.testing.assert_allclose(
        losses.token_logprobs(logits_BLV, tokens_BL), np.log([[0.75, 0.25]]), rtol=1e-6
    )
    halved_BL = losses.token_logprobs(logits_BLV, tokens_BL, temperature=0.5)
    np.testing.assert_allclose(halved_BL, np.log([[0.9, 0.1]]), rtol=1e-5)


def test_ids_outside_are_the_nearest_inside():
    logits_LV = np.log(np.tile([0.1, 0.2, 0.7], (4, 1)))
    got_L = np.exp(losses.token_logprobs(logits_LV, np.array([-1, -100, 3, 7])))
    np.testing.assert_allclose(got_L, [0.1, 0.1, 0.7, 0.7], rtol=1e-6)
    got = losses.token_logprobs(np.zeros(1000), np.array(9, np.uint8))
    np.testing.assert_allclose(got, -np.log(1000), rtol=1e-6)


def test_token_logprobs_survive_large_logits_and_low_precision():
    logits_BLV = jnp.array([[[1000.0, 1000.0, -1000.0]]], jnp.bfloat16)
    got_BL = losses.token_logprobs(logits_BLV, np.array([[1]]))
    assert got_BL.dtype == jnp.float32
    np.testing.assert_allclose(got_BL, [[np.log(0.5)]], rtol=1e-6)


def test_entropy_by_hand():
    # Uniform over 8: log 8. Probabilities 1/4, 3/4: 0.25 log 4 + 0.75 log(4/3) = 0.562335.
    np.testing.assert_allclose(losses.entropy(np.zeros((1, 8))), [np.log(8)], rtol=1e-6)
    np.testing.assert_allclose(losses.entropy(np.log([[1.0, 3.0]])), [0.562335], rtol=1e-5)
    tempered = losses.entropy(np.log([[1.0, 3.0]]), temperature=0.5)  # 1/10, 9/10
    np.testing.assert_allclose(tempered, [-0.1 * np.log(0.1) - 0.9 * np.log(0.9)], rtol=1e-5)


def test_entropy_ignores_tokens_that_truncation_removed():
    logits_V = jnp.array([0.0, 0.0, -jnp.inf])
    value, grad_V = jax.value_and_grad(losses.entropy)(logits_V)
    np.testing.assert_allclose(value, np.log(2), rtol=1e-6)
    np.testing.assert_allclose(grad_V, [0, 0, 0], atol=1e-6)
