"""Policy-gradient losses: REINFORCE, PPO's surrogate with its several clips, truncated importance weights.

Descending them makes tokens with positive advantage A more likely. With pi the policy that is trained, mu the
one that drew the tokens, and rho = pi/mu of a token, a turn or a row (see `losses.ratio`):

clip=None, plain REINFORCE (Williams 1992; MAGRPO, arXiv 2508.04652):

    loss = - A log pi                                    gradient: - A grad log pi

clip=(low, high), the PPO surrogate (arXiv 1707.06347, eq. 7). DAPO's clip-higher (arXiv 2503.14476) has
high > low, so that unlikely tokens can gain more; a single number is used for both:

    loss = - min(rho A, clamp(rho, 1 - low, 1 + high) A)      gradient: - rho A grad log rho, or 0

dual_clip=c > 1 in addition, for A < 0, where the loss above has no bound (arXiv 1912.09729; ReMA has c = 3):

    loss = - max(min(rho A, clamp(rho, ..) A), c A)           gradient: 0 beyond rho > c as well

clip=None with importance_cap=C, for tokens drawn by another policy, such as a sampler of lower precision
(truncated importance sampling, Ionides 2008; for language models Yao et al. 2025, who multiply the clipped
surrogate by it: here only REINFORCE has it, and it is refused together with a clip):

    loss = - w A log pi, w = min(rho, C) a constant            gradient: - w A grad log pi

With importance_bound=b in addition, rho counts as 1 where |rho - 1| is at most b, so that rounding alone has
no effect.

grad log rho is grad log pi of the token; for a turn or a normalised sequence it is the mean over its tokens,
for a sequence their sum. While rho is 1, all forms with the same aggregation have the same gradient; ratios
of rows therefore cannot be combined with aggregation by turns.

Published forms:
  GRPO      clip=0.2, aggregation="sequence_mean"
  Dr. GRPO  clip=0.2, aggregation="constant"
  DAPO      clip=(0.2, 0.28), aggregation="token", with `drop_truncated`
  GSPO      clip=(3e-4, 4e-4), ratio_level="sequence_normalised", aggregation="sequence_mean"
  ReMA      clip=0.2, dual_clip=3.0, ratio_level="turn", aggregation="turn_mean", or "turn"; beside
            these clips the cap of the log-ratio in its code has no effect
"""

import jax
import jax.numpy as jnp

from jaxmarl_llm.losses.checks import check_choice, check_shapes
from jaxmarl_llm.losses.ratio import (
    OF_ROWS,
    RATIO_LEVELS,
    Clip,
    Units,
    clip_range,
    constant_advantages,
    log_ratio,
    unit_values_at_tokens,
    units,
)
from jaxmarl_llm.losses.sums import AGGREGATIONS, OF_TURNS, SumCount, aggregate
from jaxmarl_llm.losses.turns import in_turns
from jaxmarl_llm.utils.errors import UserError


