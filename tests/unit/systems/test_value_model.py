"""value_model.py against one model and one text at a time, and against finite differences."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny

from jaxmarl_llm import losses, update
from jaxmarl_llm.systems.critics import value_model

TEXTS_NBK = [  # two models, three items, two texts each
    [[[7, 8, 9], [10]], [[11, 12], [13, 14, 15, 16]], [[17], [18, 19]]],
    [[[20, 21], [22, 23, 24]], [[25], [26]], [[27, 28, 29], [30, 31]]],
]
OPTIMIZER = optax.sgd(0.1)


def fresh():
    params = value_model.with_head(tiny.lora(), tiny.POLICY.config.d_model, jax.random.key(1))
    params["head"]["bias"] = jnp.array([0.5, -0.25])
    return params


def squares(values_BK, targets_BK, used_B):
    error_BK = jnp.where(used_B[:, None], values_BK - targets_BK, 0.0)
    return losses.SumCount((error_BK**2).sum(), values_BK.shape[1] * used_B.sum().astype(jnp.float32))


def one_by_one(params) -> np.ndarray:
    """Numbers (N, B, K), each from a text alone, with adapters merged in."""
    actual = np.zeros((2, 3, 2))
    for (n, b, k), _ in np.ndenumerate(actual):
        ids = jnp.array([TEXTS_NBK[n][b][k]])
        variables = tiny.own(params["body"], n)
        hidden, _ = tiny.POLICY.apply(variables, ids, jnp.arange(ids.shape[1])[None], method="hidden")
        weights = np.asarray(params["head"]["kernel"][n], np.float64)
        actual[n, b, k] = hidden[0, -1] @ weights + params["head"]["bias"][n]
    return actual


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_values_are_those_of_each_text_alone(rows):
    params, texts = fresh(), value_model.pad_texts(TEXTS_NBK, rows)
    actual = value_model.values(tiny.stack(), tiny.params(), params, texts, rows=rows)
    assert actual.shape == (2, {1: 4, 2: 4, 3: 3}[rows], 2)
    np.testing.assert_allclose(actual[:, :3], one_by_one(params), rtol=1e-4, atol=1e-5)
    assert np.asarray(texts.used_NB).sum() == 6


@pytest.mark.slow
def test_models_may_have_different_numbers_of_items():
    texts = value_model.pad_texts([TEXTS_NBK[0], TEXTS_NBK[1][:1]], 2)
    assert texts.used_NB.tolist() == [[True, True, True, False], [True, False, False, False]]
    actual = value_model.values(tiny.stack(), tiny.params(), fresh(), texts, rows=2)
    expected = one_by_one(fresh())
    np.testing.assert_allclose(actual[0, :3], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(actual[1, :1], expected[1, :1], rtol=1e-4, atol=1e-5)


def step(rows: int, targets_NBK, loss=squares):
    """Parameters and metrics after an update."""
    texts, stack = value_model.pad_texts(TEXTS_NBK, rows), tiny.stack()
    size = texts.used_NB.shape[1]
    targets = np.full((2, size, 2), np.nan, np.float32)  # of items that only fill up
    targets[:, :3] = targets_NBK
    state = update.init_state(fresh(), OPTIMIZER)
    inputs = stack, loss, OPTIMIZER, tiny.params(), state, texts, targets
    return value_model.train_step(*inputs, rows=rows)


TARGETS_NBK = np.arange(12, dtype=np.float32).reshape(2, 3, 2) / 10


@pytest.mark.slow
def test_an_update_does_not_depend_on_micro_batches():
    (whole, metrics), (parts, more) = step(3, TARGETS_NBK), step(2, TARGETS_NBK)
    compare = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(compare, whole.trainable, parts.trainable)
    jax.tree.map(compare, metrics, more)
    error = one_by_one(fresh()) - TARGETS_NBK
    np.testing.assert_allclose(metrics["loss"], (error**2).mean((1, 2)), rtol=1e-4)
    # The bias goes against the mean of 2 (value - target).
    expected = np.array([0.5, -0.25]) - 0.1 * 2 * error.mean((1, 2))
    np.testing.assert_allclose(whole.trainable["head"]["bias"], expected, rtol=1e-4)


@pytest.mark.slow
def test_the_gradient_reaches_the_body():
    """The adapters' gradient against a finite difference along a random direction."""
    stack, base, texts = tiny.stack(), tiny.params(), value_model.pad_texts(TEXTS_NBK, 1)

    def loss(params):
        actual = value_model.values(stack, base, params, texts)[:, :3]
        return ((actual - TARGETS_NBK) ** 2).mean((1, 2)).sum()

    before = fresh()
    after, _ = step(1, TARGETS_NBK)
    moved = jax.tree.map(lambda a, b: (b - a) / 0.1, after.trainable["body"], before["body"])
    random = np.random.default_rng(0)
    direction = jax.tree.map(lambda x: random.standard_normal(x.shape, np.float32), before["body"])

    def along(h):
        return loss(before | {"body": jax.tree.map(lambda x, d: x + h * d, before["body"], direction)})

    slope = (along(1e-3) - along(-1e-3)) / 2e-3
    product = sum(jax.tree.leaves(jax.tree.map(lambda g, d: (g * d).sum(), moved, direction)))
    assert abs(slope) > 1e-2
    np.testing.assert_allclose(product, slope, rtol=2e-2)


def test_what_is_not_finite_changes_nothing():
    after, metrics = step(1, np.full((2, 3, 2), np.nan))
    assert not np.isfinite(metrics["loss"]).any()
    chex.assert_trees_all_equal(after.trainable, fresh())
    assert int(after.step) == 0


def test_texts_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"different numbers of texts: \[1, 2\]"):
        value_model.pad_texts([[[[1]], [[2]]], [[[1], [2]], [[3], [4]]]])
    with pytest.raises(ValueError, match="is empty"):
        value_model.pad_texts([[[[1], []]]])
