"""Choose merging weights by a score on validation problems: greedy soup, random search.

Both take a score function, so this module is independent of models. ``score`` takes the members' weights and
returns a number, the higher the better.
"""

from collections.abc import Callable, Sequence

import numpy as np

Weights = tuple[float, ...]
Score = Callable[[Weights], float]


def mean_of(chosen: Sequence[int], members: int) -> Weights:
    """Equal weights for the chosen members, with sum 1; 0 for the others."""
    return tuple(1 / len(chosen) if m in chosen else 0.0 for m in range(members))


def greedy_soup(members: int, score: Score) -> Weights:
    """The weights of the greedy soup (model soups, arXiv 2203.05482, recipe 1).

    Members are tried in the order of their own scores, the best first; each stays in the mean if the score
    does not fall. Takes 2 * members - 1 scores.
    """
    own = [score(mean_of([m], members)) for m in range(members)]
    first, *others = sorted(range(members), key=lambda m: -own[m])  # stable: of equal ones the first
    kept, best = [first], own[first]
    for m in others:
        value = score(mean_of([*kept, m], members))
        if value >= best:
            kept, best = [*kept, m], value
    return mean_of(kept, members)


def random_search(members: int, score: Score, trials: int, seed: int, bound: float = 1.5) -> Weights:
    """The best of ``trials`` weight vectors, the first of equal ones; gradient-free, as LoraHub (2307.13269).

    The first trial is the mean of all members. The others up to the middle are uniform within -bound..bound;
    the rest are normal around the best so far with a standard deviation of bound / 6, clipped to the bounds.
    """
    draw = np.random.default_rng(seed)
    best = mean_of(range(members), members)
    value = score(best)
    for trial in range(1, trials):
        near = np.clip(draw.normal(best, bound / 6), -bound, bound)
        far = draw.uniform(-bound, bound, members)
        weights = tuple(float(w) for w in (far if trial < trials / 2 else near))
        if (own := score(weights)) > value:
            best, value = weights, own
    return best
