"""The dtype of the floating-point arrays of a tree: changed, widened, and rounded at random to bfloat16."""

import jax
import jax.numpy as jnp
import numpy as np


def cast(tree, dtype):
    """The tree with its floats in ``dtype``; arrays (JAX or NumPy) already in it stay the same objects."""
    dtype = jnp.dtype(dtype)
    return jax.tree.map(lambda x: x.astype(dtype) if is_float(x) and x.dtype != dtype else x, tree)


def is_float(x) -> bool:
    """Whether an array, or a shape with a dtype, holds floating-point numbers."""
    return jnp.issubdtype(x.dtype, jnp.floating)


def widened(dtype, other) -> np.dtype:
    """The narrowest dtype that holds the numbers of both, at most float32, JAX's widest.

    >>> widened("float16", np.float64)
    dtype('float32')
    """
    at_most = (np.float32 if np.dtype(x) == np.float64 else x for x in (dtype, other))
    return np.dtype(jnp.promote_types(*at_most))


def rounded(x: jax.Array, dtype, seed) -> jax.Array:
    """float32 numbers in ``dtype``, float32 or bfloat16: to bfloat16 rounded stochastically.

    A number becomes one of its two neighbours in bfloat16, the nearer one with a higher probability. Its
    expectation is the number itself, so small steps are not lost (arXiv 2010.06192). Infinities and NaN stay.

    Args:
      seed: integer scalar; the same one rounds the same numbers in the same way.
    """
    if jnp.dtype(dtype) != jnp.bfloat16:
        return x.astype(dtype)
    bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    # bfloat16 is the upper half: the noise carries into it with probability (lower half) / 2^16.
    carried = (bits + (_noise(x.shape, seed) & 0xFFFF)) & jnp.uint32(0xFFFF0000)
    up_or_down = jax.lax.bitcast_convert_type(carried, jnp.float32)
    return jnp.where(jnp.isfinite(x), up_or_down, x).astype(jnp.bfloat16)


def _noise(shape: tuple[int, ...], seed) -> jax.Array:
    """Random 32 bits for every element: a hash of its place and the seed.

    It is computed element by element (the mixer of C. Wellons' lowbias32), so the compiler needs no array for
    it; the bits of `jax.random` would be as large as the parameters.
    """
    place = jnp.zeros(shape, jnp.uint32)
    for axis, size in enumerate(shape):
        place = place * jnp.uint32(size % 2**32) + jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
    return _mixed(place ^ _mixed(jnp.uint32(seed) + jnp.uint32(0x9E3779B9)))


def _mixed(x) -> jax.Array:
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
