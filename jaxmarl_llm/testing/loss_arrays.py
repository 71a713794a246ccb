"""Random arrays for the arguments of a loss, by their names, and variants of them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.testing.rules import require

SIZES = {"N": 2, "B": 4, "P": 4, "L": 5, "T": 5, "K": 2}
STEP = 2e-3  # of finite differences: small beside log-ratios, large beside rounding
ORDER = (2, 0, 3, 1)  # of the rows, permuted
Arrays = dict[str, np.ndarray]


def arguments(loss: Callable, optional: Sequence[str]) -> list[str]:
    """Names of the arguments that a loss needs, then those of ``optional``."""
    parameters = inspect.signature(loss).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return needed + [name for name in optional if name not in needed]


def _axes(name: str) -> str:
    axes = name.rpartition("_")[2]
    require(axes and set(axes) <= set(SIZES), "arguments of a loss end with their axes, such as _BL", name)
    return axes


def is_mask(name: str) -> bool:
    """Whether an argument of this name is a mask."""
    return "mask" in name.split("_")


def _row_axis(name: str) -> int:
    return int(_axes(name).startswith("N"))


def random_arrays(names: Sequence[str], random: np.random.Generator) -> Arrays:
    """Log-probabilities or values near each other, so that ratios are near 1, and masks of some lengths."""
    shared, arrays = {}, {}
    for name in names:
        axes = _axes(name)
        shape = tuple(SIZES[axis] for axis in axes)
        if is_mask(name):
            arrays[name] = _lengths_mask(name, shape)
        elif name.startswith("turns"):
            arrays[name] = np.sort(random.integers(0, 2, shape), axis=-1).astype(np.int32)
        elif name.startswith("advantages"):
            arrays[name] = random.normal(size=shape).astype(np.float32)
        else:
            centre = shared.setdefault(axes, random.uniform(-2.4, -1.1, shape))
            arrays[name] = (centre + 0.12 * random.normal(size=shape)).astype(np.float32)
    return arrays


def _lengths_mask(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Lengths 4, 2, 0 and 1 of four rows, others where it is the loser's; of pairs without turns 1, 1, 0, 1."""
    lengths = np.array([3, 4, 2, 2] if name.startswith("loser") else [4, 2, 0, 1])
    return np.arange(shape[1]) < lengths[:, None] if len(shape) == 2 else lengths > 0


def mask_of(name: str, arrays: Arrays) -> np.ndarray | None:
    """Where an array's values count, in its shape; None where nothing says so."""
    counts, axes = None, _axes(name)
    for mask in filter(is_mask, arrays):
        own, of = _axes(mask), mask.partition("mask")[0]
        if mask == name or not name.removeprefix("ref_").startswith(of):
            continue
        values = arrays[mask]
        if not set(own) <= set(axes):  # a mask of tokens: a row counts that has one
            values, own = values.any(-1), own[:-1]
        spread = values.reshape([SIZES[a] if a in own else 1 for a in axes])
        counts = spread if counts is None else counts & spread
    return None if counts is None else np.broadcast_to(counts, arrays[name].shape)


def _dirty(arrays: Arrays, value: float) -> Arrays:
    """The arrays with another value wherever they are masked, token by token."""
    dirty = dict(arrays)
    for name, x in arrays.items():
        counts = mask_of(name, arrays) if x.dtype == np.float32 else None
        if counts is not None:
            dirty[name] = np.where(counts, x, np.float32(value))
    return dirty


def rows_of(arrays: Mapping[str, np.ndarray], rows: Sequence[int]) -> Arrays:
    """Some rows of every array, in this order."""
    return {name: np.take(x, rows, axis=_row_axis(name)) for name, x in arrays.items()}


def _half(arrays: Arrays, kept: Sequence[bool]) -> Arrays:
    """The arrays with some rows masked as a whole; their shapes stay."""
    masks = {name: x & _column(kept, x.ndim) for name, x in arrays.items() if is_mask(name)}
    return arrays | masks


def _column(kept: Sequence[bool], ndim: int) -> np.ndarray:
    return np.array(kept).reshape([-1] + [1] * (ndim - 1))


def variants_of(arrays: Arrays, learned: Sequence[str], seed: int) -> dict[str, Arrays]:
    """Inputs of the same shapes, by what is changed in them."""
    clean = _dirty(arrays, 0.0)
    variants = {
        "plain": arrays,
        "masked values": _dirty(arrays, np.nan),
        "permuted": rows_of(clean, ORDER),
        "first half": _half(clean, [True, False, True, False]),
        "second half": _half(clean, [False, True, False, True]),
        "nothing": _half(_dirty(arrays, np.nan), [False] * 4),
    }
    random = np.random.default_rng([seed, 1])
    for k in range(3):
        along = {name: _direction(name, arrays, random) for name in learned}
        variants[f"along {k}"] = clean | along  # the directions, which `_mapped` does not compute with
        for sign in (1, -1):
            moved = {name: (clean[name] + sign * STEP * x).astype(np.float32) for name, x in along.items()}
            variants[f"{'up' if sign > 0 else 'down'} {k}"] = clean | moved
    for name, x in clean.items():
        if name.startswith("advantages"):
            variants["no advantage"] = clean | {name: x * 0 - 1}
            variants["advantage"] = clean | {name: x * 0 + 1}
    return variants


def _direction(name: str, arrays: Arrays, random: np.random.Generator) -> np.ndarray:
    """Random numbers where values count; of several agents, for the first one alone."""
    counts = mask_of(name, arrays)
    moved = random.normal(size=arrays[name].shape) * (True if counts is None else counts)
    if _row_axis(name):
        moved[1:] = 0
    return moved.astype(np.float32)


def wider(arrays: Arrays) -> Arrays:
    """The arrays with two more tokens, or turns, in every row, all of them masked."""
    wide = {}
    for name, x in _dirty(arrays, np.nan).items():
        axes = _axes(name)
        widths = [(0, 2 * (axis in "LT" and any(_masks_axis(axis, arrays)))) for axis in axes]
        fill = np.nan if x.dtype == np.float32 else 0
        wide[name] = np.pad(x, widths, constant_values=fill)
    return wide


def _masks_axis(axis: str, arrays: Mapping[str, Any]) -> list[bool]:
    return [axis in _axes(name) for name in arrays if is_mask(name)]
