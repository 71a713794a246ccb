"""Metrics along training steps: rows of a metrics.jsonl, their running means, and curves of several runs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Curve(NamedTuple):
    """A metric of S runs at T steps: steps_T ascending, values_ST with NaN where a run has no value."""

    steps_T: np.ndarray
    values_ST: np.ndarray


def series(rows: Sequence[Mapping], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of the rows that have the metric; nulls (values that were not finite) are left out."""
    pairs = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    steps, values = zip(*pairs, strict=True) if pairs else ((), ())
    return np.asarray(steps, dtype=int), np.asarray(values, dtype=float)


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Mean of each value and the up to window - 1 values before it; as long as `values`."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def curve(runs: Sequence[Sequence[Mapping]], name: str, window: int = 1) -> Curve:
    """The metric of the same name in the rows of each run, as running means of up to `window` values."""
    curves = [series(rows, name) for rows in runs]
    steps_T = np.unique(np.concatenate([steps for steps, _ in curves]))
    values_ST = np.full((len(runs), len(steps_T)), np.nan)
    for values_T, (steps, values) in zip(values_ST, curves, strict=True):
        values_T[np.searchsorted(steps_T, steps)] = running_mean(values, window)
    return Curve(steps_T, values_ST)
