"""Choose one token for several members: from a mixture of distributions, or from the best-valued member.

With logits l_n and weights w_n of N members, the token is drawn from truncated softmax(l / temperature), with

    MeanLogits           l = sum_n w_n l_n,                  a product of experts (Hinton, Neural Computation 2002)
    MeanProbabilities    l = log sum_n w_n softmax(l_n),     a mixture
    Contrast             l = sum_n w_n l_n where p_best >= c max p_best, else -1e30; some w_n < 0
                         (arXiv 2210.15097; with weights 1 + b and -b arXiv 2309.09117)
    Switch               l = l_j,  j = argmax_n of the members' values

If all members agree, each of the four gives exactly their distribution (a contrast without its less plausible
tokens). `together.generate` calls them.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_llm.utils.errors import UserError

NOTHING = -1e30  # logit of tokens that are never drawn, as in `choice.truncate`
Draw = Callable[
    [jax.Array], tuple[jax.Array, jax.Array]
]  # logits (R, V) -> tokens and log-probabilities (R,)


def mean_logits(logits_NRV: jax.Array, weights: tuple[float, ...]) -> jax.Array:
    """The weighted sum (R, V) of logits; ``weights`` add up to 1.

    Computed as the heaviest member's logits plus weighted differences, which are exactly 0 if members agree.
    """
    first_RV = logits_NRV[_heaviest(weights)]
    return first_RV + (jnp.array(weights)[:, None, None] * (logits_NRV - first_RV[None])).sum(0)


def mean_probabilities(logits_NRV: jax.Array, weights: tuple[float, ...]) -> jax.Array:
    """Logits (R, V) of the weighted sum of the members' distributions; ``weights`` >= 0 add up to 1.

    They are normalised like the heaviest member's logits, and equal to these if members agree.
    """
    used = tuple(n for n, weight in enumerate(weights) if weight)
    weights_N11 = jnp.array([weights[n] for n in used])[:, None, None]
    logits_NRV = logits_NRV[jnp.array(used)]
    sums_NR1 = jax.nn.logsumexp(logits_NRV, axis=-1, keepdims=True)
    first = _heaviest(tuple(weights[n] for n in used))
    alike_NRV = logits_NRV - (sums_NR1 - sums_NR1[first][None])
    most_RV = alike_NRV.max(0)
    shares_RV = (weights_N11 * jnp.exp(alike_NRV - most_RV[None])).sum(0) / weights_N11.sum(0)
    return most_RV + jnp.log(shares_RV)


def contrast(logits_NRV: jax.Array, weights: tuple[float, ...], plausible: float) -> jax.Array:
    """`mean_logits` of tokens at least ``plausible`` times as likely as the heaviest member's likeliest.

    Without this bound, a very unlikely token could win because members of negative weight find it unlikelier.
    """
    best_RV = logits_NRV[_heaviest(weights)]
    kept_RV = best_RV >= best_RV.max(-1, keepdims=True) + math.log(plausible)
    return jnp.where(kept_RV, mean_logits(logits_NRV, weights), NOTHING)


def confidence(logits_NRV: jax.Array) -> jax.Array:
    """The log-probability (N, R) of each member's likeliest token: a value that needs no further pass."""
    return jax.nn.log_softmax(logits_NRV, axis=-1).max(-1)


@dataclasses.dataclass(frozen=True)
class MeanLogits:
    """Draws from `mean_logits`. See `together.Choose`."""

    weights: tuple[float, ...]

    def __post_init__(self):
        check_weights(self.weights)

    def __call__(self, logits_NRV, carry: Any, draw: Draw):
        return *_drawn(mean_logits(logits_NRV, self.weights), logits_NRV, self.weights, draw), carry


@dataclasses.dataclass(frozen=True)
class MeanProbabilities:
    """Draws from `mean_probabilities`. See `together.Choose`."""

    weights: tuple[float, ...]

    def __post_init__(self):
        check_weights(self.weights)

    def __call__(self, logits_NRV, carry: Any, draw: Draw):
        return *_drawn(mean_probabilities(logits_NRV, self.weights), logits_NRV, self.weights, draw), carry


@dataclasses.dataclass(frozen=True)
class Contrast:
    """Draws from `contrast`. See `together.Choose`."""

    weights: tuple[float, ...]
    plausible: float = 0.1

    def __post_init__(self):
        check_weights(self.weights, signed=True)
        if not 0 < self.plausible <= 1:
            raise UserError(f"plausible={self.plausible}: allowed is a number above 0 and at most 1")

    def __call__(self, logits_NRV, carry: Any, draw: Draw):
        mixed_RV = contrast(logits_NRV, self.weights, self.plausible)
        return *_drawn(mixed_RV, logits_NRV, self.weights, draw), carry


@dataclasses.dataclass(frozen=True)
class Switch:
    """Draws from the member with the greatest value; the first one wins ties. See `together.Choose`.

    ``value``: logits (N, R, V) -> values (N, R).
    """

    value: Callable[[jax.Array], jax.Array] = confidence

    def __call__(self, logits_NRV, carry: Any, draw: Draw):
        who_R = jnp.argmax(self.value(logits_NRV), axis=0).astype(jnp.int32)
        own_RV = jnp.take_along_axis(logits_NRV, who_R[None, :, None], axis=0)[0]
        return *draw(own_RV), who_R, carry


def equal_weights(members: int) -> tuple[float, ...]:
    """The same weight for all."""
    return (1.0 / members,) * members


def check_weights(weights: tuple[float, ...], signed: bool = False) -> None:
    """UserError unless weights add up to 1, and none is negative (with ``signed``: at least one is)."""
    total = math.fsum(weights)
    if not all(map(math.isfinite, weights)) or abs(total - 1) > 1e-6:
        raise UserError(f"weights={weights}: allowed are numbers that add up to 1, these add up to {total:g}")
    if signed and min(weights) >= 0:
        raise UserError(f"weights={weights}: a contrast needs a weight below 0, that of the worse member")
    if not signed and min(weights) < 0:
        raise UserError(f"weights={weights}: allowed are numbers from 0; a weight below 0 is a contrast")


def _heaviest(weights: tuple[float, ...]) -> int:
    return max(range(len(weights)), key=weights.__getitem__)


def _drawn(mixed_RV, logits_NRV, weights: tuple[float, ...], draw: Draw):
    """A token drawn from a mixture, its log-probability there, and the member with its greatest w_n p_n."""
    tokens_R, logprobs_R = draw(mixed_RV)
    own_NRV = jax.nn.log_softmax(logits_NRV, axis=-1)
    own_NR = jnp.take_along_axis(own_NRV, tokens_R[None, :, None], axis=-1)[..., 0]
    shares_N = jnp.array([math.log(weight) if weight > 0 else -jnp.inf for weight in weights])
    return tokens_R, logprobs_R, jnp.argmax(own_NR + shares_N[:, None], axis=0).astype(jnp.int32)
