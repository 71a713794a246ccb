"""Losses over tokens: pure functions of (log-probs, advantages, mask) that return a sum and a count.

Arrays are [..., L] with any leading axes (written B below); everything is float32 inside. Nothing here is
divided by the batch: add the `SumCount`s of the micro-batches, then take one `mean()`, and accumulation
gives what one batch gives (gradients of `sum` likewise: add them, then divide by the total `count`).

Masks come from lengths (`length_mask`), never from `token != pad`. A masked token may hold anything, NaN
included: its value is replaced before it is used, so it reaches neither the loss nor the gradient, and a
row without tokens counts as absent.
"""

from jaxmarl_llm.losses.kl import KL_KINDS, kl_estimate, kl_loss, kl_penalty
from jaxmarl_llm.losses.policy import MAX_LOG_RATIO, RATIO_LEVELS, log_ratio, policy_gradient
from jaxmarl_llm.losses.sums import AGGREGATIONS, SumCount, aggregate, length_mask
from jaxmarl_llm.losses.tokens import entropy, token_logprobs

__all__ = [
    "AGGREGATIONS",
    "KL_KINDS",
    "MAX_LOG_RATIO",
    "RATIO_LEVELS",
    "SumCount",
    "aggregate",
    "entropy",
    "kl_estimate",
    "kl_loss",
    "kl_penalty",
    "length_mask",
    "log_ratio",
    "policy_gradient",
    "token_logprobs",
]
