"""Means with bootstrap intervals: over runs, over test problems, for single numbers and along curves.

The percentile bootstrap of Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. With
few values it is computed from all possible resamples, so it is not random. With two or three values its 95 %
interval reaches from the lowest to the highest; like any interval from so few values it is rather too narrow.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np

EXACT = 4  # up to so many values, all resamples are used (4**4 = 256); of more, DRAWN random ones
DRAWN = 2000
ENDS = (0.025, 0.975)


class Interval(NamedTuple):
    """Means over S values with the ends of their 95 % intervals, which are NaN for fewer than two values."""

    mean: np.ndarray | float
    low: np.ndarray | float
    high: np.ndarray | float


def resample_counts(size: int) -> np.ndarray:
    """How often each of S values occurs in each of R resamples with replacement: (R, S), rows add up to S."""
    if size <= EXACT:
        drawn_RS = np.array(list(itertools.product(range(size), repeat=size)))
    else:
        drawn_RS = np.random.default_rng(0).integers(size, size=(DRAWN, size))
    places_RS = drawn_RS + size * np.arange(len(drawn_RS))[:, None]
    return np.bincount(places_RS.ravel(), minlength=places_RS.size).reshape(places_RS.shape)


def interval(values_ST) -> Interval:
    """Mean over the first axis and its 95 % bootstrap interval, per column; NaN entries are left out.

    The first axis is resampled: give one value per run, or per problem (answers to one problem resemble each
    other; average them first).

    Args:
      values_ST: (S, T), or (S,) for one number each. Columns without any value give NaN.
    """
    values_ST = np.asarray(values_ST, np.float64)
    flat_ST = values_ST.reshape(len(values_ST), math.prod(values_ST.shape[1:]))
    present_ST = ~np.isnan(flat_ST)
    intervals = np.full((3, flat_ST.shape[1]), np.nan)
    # Columns in which the same rows have values are computed together.
    for mask_S in {tuple(column) for column in present_ST.T.tolist()}:
        columns_T = (present_ST == np.array(mask_S, bool)[:, None]).all(axis=0)
        known = flat_ST[np.array(mask_S, bool)][:, columns_T]
        if len(known):
            intervals[0, columns_T] = known.mean(axis=0)
        if len(known) > 1:
            means_RT = resample_counts(len(known)) @ known / len(known)
            intervals[1:, columns_T] = np.quantile(means_RT, ENDS, axis=0, method="inverted_cdf")
    return Interval(*intervals.reshape(3, *values_ST.shape[1:]))


def ratio(numerators_S, denominators_S) -> Interval:
    """Sum over sum, such as nats per byte of S texts, and its 95 % bootstrap interval over the S pairs.

    Args:
      numerators_S: (S,), such as the nats of each text.
      denominators_S: (S,), above 0, such as its bytes.
    """
    numerators_S, denominators_S = (np.asarray(x, np.float64) for x in (numerators_S, denominators_S))
    mean = numerators_S.sum() / denominators_S.sum()
    if len(numerators_S) < 2:
        return Interval(mean, math.nan, math.nan)
    counts_RS = resample_counts(len(numerators_S))
    ratios_R = (counts_RS @ numerators_S) / (counts_RS @ denominators_S)
    return Interval(mean, *np.quantile(ratios_R, ENDS, method="inverted_cdf"))
