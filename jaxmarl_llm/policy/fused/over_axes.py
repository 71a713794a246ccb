"""Apply a function of rows to arrays with axes in front of the rows, and on every device of a mesh.

Kernels have few or no rules for ``vmap``, and compilers do not divide them among devices. Here all axes in
front become rows, and every device gets its part of agents, rows and heads.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.sharding import Mesh, PartitionSpec


def over_axes(function: Callable, mesh: Mesh | None) -> Callable:
    """``function`` for use below any number of `jax.vmap`, on arrays that the devices of a mesh may share.

    Args:
      function: of a tree of arrays (rows, tokens, heads, ..), the first of them with as many rows as any, or
        (rows, ..) of fewer than three axes besides, to trees of such arrays, all with the rows of one of its
        inputs. Where it gives an array for one with fewer rows than the first, as for keys that all rows
        read, devices add up their parts: it is a gradient.
      mesh: with the axes agent, data and model, or None.
    """
    return _with_axes(function, mesh, 0)


def _with_axes(function: Callable, mesh: Mesh | None, axes: int) -> Callable:
    """``function`` of arrays with ``axes`` axes in front of the rows, of size 1 where there is no such axis."""

    @custom_vmap
    def call(*inputs):
        if mesh is None or mesh.size == 1:
            return _merged_rows(function, axes, inputs)
        return _on_mesh(function, mesh, axes, inputs)

    @call.def_vmap
    def one_axis_more(size, batched, *inputs):
        del size
        inputs = jax.tree.map(lambda x, is_batched: x if is_batched else x[None], inputs, tuple(batched))
        outputs = _with_axes(function, mesh, axes + 1)(*inputs)
        return outputs, jax.tree.map(lambda _: True, outputs)

    return call


def _merged_rows(function: Callable, axes: int, inputs: tuple) -> Any:
    """Call the function with all axes in front among the rows, and divide its results again."""
    if not axes:
        return function(*inputs)
    front = jnp.broadcast_shapes(*(x.shape[:axes] for x in jax.tree.leaves(inputs)))
    number = math.prod(front)

    def merge(x):
        x = jnp.broadcast_to(x, (*front, *x.shape[axes:]))
        return x.reshape(number * x.shape[axes], *x.shape[axes + 1 :])

    def divide(x):
        return x.reshape(*front, x.shape[0] // number, *x.shape[1:])

    return jax.tree.map(divide, function(*jax.tree.map(merge, inputs)))


def _on_mesh(function: Callable, mesh: Mesh, axes: int, inputs: tuple) -> Any:
    """`_merged_rows` on every device, of its part of the arrays."""
    leaves = jax.tree.leaves(inputs)
    cuts = _cuts(mesh, axes, leaves)
    specs = jax.tree.map(functools.partial(_spec, mesh, axes, cuts), inputs)
    outputs = jax.eval_shape(lambda *inputs: _merged_rows(function, axes, inputs), *inputs)
    out_specs = jax.tree.map(functools.partial(_spec, mesh, axes, cuts), outputs)
    rows = leaves[0].shape[axes]

    def local(*inputs):
        results = _merged_rows(function, axes, inputs)

        def whole(x, described):
            shared = cuts[axes] and described.shape[axes] == 1 < rows
            return jax.lax.psum(x, cuts[axes]) if shared else x

        return jax.tree.map(whole, results, outputs)

    return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=out_specs, check_vma=False)(*inputs)


def _cuts(mesh: Mesh, axes: int, leaves: list) -> list[tuple[str, ...]]:
    """Mesh axes that cut the axes in front, then rows and heads; () for one that stays whole.

    The first axis in front is that of the agents, the second that of their shards (`update.gradient`). As in
    `sharding.Layout`, the devices of the mesh axis agent cut rows where they do not divide the agents.
    """
    front = [max(x.shape[axis] for x in leaves) for axis in range(axes)]
    by_agent = bool(front) and front[0] % mesh.shape["agent"] == 0
    of_rows = ("data",) if by_agent else ("agent", "data")
    cuts: list[tuple[str, ...]] = [()] * axes
    if by_agent:
        cuts[0] = ("agent",)
    shards = math.prod(mesh.shape[axis] for axis in of_rows)
    rows = {x.shape[axes] for x in leaves}
    if axes > 1:
        cuts[1] = of_rows if front[1] % shards == 0 else ()
    even = leaves[0].shape[axes] % shards == 0 and all(number == 1 or number % shards == 0 for number in rows)
    cuts.append(of_rows if axes < 2 and even else ())
    heads = [x.shape[axes + 2] for x in leaves if x.ndim > axes + 2]
    cuts.append(("model",) if all(number % mesh.shape["model"] == 0 for number in heads) else ())
    return cuts


def _spec(mesh: Mesh, axes: int, cuts: list[tuple[str, ...]], x) -> PartitionSpec:
    """How one array is cut: axes of size 1 and all but those of `_cuts` stay whole."""
    by_axis = [*cuts[: axes + 1], (), cuts[axes + 1]]

    def names(size: int, cut: tuple[str, ...]):
        parts = math.prod(mesh.shape[axis] for axis in cut)
        return cut if parts > 1 and size > 1 and size % parts == 0 else None

    return PartitionSpec(*map(names, x.shape, by_axis))
