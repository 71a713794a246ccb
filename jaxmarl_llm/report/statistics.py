"""Means over runs with bootstrap intervals, for single numbers and along curves.

The percentile bootstrap of Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. With
few runs it is computed from all possible resamples, so that nothing is random. With two or three its 95 %
interval reaches from the lowest run to the highest; like any interval from so few it is rather too narrow.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxmarl_llm import plots

EXACT = 4  # all 4**4 = 256 resamples of four runs are gone through; of more runs, DRAWN random ones
DRAWN = 2000
ENDS = (0.025, 0.975)


class Interval(NamedTuple):
    """Means over S runs and the ends of their 95 % intervals; the ends are NaN for fewer than two runs."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Curve(NamedTuple):
    """A metric of S runs at T steps: steps_T ascending, values_ST with NaN where a run has no value."""

    steps_T: np.ndarray
    values_ST: np.ndarray


def resampling_weights(runs: int) -> np.ndarray:
    """How much each of S runs counts in each of R resamples with replacement: (R, S), rows add up to 1."""
    if runs <= EXACT:
        drawn_RS = np.array(list(itertools.product(range(runs), repeat=runs)))
    else:
        drawn_RS = np.random.default_rng(0).integers(runs, size=(DRAWN, runs))
    return np.stack([(drawn_RS == run).mean(axis=1) for run in range(runs)], axis=1)


def interval(values_ST) -> Interval:
    """Mean over the first axis and its 95 % bootstrap interval, per column; NaN entries are left out.

    values_ST: (S, T), or (S,) for one number per run. Columns without any value give NaN.
    """
    values_ST = np.asarray(values_ST, np.float64)
    flat_ST = values_ST.reshape(len(values_ST), -1)
    present_ST = ~np.isnan(flat_ST)
    found = np.full((3, flat_ST.shape[1]), np.nan)
    # Columns in which the same runs have values are computed together.
    for mask_S in {tuple(column) for column in present_ST.T.tolist()}:
        columns_T = (present_ST == np.array(mask_S)[:, None]).all(axis=0)
        known = flat_ST[np.array(mask_S)][:, columns_T]
        if len(known):
            found[0, columns_T] = known.mean(axis=0)
        if len(known) > 1:
            means_RT = resampling_weights(len(known)) @ known
            found[1:, columns_T] = np.quantile(means_RT, ENDS, axis=0, method="inverted_cdf")
    return Interval(*found.reshape(3, *values_ST.shape[1:]))


def curve(runs: Sequence[Sequence[Mapping]], name: str, window: int = 1) -> Curve:
    """The metric of the same name in the rows of each run, as running means of up to `window` values."""
    series = [plots.series(rows, name) for rows in runs]
    steps_T = np.unique(np.concatenate([steps for steps, _ in series]))
    values_ST = np.full((len(runs), len(steps_T)), np.nan)
    for values_T, (steps, values) in zip(values_ST, series, strict=True):
        values_T[np.searchsorted(steps_T, steps)] = plots.running_mean(values, window)
    return Curve(steps_T, values_ST)
