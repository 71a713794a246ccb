"""Elementwise merges of the members' task vectors: TIES (arXiv 2306.01708), DARE (arXiv 2311.03099).

Their results have no low rank, even for adapters: `merging.factorised` approximates them by adapters and
reports the loss, `merging.stacked` keeps them as full weights. Both methods work on one linear map of one
layer at a time, as PEFT does (for fully trained models: on one parameter, layer by layer); the TIES paper
trims over all parameters of a model together.
"""

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from jaxmarl_llm.weights.merging import Place, TaskVector

Pieces = Iterator[tuple[Place, np.ndarray]]


def trimmed(delta: np.ndarray, density: float) -> np.ndarray:
    """Keep the share ``density`` of entries with the largest magnitude, at least one; set the others to 0."""
    kept = max(1, round(density * delta.size))
    order = np.argsort(-np.abs(delta), axis=None, kind="stable")
    flat = np.zeros(delta.size)
    flat[order[:kept]] = delta.flat[order[:kept]]
    return flat.reshape(delta.shape)


def elected_mean(deltas: Sequence[np.ndarray]) -> np.ndarray:
    """For each entry the mean over members whose sign is that of the members' sum; 0 if the sum is 0."""
    deltas_M = np.stack(deltas)
    agree_M = np.sign(deltas_M) == np.sign(deltas_M.sum(axis=0))
    agree_M &= deltas_M != 0
    return np.where(agree_M, deltas_M, 0).sum(axis=0) / np.maximum(1, agree_M.sum(axis=0))


def dropped(delta: np.ndarray, density: float, draw: np.random.Generator) -> np.ndarray:
    """Keep each entry with probability ``density``, divided by it to preserve the mean; else 0."""
    return np.where(draw.random(delta.shape) < density, delta / density, 0)


def ties(vectors: Sequence[TaskVector], density: float) -> Pieces:
    """Trim every member, elect a sign for each entry, average the members with that sign."""
    return _merged(vectors, lambda deltas, at: elected_mean([trimmed(delta, density) for delta in deltas]))


def dare(vectors: Sequence[TaskVector], weights: Sequence[float], density: float, seed: int) -> Pieces:
    """sum_i w_i of the members after random entries of each are dropped; the seed determines which."""

    def combine(deltas, at):
        kept = (
            dropped(delta, density, np.random.default_rng((seed, m, at))) for m, delta in enumerate(deltas)
        )
        return functools.reduce(np.add, (w * delta for w, delta in zip(weights, kept, strict=True)))

    return _merged(vectors, combine)


def _merged(vectors: Sequence[TaskVector], combine: Callable[[list[np.ndarray], int], np.ndarray]) -> Pieces:
    """``combine`` applied to the members' pieces and the place's number, place by place."""
    for at, place in enumerate(vectors[0].places()):
        yield place, combine([vector.piece(place) for vector in vectors], at)
