"""Value losses against hand values, finite differences and removed elements."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm import losses


def test_squared_error_by_hand():
    # (1 - 3)^2 + (2 - 1)^2 = 5 over two tokens; a row mean of 2.5; gradient 2 (V - y).
    values_BL, targets_BL = jnp.array([[1.0, 2.0, jnp.nan]]), np.array([[3.0, 1.0, np.nan]])
    mask_BL = np.array([[1, 1, 0]], bool)
    got = losses.value_loss(values_BL, targets_BL, mask_BL)
    assert (float(got.sum), float(got.count)) == (5, 2)
    row = losses.value_loss(values_BL, targets_BL, mask_BL, aggregation="sequence_mean")
    assert (float(row.sum), float(row.count)) == (2.5, 1)
    grad_BL = jax.grad(lambda x: losses.value_loss(x, targets_BL, mask_BL).sum)(values_BL)
    np.testing.assert_array_equal(grad_BL, [[-4, 2, 0]])


def test_values_of_rows_have_a_mask_of_rows():
    got = losses.value_loss(np.array([1.0, 2.0, np.nan]), np.zeros(3), np.array([True, True, False]))
    assert (float(got.sum), float(got.count)) == (5, 2)


@pytest.mark.parametrize("value, target, loss, grad", [
    # V_old = 0, c = 0.5. Error (V - y)^2, or with V held within 0.5 of V_old, whichever is larger.
    (0.3, 1.0, 0.49, -1.4),  # within: 0.7^2
    (0.8, 1.0, 0.25, 0.0),   # beyond, nearer than 0.5 is: (0.5 - 1)^2, no gradient
    (2.0, 1.0, 1.0, 2.0),    # beyond and past the target: 1 > 0.25
    (-0.8, 1.0, 3.24, -3.6), # beyond on the far side: 1.8^2 > 1.5^2
    (-0.8, -1.0, 0.25, 0.0), # the other direction
])  # fmt: skip
def test_clipped_value_truth_table(value, target, loss, grad):
    def of(v):
        held = {"old_values_BL": np.zeros(1), "clip": 0.5}
        return losses.value_loss(v[None], np.array([target]), np.ones(1, bool), **held).mean()

    np.testing.assert_allclose(jax.value_and_grad(of)(jnp.float32(value)), (loss, grad), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options, message", [
    ({"clip": 0.2}, "clip=0.2, old_values_BL missing; allowed: both or neither"),
    ({"old_values_BL": np.zeros((2, 3))}, "clip=None, old_values_BL given"),
    ({"old_values_BL": np.zeros((2, 3)), "clip": 0.0}, "clip=0.0; allowed: a number above 0"),
    ({"old_values_BL": np.zeros((2, 1)), "clip": 0.2}, r"old_values_BL has shape \(2, 1\)"),
    ({"targets_BL": np.zeros(2)}, r"targets_BL has shape \(2,\); the mask \(2, 3\)"),
])  # fmt: skip
def test_bad_input_is_named(options, message):
    call = {"values_BL": np.zeros((2, 3)), "targets_BL": np.zeros((2, 3)), "mask_BL": np.ones((2, 3), bool)}
    with pytest.raises(ValueError, match=message):
        losses.value_loss(**(call | options))
