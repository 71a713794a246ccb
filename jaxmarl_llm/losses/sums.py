"""Sums with their counts, masks, and the divisors of losses over tokens."""

import flax.struct
import jax
import jax.numpy as jnp

from jaxmarl_llm.losses.checks import check_choice, check_shapes
from jaxmarl_llm.losses.turns import in_turns, turn_sums
from jaxmarl_llm.utils.errors import UserError

AGGREGATIONS = ("sequence", "token", "sequence_mean", "constant", "turn", "turn_mean")
OF_TURNS = ("turn", "turn_mean")  # those that need turns


@flax.struct.dataclass
class SumCount:
    """A mean before its division: `sum` and `count`, float32, scalars unless a loss documents a shape.

    >>> float((SumCount(6.0, 2.0) + SumCount(2.0, 2.0)).mean())
    2.0
    """

    sum: jax.Array
    count: jax.Array

    @classmethod
    def zeros(cls, *shape: int) -> "SumCount":
        """An empty sum, to start from."""
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    def __add__(self, other: "SumCount") -> "SumCount":
        return SumCount(self.sum + other.sum, self.count + other.count)

    def mean(self) -> jax.Array:
        """sum / count, and 0 where nothing was counted."""
        return self.sum / jnp.maximum(self.count, 1.0)


def length_mask(lengths_B, num_tokens: int) -> jax.Array:
    """Mark the first `lengths_B` of `num_tokens` positions: integers [...] -> bool [..., L].

    >>> length_mask([1, 0], 2).tolist()
    [[True, False], [False, False]]
    """
    lengths_B1 = jnp.asarray(lengths_B)[..., None]
    shape_BL = (*lengths_B1.shape[:-1], num_tokens)
    return jax.lax.broadcasted_iota(jnp.int32, shape_BL, lengths_B1.ndim - 1) < lengths_B1


def drop_truncated(mask_BL, finished_B) -> jax.Array:
    """The mask without truncated rows: bool [..., L], bool [...] -> bool [..., L].

    Such a row adds nothing to a loss's sum and count. Its reward, or a missing reward, reflects its length
    instead of its quality (overlong filtering of DAPO, arXiv 2503.14476). Advantages are not changed: its
    return is still part of its group's baseline. The row's tokens get no gradient.

    >>> drop_truncated([[True, True], [True, False]], [False, True]).tolist()
    [[False, False], [True, False]]
    """
    mask_BL, finished_B = jnp.asarray(mask_BL, bool), jnp.asarray(finished_B, bool)
    check_shapes(mask_BL, finished_B=finished_B)
    return mask_BL & finished_B[..., None]


def masked_sum(values_BL, mask_BL) -> jax.Array:
    """Sum over the unmasked tokens of each row: [..., L], bool [..., L] -> float32 [...]; 0 without tokens.

    gradient: 1 to the unmasked tokens, 0 to the others.

    >>> masked_sum([[1.0, 2.0, float("nan")]], [[True, True, False]]).tolist()
    [3.0]
    """
    mask_BL = jnp.asarray(mask_BL, bool)
    check_shapes(mask_BL, values_BL=values_BL)
    return jnp.sum(jnp.where(mask_BL, jnp.asarray(values_BL, jnp.float32), 0.0), axis=-1)


def masked_mean(values_BL, mask_BL) -> jax.Array:
    """Mean over the unmasked tokens of each row: [..., L], bool [..., L] -> float32 [...]; 0 without tokens.

    gradient: 1 / (number of unmasked tokens of the row) to each of them, 0 to the others.

    >>> masked_mean([[1.0, 2.0, float("nan")]], [[True, True, False]]).tolist()
    [1.5]
    """
    tokens_B = jnp.sum(jnp.asarray(mask_BL, bool), axis=-1, dtype=jnp.float32)
    return masked_sum(values_BL, mask_BL) / jnp.maximum(tokens_B, 1.0)


def aggregate(
    values_BL,
    mask_BL,
    aggregation: str = "token",
    *,
    token_budget: int | None = None,
    turns_BL=None,
    num_turns: int | None = None,
) -> SumCount:
    """Sum of the unmasked values and its divisor: [..., L], bool [..., L] -> SumCount.

    sequence       sum over tokens, count rows: every token weighs the same, long rows weigh more (MAGRPO)
    token          sum over tokens, count tokens: `sequence` divided by the mean length (DAPO, 2503.14476)
    sequence_mean  mean over the row's tokens, count rows: tokens of long rows weigh less (GRPO, 2402.03300)
    constant       sum over tokens, count rows times `token_budget`, such as the longest length allowed: like
                   `sequence`, in the units of `token`, for any lengths (Dr. GRPO, 2503.20783)
    turn           mean over each turn's tokens, count turns (ReMA, 2503.09501)
    turn_mean      mean over the row's turns of the means over their tokens, count rows (ReMA's trajectory)

    The last two need `turns_BL` and `num_turns`, see `losses.turns`. Rows and turns without tokens do not
    count.

    >>> loss = aggregate([[1.0, 2.0], [4.0, 0.0]], [[True, True], [True, False]], "sequence_mean")
    >>> float(loss.sum), float(loss.count)  # 1.5 + 4
    (5.5, 2.0)

    Raises:
      ValueError: unknown aggregation, shapes that differ, or a missing budget or turns.
    """
    check_choice("aggregation", aggregation, AGGREGATIONS)
    if aggregation == "constant" and not (token_budget or 0) > 0:
        raise UserError(f"token_budget={token_budget}; aggregation='constant' allows a number above 0")
    if aggregation in OF_TURNS and turns_BL is None:
        raise UserError(f"turns_BL=None; aggregation={aggregation!r} needs turns_BL and num_turns")
    mask_BL = in_turns(mask_BL, turns_BL, num_turns)
    check_shapes(mask_BL, values_BL=values_BL)
    values_BL = jnp.where(mask_BL, jnp.asarray(values_BL, jnp.float32), 0.0)
    tokens_B = jnp.sum(mask_BL, axis=-1, dtype=jnp.float32)
    rows_B = (tokens_B > 0).astype(jnp.float32)
    if aggregation in OF_TURNS:
        tokens_BT = turn_sums(mask_BL, turns_BL, num_turns)
        row_sums_B = jnp.sum(turn_sums(values_BL, turns_BL, num_turns) / jnp.maximum(tokens_BT, 1.0), axis=-1)
        turns_B = jnp.sum(tokens_BT > 0, axis=-1, dtype=jnp.float32)
    else:
        row_sums_B, turns_B = jnp.sum(values_BL, axis=-1), rows_B
    # The divisor of a row's own sum, and the row's contribution to the count.
    divisor_B = {"sequence_mean": tokens_B, "turn_mean": turns_B}.get(aggregation, rows_B)
    count_B = {"token": tokens_B, "turn": turns_B}.get(aggregation, rows_B)
    scale = token_budget if aggregation == "constant" else 1.0
    return SumCount(jnp.sum(row_sums_B / jnp.maximum(divisor_B, 1.0)), scale * jnp.sum(count_B))
