"""Importance ratios pi/mu of tokens, turns or rows, and which of them get no gradient under PPO's clip.

pi is the policy that is trained, mu the one that drew the tokens. A unit is a token, turn or row with one
ratio; a row has U of them:

level                U          ratio rho
token                L          pi/mu of the token (PPO, arXiv 1707.06347)
turn                 num_turns  exp(mean over the turn's tokens of log pi/mu) (ReMA, arXiv 2503.09501)
sequence_normalised  1          the same over all tokens of the row (GSPO, arXiv 2507.18071)
sequence             1          product over the row's tokens of pi/mu (an early form of MAGRPO)

In long rows the geometric means stay near 1, but the product does not: GSPO clips at 0.0003 and 0.0004, where
tokens are clipped at 0.2. Where every row is one turn, `turn` is `sequence_normalised`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.losses.checks import check_choice, check_shapes
from jaxmarl_llm.losses.turns import from_turns, in_turns, turn_sums
from jaxmarl_llm.utils.errors import UserError

RATIO_LEVELS = ("token", "turn", "sequence_normalised", "sequence")
OF_ROWS = ("sequence_normalised", "sequence")  # those with one ratio per row
MAX_LOG_RATIO = 20.0  # exp(20) = 5e8: finite in float32, and far outside the useful range

Clip = float | tuple[float, float]


class Units(NamedTuple):
    """Units with one importance ratio each, [..., U]: log pi/mu, advantage, and whether it has any token."""

    log_ratio_BU: jax.Array
    advantages_BU: jax.Array
    used_BU: jax.Array


def _unit_sums(values_BL, level: str, turns_BL, num_turns) -> jax.Array:
    if level == "token":
        return jnp.asarray(values_BL, jnp.float32)
    if level == "turn":
        return turn_sums(values_BL, turns_BL, num_turns)
    return jnp.sum(values_BL, axis=-1, keepdims=True, dtype=jnp.float32)


def units(
    logprobs_BL,
    behaviour_logprobs_BL,
    advantages_B,
    mask_BL,
    level: str = "token",
    *,
    turns_BL=None,
    num_turns: int | None = None,
) -> Units:
    """Log-ratios, advantages and presence of the units of a level: [..., L] -> three of [..., U].

    Log-ratios are clamped to +-20 and differentiable in `logprobs_BL`; units without tokens have 0. A unit's
    advantage is its row's, or, where advantages are [..., L], the mean of its tokens'. No gradient flows
    through it, nor through the sampler's log-probs.

    >>> ratios = units([[-1.0, -1.0]], [[-1.5, -0.5]], [2.0], [[True, True]], "sequence")
    >>> ratios.log_ratio_BU.tolist(), ratios.advantages_BU.tolist()  # 0.5 - 0.5
    ([[0.0]], [[2.0]])

    Raises:
      ValueError: unknown level, shapes that differ, or level "turn" without turns.
    """
    check_choice("ratio_level", level, RATIO_LEVELS)
    if level == "turn" and turns_BL is None:
        raise UserError("turns_BL=None; ratio_level='turn' needs turns_BL and num_turns")
    mask_BL = in_turns(mask_BL, turns_BL, num_turns)
    check_shapes(mask_BL, logprobs_BL=logprobs_BL, behaviour_logprobs_BL=behaviour_logprobs_BL)
    now_BL = jnp.where(mask_BL, jnp.asarray(logprobs_BL, jnp.float32), 0.0)
    then_BL = jnp.where(mask_BL, jnp.asarray(behaviour_logprobs_BL, jnp.float32), 0.0)
    sums_BU = _unit_sums(now_BL - jax.lax.stop_gradient(then_BL), level, turns_BL, num_turns)
    tokens_BU = _unit_sums(mask_BL, level, turns_BL, num_turns)
    if level in ("turn", "sequence_normalised"):
        sums_BU = sums_BU / jnp.maximum(tokens_BU, 1.0)
    advantages_BU = constant_advantages(advantages_B, mask_BL)
    if advantages_BU.shape == mask_BL.shape:
        advantages_BU = jnp.where(mask_BL, advantages_BU, 0.0)
        advantages_BU = _unit_sums(advantages_BU, level, turns_BL, num_turns) / jnp.maximum(tokens_BU, 1.0)
    used_BU = tokens_BU > 0
    log_ratio_BU = jnp.clip(sums_BU, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    return Units(log_ratio_BU, jnp.where(used_BU, advantages_BU, 0.0), used_BU)


def constant_advantages(advantages_B, mask_BL: jax.Array) -> jax.Array:
    """Advantages of rows [...] as [..., 1]; of tokens [..., L] unchanged: float32, without a gradient.

    >>> constant_advantages([1.0, 2.0], jnp.ones((2, 3), bool)).shape
    (2, 1)

    Raises:
      ValueError: for any other shape.
    """
    shape, allowed = np.shape(advantages_B), (mask_BL.shape[:-1], mask_BL.shape)
    if shape not in allowed:
        raise UserError(
            f"advantages_B has shape {shape}; the mask {mask_BL.shape} allows {allowed[0]} or {allowed[1]}"
        )
    constant = jax.lax.stop_gradient(jnp.asarray(advantages_B, jnp.float32))
    return constant if shape == mask_BL.shape else constant[..., None]


def unit_values_at_tokens(values_BU, mask_BL, level: str, turns_BL=None) -> jax.Array:
    """Give each token the value of its unit: `values_BU` [..., U] -> [..., L]; arbitrary at masked tokens.

    At levels with geometric means every token has the value of its unit. At level `sequence`, a product over
    the tokens, each has an equal share of it. Then a ratio near 1 has the same gradient at every level.

    >>> mask_BL = jnp.ones((1, 4), bool)
    >>> unit_values_at_tokens(jnp.array([[8.0]]), mask_BL, "sequence").tolist()
    [[2.0, 2.0, 2.0, 2.0]]
    """
    if level == "turn":
        return from_turns(values_BU, turns_BL)
    if level == "sequence":
        values_BU = values_BU / jnp.maximum(jnp.sum(mask_BL, axis=-1, keepdims=True, dtype=jnp.float32), 1.0)
    return jnp.broadcast_to(values_BU, mask_BL.shape)


def log_ratio(logprobs_BL, behaviour_logprobs_BL, mask_BL, level: str = "token", **turns) -> jax.Array:
    """Compute `log pi/mu` of every unit, clamped to +-20: [..., L] three times -> [..., U]; 0 without tokens.

    Differentiable in ``logprobs_BL``, not in the sampler's; the gradient is 0 where clamped.

    >>> log_ratio([[-1.0, -2.0]], [[-1.5, -2.5]], [[True, True]], "sequence").tolist()
    [[1.0]]

    Raises:
      ValueError: as in `units`; turns_BL and num_turns are its arguments.
    """
    zeros_B = jnp.zeros(np.shape(mask_BL)[:-1])
    return units(logprobs_BL, behaviour_logprobs_BL, zeros_B, mask_BL, level, **turns).log_ratio_BU


def clip_range(clip: Clip) -> tuple[float, float]:
    """The range (1 - low, 1 + high) of ratios that keep their gradient; `clip`: one number, or (low, high).

    >>> clip_range((0.5, 1.5))
    (0.5, 2.5)
    """
    low, high = clip if isinstance(clip, tuple | list) else (clip, clip)
    return 1.0 - low, 1.0 + high


def clipped(ratios: Units, clip: Clip, dual_clip: float | None = None) -> jax.Array:
    """Units whose ratio gets no gradient: bool [..., U], False where there is no token.

    These are rho > 1 + high with A > 0, rho < 1 - low with A < 0, and with a dual clip c > 1 also rho > c
    with A < 0. It is the rule of `policy_gradient` (PPO, arXiv 1707.06347), used for counting.

    >>> ratios = units([[0.0, 0.0]], [[-1.0, 1.0]], [1.0], [[True, True]])  # e, 1/e
    >>> clipped(ratios, 0.2).tolist()
    [[True, False]]
    """
    ratio_BU, (least, most) = jnp.exp(ratios.log_ratio_BU), clip_range(clip)
    above_BU = (ratio_BU > most) & (ratios.advantages_BU > 0)
    below_BU = ratio_BU < least
    if dual_clip is not None:
        below_BU |= ratio_BU > dual_clip
    return ratios.used_BU & (above_BU | (below_BU & (ratios.advantages_BU < 0)))