def policy_gradient(
    logprobs_BL,
    advantages_B,
    mask_BL,
    *,
    behaviour_logprobs_BL=None,
    clip: Clip | None = None,
    dual_clip: float | None = None,
    ratio_level: str = "token",
    importance_cap: float | None = None,
    importance_bound: float = 0.0,
    aggregation: str = "sequence",
    token_budget: int | None = None,
    turns_BL=None,
    num_turns: int | None = None,
) -> SumCount:
    """Sum the policy-gradient loss of some completions: log-probs [..., L] -> SumCount.

    With rho = pi/mu of a token, a turn or a row, and mu the policy that drew the tokens:

        clip=None                    - A log pi                                   - A grad log pi
        importance_cap=C             - w A log pi,  w = min(rho, C) a constant    - w A grad log pi
        clip=(low, high)             - S,  S = min(rho A, clamp(rho, 1 - low, 1 + high) A)
                                                                                  - rho A grad log rho, or 0
        .. and dual_clip=c, A < 0    - max(S, c A)                                .. and 0 beyond rho > c

    with the gradient on the right. Sources: REINFORCE (Williams 1992; MAGRPO, arXiv 2508.04652), PPO
    (1707.06347), clip-higher (DAPO, 2503.14476), dual clip (1912.09729), truncated importance weights
    (Ionides 2008). The module lists published forms.

    Args:
      logprobs_BL: log pi of the sampled tokens, differentiable.
      advantages_B: one advantage per row [...] or token [..., L]; no gradient flows through it. With the
        ratio of a turn or sequence, the advantages of its tokens are averaged.
      mask_BL: True for the tokens to train, EOS included, padding not; see `drop_truncated`.
      behaviour_logprobs_BL: log mu of the sampler; needed with clip or importance_cap, otherwise not read.
      clip: PPO's epsilon > 0, or a pair (low, high) of them, or None.
      dual_clip: c > 1, with clip only, or None.
      ratio_level: one of RATIO_LEVELS; read only with clip.
      importance_cap: C > 0, of each token's weight, or None; not together with clip.
      importance_bound: tokens with |rho - 1| up to this have the weight 1; with importance_cap only.
      aggregation, token_budget: as in `aggregate`.
      turns_BL, num_turns: integer turn of each token and how many there are, see `losses.turns`; needed at
        level "turn" and to aggregate by turns.

    Returns:
      SumCount; `mean()` is the loss.

    >>> now, then, mask = jnp.log(jnp.array([[0.6]])), jnp.log(jnp.array([[0.5]])), [[True]]
    >>> round(float(policy_gradient(now, [2.0], mask, behaviour_logprobs_BL=then, clip=0.1).mean()), 4)
    -2.2

    Raises:
      ValueError: unknown option, shapes that differ, a clip, dual clip or cap outside its range, options
        that exclude each other, or one without the behaviour log-probs or turns that it needs.
    """
    _check_options(clip, dual_clip, importance_cap, behaviour_logprobs_BL)
    if importance_bound and (importance_cap is None or not importance_bound > 0):
        raise UserError(
            f"importance_bound={importance_bound}; allowed: 0, or a number above 0 together with importance_cap"
        )
    check_choice("ratio_level", ratio_level, RATIO_LEVELS)
    check_choice("aggregation", aggregation, AGGREGATIONS)
    if clip is not None and ratio_level in OF_ROWS and aggregation in OF_TURNS:
        rest = ", ".join(name for name in AGGREGATIONS if name not in OF_TURNS)
        raise UserError(f"aggregation={aggregation!r}; with ratio_level={ratio_level!r} allowed: {rest}")
    turns = {"turns_BL": turns_BL, "num_turns": num_turns}
    mask_BL = in_turns(mask_BL, **turns)
    check_shapes(mask_BL, logprobs_BL=logprobs_BL)
    if clip is None:
        weights = importance_cap, importance_bound
        scores_BL = _reinforce(logprobs_BL, advantages_B, mask_BL, behaviour_logprobs_BL, weights)
    else:
        ratios = units(logprobs_BL, behaviour_logprobs_BL, advantages_B, mask_BL, ratio_level, **turns)
        scores_BU = _surrogate(ratios, clip, dual_clip)
        scores_BL = unit_values_at_tokens(scores_BU, mask_BL, ratio_level, turns_BL)
    return aggregate(-scores_BL, mask_BL, aggregation, token_budget=token_budget, **turns)


def _reinforce(logprobs_BL, advantages_B, mask_BL, behaviour_logprobs_BL, weights) -> jax.Array:
    """A log pi of each token, times min(rho, C) if C is given and rho is out of bounds; ``weights``: both."""
    importance_cap, importance_bound = weights
    advantages_BX = constant_advantages(advantages_B, mask_BL)
    scores_BL = jnp.where(mask_BL, jnp.asarray(logprobs_BL, jnp.float32), 0.0) * advantages_BX
    if importance_cap is not None:
        ratio_BL = jnp.exp(log_ratio(logprobs_BL, behaviour_logprobs_BL, mask_BL))
        if importance_bound:
            ratio_BL = jnp.where(jnp.abs(ratio_BL - 1.0) > importance_bound, ratio_BL, 1.0)
        scores_BL *= jax.lax.stop_gradient(jnp.minimum(ratio_BL, importance_cap))
    return scores_BL


def _surrogate(ratios: Units, clip: Clip, dual_clip: float | None) -> jax.Array:
    """Compute PPO's surrogate objective per unit; 0 where there is no token."""
    ratio_BU, advantages_BU = jnp.exp(ratios.log_ratio_BU), ratios.advantages_BU
    clamped_BU = jnp.clip(ratio_BU, *clip_range(clip))
    scores_BU = jnp.minimum(ratio_BU * advantages_BU, clamped_BU * advantages_BU)
    if dual_clip is not None:
        bounded_BU = jnp.maximum(scores_BU, dual_clip * advantages_BU)
        scores_BU = jnp.where(advantages_BU < 0, bounded_BU, scores_BU)
    return scores_BU


def _check_options(clip, dual_clip, importance_cap, behaviour_logprobs_BL) -> None:
    if isinstance(clip, tuple | list) and len(clip) != 2:
        raise UserError(f"clip={clip}; allowed: None, a number above 0, or a pair (low, high) of them")
    for name, value in (("clip", clip), ("importance_cap", importance_cap)):
        parts = value if isinstance(value, tuple | list) else (value,)
        if value is not None and (behaviour_logprobs_BL is None or not all(part > 0 for part in parts)):
            raise UserError(
                f"{name}={value}; allowed: None, or a number above 0 together with behaviour_logprobs_BL"
            )
    if clip is not None and importance_cap is not None:
        raise UserError(f"importance_cap={importance_cap} together with clip={clip}; allowed is one of them")
    if dual_clip is not None and (clip is None or not dual_clip > 1):
        raise UserError(f"dual_clip={dual_clip}; allowed: None, or a number above 1 together with clip")
