"""Policy-gradient losses: REINFORCE, the PPO surrogate, truncated importance weights."""

import jax
import jax.numpy as jnp

from jaxmarl_llm.losses.checks import check_choice, check_shapes
from jaxmarl_llm.losses.sums import AGGREGATIONS, SumCount, reduce_rows

RATIO_LEVELS = ("token", "sequence")
MAX_LOG_RATIO = 20.0  # exp(20) = 5e8: finite in float32, and far outside anything worth a gradient


def log_ratio(logprobs_BL, behaviour_logprobs_BL, mask_BL, level: str = "token") -> jax.Array:
    """`log pi/mu`, clamped to +-20: [..., L] per token, or [..., 1] summed over the row; 0 where masked."""
    check_choice("ratio_level", level, RATIO_LEVELS)
    mask_BL = jnp.asarray(mask_BL, bool)
    check_shapes(mask_BL, logprobs_BL=logprobs_BL, behaviour_logprobs_BL=behaviour_logprobs_BL)
    now_BL = jnp.where(mask_BL, jnp.asarray(logprobs_BL, jnp.float32), 0.0)
    then_BL = jnp.where(mask_BL, jnp.asarray(behaviour_logprobs_BL, jnp.float32), 0.0)
    difference_BL = now_BL - jax.lax.stop_gradient(then_BL)
    if level == "sequence":
        difference_BL = jnp.sum(difference_BL, axis=-1, keepdims=True)
    return jnp.clip(difference_BL, -MAX_LOG_RATIO, MAX_LOG_RATIO)


def _clipped_surrogate(log_ratio_BL: jax.Array, advantages_B1: jax.Array, clip: float) -> jax.Array:
    ratio_BL = jnp.exp(log_ratio_BL)
    clamped_BL = jnp.clip(ratio_BL, 1.0 - clip, 1.0 + clip)
    return jnp.minimum(ratio_BL * advantages_B1, clamped_BL * advantages_B1)


def policy_gradient(
    logprobs_BL,
    advantages_B,
    mask_BL,
    *,
    behaviour_logprobs_BL=None,
    clip: float | None = None,
    ratio_level: str = "token",
    importance_cap: float | None = None,
    aggregation: str = "sequence",
) -> SumCount:
    """Policy-gradient loss: descending it makes rows with positive advantage more likely.

    clip=None, plain REINFORCE (Williams 1992; MAGRPO, arXiv 2508.04652):

        loss = - A_b sum_l log pi(a_bl)                      gradient: - A_b sum_l grad log pi(a_bl)

    clip=c, the PPO surrogate (arXiv 1707.06347), with the ratio rho = pi/mu of a token, or of a whole row
    (`ratio_level="sequence"`, rho = prod_l pi/mu, the early form of MAGRPO):

        loss = - min(rho A_b, clamp(rho, 1-c, 1+c) A_b)    gradient: - rho A_b grad log pi, or 0

    clip=None with importance_cap=C, for tokens that another policy drew, such as a sampler of less precision
    (truncated importance sampling; Ionides 2008, for language models Yao et al. 2025):

        loss = - w A_b log pi(a_bl), w = min(rho, C) a constant    gradient: - w A_b grad log pi(a_bl)

    A row's loss is the sum over its tokens (token level) or its one value (sequence level); `aggregation`
    says what it is divided by. While rho is 1, all forms of one aggregation have the same gradient.

    Args:
      logprobs_BL: log pi of the sampled tokens, differentiable.
      advantages_B: one advantage per row; no gradient flows through it.
      mask_BL: True for the tokens to train, EOS included, padding not.
      behaviour_logprobs_BL: log mu of the sampler; needed with clip or importance_cap, else not read.
      clip: PPO's epsilon > 0, or None.
      ratio_level: one of RATIO_LEVELS; read only with clip.
      importance_cap: C > 0, or None; not together with clip.
      aggregation: one of AGGREGATIONS, as in `aggregate`.

    Returns:
      SumCount; `mean()` is the loss.

    Raises:
      ValueError: unknown option, shapes that differ, clip or importance_cap <= 0, both of them, or one
        without behaviour log-probs.
    """
    check_choice("ratio_level", ratio_level, RATIO_LEVELS)
    check_choice("aggregation", aggregation, AGGREGATIONS)
    for name, value in (("clip", clip), ("importance_cap", importance_cap)):
        if value is not None and (behaviour_logprobs_BL is None or not value > 0):
            raise ValueError(
                f"{name}={value}; allowed: None, or a number above 0 together with behaviour_logprobs_BL"
            )
    if clip is not None and importance_cap is not None:
        raise ValueError(f"importance_cap={importance_cap} together with clip={clip}; allowed is one of them")
    mask_BL = jnp.asarray(mask_BL, bool)
    check_shapes(mask_BL, logprobs_BL=logprobs_BL, advantages_B=advantages_B)
    advantages_B1 = jax.lax.stop_gradient(jnp.asarray(advantages_B, jnp.float32))[..., None]
    if clip is None:
        scores_BL = jnp.where(mask_BL, jnp.asarray(logprobs_BL, jnp.float32), 0.0) * advantages_B1
        if importance_cap is not None:
            ratio_BL = jnp.exp(log_ratio(logprobs_BL, behaviour_logprobs_BL, mask_BL))
            scores_BL *= jax.lax.stop_gradient(jnp.minimum(ratio_BL, importance_cap))
    else:
        log_ratio_BL = log_ratio(logprobs_BL, behaviour_logprobs_BL, mask_BL, ratio_level)
        used_BL = mask_BL if ratio_level == "token" else jnp.any(mask_BL, axis=-1, keepdims=True)
        scores_BL = jnp.where(used_BL, _clipped_surrogate(log_ratio_BL, advantages_B1, clip), 0.0)
    return reduce_rows(-jnp.sum(scores_BL, axis=-1), mask_BL, aggregation)
