"""Take one agent out of trees whose leaves have a leading agent axis N, and put it back, on any mesh."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


def take(tree, n: int):
    """Agent n of a stacked tree: on the host if this process sees it all, else as global arrays."""
    return jax.tree.map(lambda x: np.asarray(x)[n, ...] if x.is_fully_addressable else x[n], tree)


def along(x_N, leaf):
    """Reshape one number per agent, (N,), so that it broadcasts against a leaf (N, ..)."""
    return x_N.reshape(-1, *[1] * (leaf.ndim - 1))


def one_like(tree):
    """Shapes, dtypes and shardings of one agent's part of a stacked tree; the mesh axis of N is given up."""

    def one(x):
        if isinstance(x.sharding, NamedSharding):
            sharding = NamedSharding(x.sharding.mesh, PartitionSpec(*x.sharding.spec[1:]))
        else:
            sharding = x.sharding if len(x.sharding.device_set) == 1 else x[0].sharding
        return jax.ShapeDtypeStruct(x.shape[1:], x.dtype, sharding=sharding)

    return jax.tree.map(one, tree)


def allocate(tree):
    """Zeros for every `jax.ShapeDtypeStruct` (with a sharding); arrays stay as they are."""

    def one(x):
        return x if isinstance(x, jax.Array) else jnp.zeros(x.shape, x.dtype, device=x.sharding)

    return jax.tree.map(one, tree)


def put(stacked, one, n: int):
    """Replace agent n of a stacked tree; its arrays stay where they are. ``stacked`` is donated.

    Arrays that are bound to no device stay so: bound ones would make every program that reads them be
    compiled once more.
    """
    leaves, tree = jax.tree.flatten(stacked)
    new = [placed_like(x, y) for x, y in zip(leaves, jax.tree.leaves(one), strict=True)]
    write = _writer(tuple(x.sharding if x.committed else None for x in leaves))
    return jax.tree.unflatten(tree, write(leaves, new, n))


def placed_like(now: jax.Array, new):
    """``new`` bound to a device only if ``now`` is."""
    return new if now.committed else jnp.asarray(np.asarray(new))


@functools.cache  # one compilation for all agents of a tree
def _writer(shardings):
    def write(leaves, new, n):
        return [jax.lax.dynamic_update_index_in_dim(x, y, n, 0) for x, y in zip(leaves, new, strict=True)]

    return jax.jit(write, donate_argnums=0, out_shardings=list(shardings))
