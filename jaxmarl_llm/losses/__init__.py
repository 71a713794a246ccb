"""Losses: pure functions of (log-probs, advantages, mask, ...) that return a sum and a count.

Arrays are [..., L] with any leading axes (written B below); everything is float32 inside. Nothing here is
divided by the batch: add the `SumCount`s of the micro-batches, then take one `mean()`. Accumulation then
gives the same as one batch (likewise for gradients of `sum`: add them, then divide by the total `count`).

Masks come from lengths (`length_mask`), never from `token != pad`. A masked token may hold anything, NaN
included: its value is replaced before it is used, so it affects neither the loss nor the gradient. A row
without tokens counts as absent.
"""

from jaxmarl_llm.losses.kl import KL_KINDS, kl_estimate, kl_loss, kl_penalty
from jaxmarl_llm.losses.preference import bradley_terry, bradley_terry_sums, dpo, madpo, trajectory_dpo
from jaxmarl_llm.losses.ratio import MAX_LOG_RATIO, RATIO_LEVELS, Clip, Units, clipped, log_ratio, units
from jaxmarl_llm.losses.sums import (
    AGGREGATIONS,
    SumCount,
    aggregate,
    drop_truncated,
    length_mask,
    masked_mean,
    masked_sum,
)
from jaxmarl_llm.losses.supervised import cross_entropy, distillation, teacher_divergence
from jaxmarl_llm.losses.surrogate import policy_gradient
from jaxmarl_llm.losses.tokens import choice_logprobs, entropy, token_logprobs
from jaxmarl_llm.losses.turns import from_turns, in_turns, turn_sums
from jaxmarl_llm.losses.value import value_loss

__all__ = [
    "AGGREGATIONS",
    "KL_KINDS",
    "MAX_LOG_RATIO",
    "RATIO_LEVELS",
    "Clip",
    "SumCount",
    "Units",
    "aggregate",
    "bradley_terry",
    "bradley_terry_sums",
    "choice_logprobs",
    "clipped",
    "cross_entropy",
    "distillation",
    "dpo",
    "drop_truncated",
    "entropy",
    "from_turns",
    "in_turns",
    "kl_estimate",
    "kl_loss",
    "kl_penalty",
    "length_mask",
    "log_ratio",
    "madpo",
    "masked_mean",
    "masked_sum",
    "policy_gradient",
    "teacher_divergence",
    "token_logprobs",
    "trajectory_dpo",
    "turn_sums",
    "units",
    "value_loss",
]
