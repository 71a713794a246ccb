"""Rounding at random to bfloat16: to one of the two neighbours, without bias, the same for the same seed."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxmarl_llm.utils import dtypes

SEEDS = np.arange(4096)
# 1 + 1/512 lies a quarter of the way from 1 to the next number in bfloat16, 1 + 1/128.
QUARTER, STEP = 1 + 1 / 512, 1 / 128


def test_a_number_becomes_one_of_its_neighbours_and_is_kept_on_average():
    numbers = np.float32([QUARTER, -QUARTER, 3e-39, 1e30, 0.7])
    low = (numbers.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    high = ((numbers.view(np.uint32) & np.uint32(0xFFFF0000)) + np.uint32(0x10000)).view(np.float32)
    rounded = jax.vmap(lambda seed: dtypes.rounded(jnp.asarray(numbers), jnp.bfloat16, seed))(SEEDS)
    assert rounded.dtype == jnp.bfloat16
    values = np.asarray(rounded.astype(jnp.float32), np.float64)
    for i, (a, b) in enumerate(zip(low, high, strict=True)):
        assert set(np.unique(values[:, i])) == {float(a), float(b)}
        share = (values[:, i] == float(b)).mean()
        wanted = (float(numbers[i]) - float(a)) / (float(b) - float(a))
        assert abs(share - wanted) < 4 * 0.5 / len(SEEDS) ** 0.5
    assert values[:, 0].mean() == pytest.approx(QUARTER, abs=4 * STEP / 2 / len(SEEDS) ** 0.5)


def test_places_of_an_array_are_rounded_independently_of_each_other():
    many = np.asarray(dtypes.rounded(jnp.full((256, 256), QUARTER), jnp.bfloat16, 7).astype(jnp.float32))
    up = (many > 1).astype(np.float64)
    assert abs(up.mean() - 0.25) < 4 * 0.433 / 256
    for shifted in (np.roll(up, 1, 0), np.roll(up, 1, 1)):
        assert abs(np.corrcoef(up.ravel(), shifted.ravel())[0, 1]) < 4 / 256
    other = np.asarray(dtypes.rounded(jnp.full((256, 256), QUARTER), jnp.bfloat16, 8).astype(jnp.float32)) > 1
    assert abs(np.corrcoef(up.ravel(), other.ravel())[0, 1]) < 4 / 256


def test_numbers_of_bfloat16_and_those_that_are_none_stay():
    exact = np.float32([0.0, -0.0, 1.0, -2.5, 2.0**-130, np.inf, -np.inf, np.nan])
    for seed in range(20):
        actual = dtypes.rounded(jnp.asarray(exact), jnp.bfloat16, seed)
        np.testing.assert_array_equal(np.asarray(actual, np.float32), exact)


def test_float32_stays_as_it_is():
    numbers = jnp.asarray(np.random.default_rng(0).standard_normal(50, np.float32))
    np.testing.assert_array_equal(dtypes.rounded(numbers, jnp.float32, 3), numbers)
    tree = {"a": numbers, "n": np.int32([3])}
    cast = dtypes.cast(tree, "float32")
    assert cast["a"] is numbers and cast["n"] is tree["n"]
    half = dtypes.cast(tree, "bfloat16")
    assert half["a"].dtype == jnp.bfloat16 and half["n"].dtype == np.int32


@pytest.mark.parametrize("one, other, wanted", [
    ("bfloat16", "float32", np.float32), ("bfloat16", "bfloat16", ml_dtypes.bfloat16),
    ("float16", "bfloat16", np.float32), (np.float64, "bfloat16", np.float32), ("float32", "float16", np.float32),
])  # fmt: skip
def test_the_wider_of_two(one, other, wanted):
    assert dtypes.widened(one, other) == dtypes.widened(other, one) == np.dtype(wanted)
