"""Merges that look at single numbers of the members' task vectors: TIES (arXiv 2306.01708), DARE (arXiv 2311.03099).

What they give is of no low rank, even of adapters: `merging.factorised` makes adapters of it again and says what is
lost, `merging.stacked` keeps all of it as full weights. Both methods look at one linear map of one layer at a time (of
models whose weights all learned at each parameter, those of layers layer by layer), as PEFT does; the paper of TIES
trims over all parameters of a model together.
"""

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from jaxmarl_llm.weights.merging import Place, TaskVector

Pieces = Iterator[tuple[Place, np.ndarray]]


def trimmed(delta: np.ndarray, density: float) -> np.ndarray:
    """The share ``density`` of the entries that are largest in size, at least one; the others are 0."""
    kept = max(1, round(density * delta.size))
    order = np.argsort(-np.abs(delta), axis=None, kind="stable")
    flat = np.zeros(delta.size)
    flat[order[:kept]] = delta.flat[order[:kept]]
    return flat.reshape(delta.shape)


def elected_mean(deltas: Sequence[np.ndarray]) -> np.ndarray:
    """For each entry the mean of those members that have the sign of the members' sum; 0 where that is 0."""
    deltas_M = np.stack(deltas)
    agree_M = np.sign(deltas_M) == np.sign(deltas_M.sum(axis=0))
    agree_M &= deltas_M != 0
    return np.where(agree_M, deltas_M, 0).sum(axis=0) / np.maximum(1, agree_M.sum(axis=0))


def dropped(delta: np.ndarray, density: float, draw: np.random.Generator) -> np.ndarray:
    """Each entry with the chance ``density``, divided by it, so that its mean is the entry; else 0."""
    return np.where(draw.random(delta.shape) < density, delta / density, 0)


def ties(vectors: Sequence[TaskVector], density: float) -> Pieces:
    """Trim every member, elect a sign for each entry, take the mean of those that have it."""
    return _merged(vectors, lambda deltas, at: elected_mean([trimmed(delta, density) for delta in deltas]))


def dare(vectors: Sequence[TaskVector], weights: Sequence[float], density: float, seed: int) -> Pieces:
    """sum_i w_i of the members after each has dropped entries at random; what is dropped follows from the seed."""

    def combine(deltas, at):
        kept = (
            dropped(delta, density, np.random.default_rng((seed, m, at))) for m, delta in enumerate(deltas)
        )
        return functools.reduce(np.add, (w * delta for w, delta in zip(weights, kept, strict=True)))

    return _merged(vectors, combine)


def _merged(vectors: Sequence[TaskVector], combine: Callable[[list[np.ndarray], int], np.ndarray]) -> Pieces:
    """``combine`` of the members' pieces and the number of the place, place by place."""
    for at, place in enumerate(vectors[0].places()):
        yield place, combine([vector.piece(place) for vector in vectors], at)
