"""Weights of linear maps in 8 or 4 bits, with a scale for each block of them.

A block is `BLOCK` weights of one output along the input axis, as in QLoRA (arXiv 2305.14314), but without
its second quantisation, of the scales. ``int8`` rounds to multiples of 1/127 of the block's largest absolute
value, ``nf4`` to 16 quantiles of a normal distribution, scaled so that the largest is 1.

qwix (google/qwix) is used only to check this file in the tests. It replaces the operations of a model object
that it wraps, while here one `policy.dense.Dense` runs under a scan over layers, a ``vmap`` over agents and
`Layout.policy`, and with separate layers. Its ``nf4`` uses flattened arrays, which a mesh would have to
gather, needs 16 numbers per weight for quantising, and one byte per weight on the host.
"""

import functools
import math

import jax
import jax.numpy as jnp
from flax import traverse_util

from jaxmarl_llm.utils.errors import UserError

KINDS = ("int8", "nf4")
COLLECTION = "quantised"  # of Linen variables: {"values", "scales"} in place of each "kernel" in "params"
BLOCK = 64
LEAST = 8  # weights of a block; in smaller blocks the scales need more memory than is saved
# Appendix E of arXiv 2305.14314.
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


def quantise(kernel_DE: jax.Array, kind: str) -> dict[str, jax.Array]:
    """A kernel (D, E), with any axes in front, as ``values`` and ``scales``.

    Returns:
      ``scales`` float32 (D / block, E), and ``values``: int8 (D, E), or uint8 (D / 2, E), which holds in row i of a
      block's half as many rows the codes of its rows i (low four bits) and i + block / 2.

    Raises:
      UserError: if D is no multiple of `LEAST`.
    """
    *lead, d_in, d_out = kernel_DE.shape
    block = math.gcd(BLOCK, d_in)
    if block < LEAST:
        raise UserError(
            f"model_options.quantize={kind!r}: a linear map of the model has {d_in} inputs; allowed are multiples of "
            f"{LEAST}"
        )
    blocks = kernel_DE.astype(jnp.float32).reshape(*lead, d_in // block, block, d_out)
    largest = jnp.abs(blocks).max(-2, keepdims=True)
    scales = jnp.where(largest == 0, 1.0, largest) / (127 if kind == "int8" else 1)
    units = blocks / scales
    if kind == "int8":
        values = jnp.round(units).astype(jnp.int8)
    else:
        between = [(low + high) / 2 for low, high in zip(NF4, NF4[1:], strict=False)]
        codes = functools.reduce(jnp.add, [(units > middle).astype(jnp.uint8) for middle in between])
        low, high = jnp.split(codes, 2, axis=-2)
        values = low | (high << 4)
    return {"values": values.reshape(*lead, -1, d_out), "scales": scales[..., 0, :]}


def dequantise(values: jax.Array, scales: jax.Array) -> jax.Array:
    """The kernel (D, E) of `quantise`, float32. Element by element, so a mesh may cut it as it cuts the values."""
    *lead, blocks, d_out = scales.shape
    stored = values.reshape(*lead, blocks, -1, d_out)
    if values.dtype == jnp.int8:
        units = stored.astype(jnp.float32)
    else:
        units = _levels(jnp.concatenate([stored & 15, stored >> 4], axis=-2))
    return (units * scales[..., None, :]).reshape(*lead, -1, d_out)


def _levels(codes: jax.Array) -> jax.Array:
    """The numbers of `NF4` by their codes: a tree of selections between two numbers, one bit per level.

    On an accelerator a table lookup would take longer than reading the weights.
    """
    levels = [jnp.float32(level) for level in NF4]
    for bit in range(4):
        is_set = (codes >> bit) & 1 == 1
        levels = [jnp.where(is_set, high, low) for low, high in zip(levels[::2], levels[1::2], strict=True)]
    return levels[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def product(dtype, out, x_RD: jax.Array, values: jax.Array, scales: jax.Array) -> jax.Array:
    """x W with the weights in ``dtype`` and sums in ``out``; there is a gradient by x only.

    The backward pass dequantises the weights again: keeping them would need the memory that quantising saves.
    """
    kernel_DE = _beside(x_RD, values, scales).astype(dtype)
    return jnp.dot(x_RD, kernel_DE, preferred_element_type=out)


def _forward(dtype, out, x_RD, values, scales):
    return product(dtype, out, x_RD, values, scales), (values, scales)


def _backward(dtype, out, held, gradient_RE):
    kernel_DE = _beside(gradient_RE, *held).astype(dtype)
    return jnp.dot(gradient_RE, kernel_DE.T, preferred_element_type=out).astype(dtype), None, None


product.defvjp(_forward, _backward)


def _beside(x: jax.Array, values: jax.Array, scales: jax.Array) -> jax.Array:
    """`dequantise` where ``x`` is computed: not of a whole stack of layers, and not before a loop around it."""
    _, values, scales = jax.lax.optimization_barrier((x, values, scales))
    return dequantise(values, scales)


def quantise_layers(kernel_YDE, kind: str) -> dict[str, jax.Array]:
    """`quantise` for the kernels of all layers (JAX's or NumPy's), one after the other to save memory."""
    parts = [_quantise(jnp.asarray(kernel_DE), kind) for kernel_DE in kernel_YDE]
    return jax.tree.map(lambda *of_layers: jnp.stack(of_layers), *parts)


_quantise = jax.jit(quantise, static_argnames="kind")


def quantised(variables: dict, kind: str) -> dict:
    """Linen variables ``{"params": ...}`` with the kernels of their layers in `COLLECTION`; ``kind`` '': as they are.

    Embedding, head, norms and biases stay.
    """
    if not kind:
        return variables
    flat = traverse_util.flatten_dict(variables["params"])
    chosen = {path[:-1]: quantise_layers(x, kind) for path, x in flat.items() if is_quantised(path)}
    rest = {path: x for path, x in flat.items() if not is_quantised(path)}
    return {
        **variables,
        "params": traverse_util.unflatten_dict(rest),
        COLLECTION: traverse_util.unflatten_dict(chosen),
    }


def is_quantised(path: tuple[str, ...]) -> bool:
    """Whether the parameter at a path is one of those that are quantised."""
    return path[0] == "layers" and path[-1] == "kernel"


def in_full(variables: dict) -> dict:
    """The inverse of `quantised`, up to what was rounded: variables without `COLLECTION`, kernels in float32."""
    if COLLECTION not in variables:
        return variables
    flat = dict(traverse_util.flatten_dict(variables["params"]))
    for path, part in _parts(variables).items():
        flat[(*path, "kernel")] = dequantise(part["values"], part["scales"])
    rest = {name: tree for name, tree in variables.items() if name != COLLECTION}
    return {**rest, "params": traverse_util.unflatten_dict(flat)}


def kernel_shapes(variables: dict) -> dict[tuple[str, ...], tuple[int, ...]]:
    """The shape (Y, D, E) of every linear map of the layers, quantised or not, by its path without ``kernel``."""
    flat = traverse_util.flatten_dict(variables["params"])
    shapes = {path[:-1]: tuple(x.shape) for path, x in flat.items() if is_quantised(path)}
    for path, part in _parts(variables).items():
        layers, rows, d_out = part["values"].shape
        shapes[path] = (layers, rows if part["values"].dtype == jnp.int8 else 2 * rows, d_out)
    return shapes


def _parts(variables: dict) -> dict[tuple[str, ...], dict]:
    """By path, ``values`` and ``scales`` of what is quantised."""
    flat = traverse_util.flatten_dict(variables.get(COLLECTION, {}))
    return {
        path[:-1]: {"values": x, "scales": flat[(*path[:-1], "scales")]}
        for path, x in flat.items()
        if path[-1] == "values"
    }


def kind_of(variables: dict | None) -> str:
    """How some variables are quantised, one of `KINDS`; '': they are not."""
    parts = _parts(variables or {})
    dtypes = {part["values"].dtype for part in parts.values()}
    return "" if not parts else "int8" if dtypes == {jnp.dtype(jnp.int8)} else "nf4"
