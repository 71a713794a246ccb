"""Take one agent out of trees whose leaves have a leading agent axis N, and put it back, on any mesh."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


class Kept(np.ndarray):
    """An array that is never changed elsewhere: a deep copy returns the array itself."""

    def __deepcopy__(self, memo) -> "Kept":
        return self


def take(tree, n: int):
    """Agent n of a stacked tree: on the host if this process sees it all, else as global arrays."""
    return jax.tree.map(lambda x: np.asarray(x)[n, ...] if x.is_fully_addressable else x[n], tree)


def apart(tree, agents: int) -> list:
    """All agents of a stacked tree, as `take` gives each, from the devices' shards.

    Each number is copied to the host once, all copies run at the same time, and no array keeps a cached copy
    there, as it would if it were read as a whole. The results are `Kept`, which Orbax does not copy again.
    """
    leaves, structure = jax.tree.flatten(tree)
    shards = [[s for s in x.addressable_shards if s.replica_id == 0] for x in leaves]
    for shard in (shard for of_leaf in shards for shard in of_leaf):
        shard.data.copy_to_host_async()
    parts = [_parts(x, of_leaf, agents) for x, of_leaf in zip(leaves, shards, strict=True)]
    return [jax.tree.unflatten(structure, [of_leaf[n] for of_leaf in parts]) for n in range(agents)]


def _parts(x: jax.Array, shards: list, agents: int) -> list:
    """One leaf of every agent."""
    if not x.is_fully_addressable:
        return [x[n] for n in range(agents)]
    if len(shards) == 1:
        whole = _on_host(shards[0]).view(Kept)
        return [whole[n, ...] for n in range(agents)]
    parts = [np.empty(x.shape[1:], x.dtype).view(Kept) for _ in range(agents)]
    for shard in shards:
        first, _, _ = shard.index[0].indices(agents)
        for place, part in enumerate(np.asarray(shard.data)):
            parts[first + place][shard.index[1:]] = part
    return parts


def _on_host(shard) -> np.ndarray:
    """The numbers of a shard; on a CPU a copy, because a view would change with the device's buffer."""
    held = np.asarray(shard.data)
    return held.copy() if shard.device.platform == "cpu" else held


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

    Uncommitted arrays (bound to no device) stay so: if they were committed, every program that reads them
    would be compiled again.
    """
    leaves, tree = jax.tree.flatten(stacked)
    parts = jax.tree.leaves(one)[::-1]
    del one  # where the caller does not hold it either, a device has each part only once
    if len(parts) != len(leaves):
        raise ValueError(f"{len(parts)} arrays of one agent, and {len(leaves)} of all")
    new = [placed_like(x, parts.pop()) for x in leaves]
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
