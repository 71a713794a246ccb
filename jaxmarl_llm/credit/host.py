"""Call credit functions from the host, compiled for rounded sizes because the number of turns varies."""

import contextlib
import functools
from collections.abc import Callable

import jax
import numpy as np

SIZES = ("num_groups", "num_keys", "num_agents")


def on_host(function: Callable, *arrays, length: int | None = None, **options) -> np.ndarray:
    """Call ``function(*arrays, **options)``, compiled once for sizes up to the same power of two.

    The number of turns of an iteration depends on the completions. A program for each number, or even for
    each operation, would be compiled again and again. So every axis is padded to a power of two: integers
    with -1, which as a key marks padding, others with 0. Sizes among the options are rounded in the same way.
    It runs on the CPU, unless JAX has none.

    >>> from jaxmarl_llm.credit.advantages import group_advantage
    >>> on_host(group_advantage, [1.0, 3.0, 8.0], [0, 0, 0], num_groups=1, length=3).tolist()
    [-3.0, -1.0, 4.0]

    Args:
      function: takes arrays whose rows have integer keys; rows with the key -1 must not count.
      arrays: its arguments, NumPy arrays or lists.
      length: rows of the result that are kept; None for a result without an axis.
      options: static; those of `SIZES` are rounded up.

    Returns:
      The result as a NumPy array.
    """
    filled = [_filled(np.asarray(array)) for array in arrays]
    sizes = {name: _power(value) for name, value in options.items() if name in SIZES}
    with _on_processor():
        result = np.asarray(_program(function, frozenset((options | sizes).items()))(*filled))
    return result if length is None else result[:length]


def _on_processor() -> contextlib.AbstractContextManager:
    """Keep these few numbers on the CPU: on an accelerator they would wait for its queue."""
    if jax.default_backend() == "cpu":
        return contextlib.nullcontext()
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # JAX_PLATFORMS names only the accelerator
        return contextlib.nullcontext()


@functools.cache
def _program(function: Callable, options: frozenset) -> Callable:
    return jax.jit(functools.partial(function, **dict(options)))


def _filled(array: np.ndarray) -> np.ndarray:
    """The array with every axis padded to a power of two."""
    fill = -1 if np.issubdtype(array.dtype, np.signedinteger) else 0
    missing = [(0, _power(size) - size) for size in array.shape]
    return np.pad(array, missing, constant_values=fill)


def _power(size: int) -> int:
    """The smallest power of two that is at least ``size``; 1 for 0."""
    return 1 << max(size - 1, 0).bit_length()
