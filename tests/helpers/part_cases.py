"""What the tests of `credit` and `losses` ask of every public function, by a case for each."""

import dataclasses
import inspect
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.test_util import check_grads


@dataclasses.dataclass(frozen=True)
class Case:
    """One function with what is known of it.

    Attributes:
      call: of ``arrays``, all floats; what else the function takes is fixed.
      arrays: without padding, and where gradients are smooth.
      smooth: how many of them, the first ones, are compared with finite differences; 0: it has no gradient.
      pairs: by name, two computations that must give the same.
    """

    call: Callable
    arrays: tuple
    smooth: int = 1
    pairs: dict[str, Callable] = dataclasses.field(default_factory=dict)


def functions(package) -> list[str]:
    """Names of the public functions of a package."""
    return [name for name in package.__all__ if inspect.isfunction(getattr(package, name))]


def same(actual, wanted):
    """Equal numbers, NaN in the same places, array by array; lists are arrays."""
    parts = (jax.tree.leaves(x, is_leaf=lambda part: isinstance(part, list)) for x in (actual, wanted))
    for one, other in zip(*parts, strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-5, atol=2e-6)


def check_transforms(case: Case):
    """Compiled and mapped over two inputs it gives what plain calls give."""
    both = [tuple(jnp.asarray(x, jnp.float32) * scale for x in case.arrays) for scale in (1.0, 0.875)]
    mapped = jax.jit(jax.vmap(case.call))(*map(jnp.stack, zip(*both, strict=True)))
    for i, arrays in enumerate(both):
        same(jax.tree.map(lambda x, i=i: x[i], mapped), case.call(*arrays))


def check_gradient(case: Case):
    """Against finite differences; or none at all where the case says so."""
    arrays = tuple(jnp.asarray(x, jnp.float32) for x in case.arrays)
    rest = arrays[case.smooth :]
    if case.smooth:
        function = jax.jit(lambda *smooth: case.call(*smooth, *rest))
        options = dict(order=1, modes=["rev"], rtol=2e-2, atol=2e-2, eps=1e-2)
        check_grads(function, arrays[: case.smooth], **options)
        return

    def total(arrays):
        leaves = jax.tree.leaves(case.call(*arrays))
        return sum(jnp.sum(jnp.nan_to_num(jnp.asarray(leaf, jnp.float32))) for leaf in leaves)

    for gradient in jax.jit(jax.grad(total))(arrays):
        np.testing.assert_array_equal(np.nan_to_num(gradient), 0.0)
