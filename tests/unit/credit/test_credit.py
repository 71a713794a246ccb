"""What holds for all of the credit package: examples that run, padding, jit, vmap and gradients."""

import doctest
import functools
import importlib
import inspect
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxmarl_llm import credit

NAMES = [f"{credit.__name__}.{module.name}" for module in pkgutil.iter_modules(credit.__path__)]


def per_agent(values_R, group_R, *, num_groups, centre):
    return credit.normalise_per_agent(values_R, group_R, num_agents=num_groups, centre=centre)


# Functions of (values [R], keys [R], number of groups), differentiable ones first.
SMOOTH = {
    "sum": credit.segment_sum,
    "mean": credit.segment_mean,
    "variance": credit.segment_variance,
    "std": credit.segment_std,
    "max": credit.segment_max,
    "others": credit.segment_leave_one_out,
    "spread": credit.advantage_spread,
    "within": credit.within_group_variance,
    **{
        f"advantage-{baseline}-{normalise}": functools.partial(
            credit.group_advantage, baseline=baseline, normalise=normalise
        )
        for baseline in credit.BASELINES
        for normalise in (False, True)
    },
    **{f"agent-{centre}": functools.partial(per_agent, centre=centre) for centre in (False, True)},
}
OF_ROWS = SMOOTH | {
    "zero": credit.zero_signal_share,
    "count": lambda values_R, group_R, *, num_groups: credit.segment_count(group_R, num_groups=num_groups),
}
# Ragged groups: 0 of four rows, 1 of three equal ones, 2 of one; 3 is empty.
VALUES = np.array([1.0, 2.5, 3.0, 2.5, 8.0, 2.5, 0.5, -4.0], np.float32)
KEYS = np.array([0, 1, 0, 1, 0, 1, 0, 2])
J = 4


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_run(name):
    actual = doctest.testmod(importlib.import_module(name))
    assert actual.attempted > 0 and actual.failed == 0


def test_every_public_function_has_an_example():
    for name in credit.__all__:
        thing = getattr(credit, name)
        if inspect.isfunction(thing):
            examples = [e.source for test in doctest.DocTestFinder().find(thing) for e in test.examples]
            assert f"{name}(" in "".join(examples), name


@pytest.mark.parametrize("name", OF_ROWS)
def test_padding_equals_removal_whatever_it_holds(name):
    actual = OF_ROWS[name](VALUES, KEYS, num_groups=J)
    values = np.insert(VALUES, [0, 3, 8], [np.nan, np.inf, np.nan])
    keys = np.insert(KEYS, [0, 3, 8], [-1, J, 99])
    padded = OF_ROWS[name](values, keys, num_groups=J)
    if padded.shape == values.shape:
        padding = (keys < 0) | (keys >= J)
        np.testing.assert_array_equal(padded[padding], 0.0)
        padded = padded[~padding]
    np.testing.assert_array_equal(padded, actual)


@pytest.mark.parametrize("name", OF_ROWS)
def test_under_jit_and_vmap(name):
    function = functools.partial(OF_ROWS[name], num_groups=J)
    many = np.stack([VALUES, VALUES[::-1], np.zeros_like(VALUES)])
    keys = np.stack([KEYS, KEYS, np.roll(KEYS, 1)])
    actual = jax.jit(jax.vmap(function))(many, keys)
    for row, values in enumerate(many):
        np.testing.assert_allclose(actual[row], function(values, keys[row]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients(name):
    """Against finite differences, on groups whose values differ."""
    values = jnp.array([1.0, 2.5, 3.0, 4.0, 8.0, 3.5, 0.5])
    function = functools.partial(SMOOTH[name], group_R=KEYS[:7], num_groups=2)
    check_grads(jax.jit(function), (values,), order=1, rtol=1e-2, atol=1e-2, eps=1e-2)


# Of equal values: a standard deviation, or what is divided by it, has a kink there.
AT_EQUAL = ("others", "advantage-mean-False", "advantage-leave_one_out-False", "advantage-none-False")


@pytest.mark.parametrize("name", AT_EQUAL)
def test_gradients_where_a_group_is_equal(name):
    """The value is exactly 0 there, and the gradient that of R - mean all the same."""
    values = jnp.array([0.1, 2.0, 0.1, 3.0, 0.1])
    function = functools.partial(SMOOTH[name], group_R=[0, 1, 0, 1, 0], num_groups=2)
    check_grads(jax.jit(function), (values,), order=1, rtol=1e-2, atol=1e-2, eps=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("part", credit.Decomposition._fields)
def test_gradients_of_a_decomposition_of_equal_rewards(part):
    check_grads(
        lambda rewards: getattr(credit.decompose_rewards(rewards), part),
        (jnp.full((1, 2, 2), 0.1),), order=1, rtol=1e-2, atol=1e-2, eps=1e-2,
    )  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_padding_gets_no_gradient_and_equal_values_no_nan(name):
    values = jnp.concatenate([jnp.asarray(VALUES), jnp.array([jnp.nan])])
    keys = np.append(KEYS, -1)
    weights = jnp.arange(1.0, 10.0)

    def total(values):
        actual = SMOOTH[name](values, keys, num_groups=3)  # without the empty group, whose maximum is infinite
        return jnp.sum(actual * weights[: actual.size]) if actual.ndim else actual

    gradient = jax.jit(jax.grad(total))(values)
    assert np.isfinite(gradient).all() and gradient[-1] == 0
