"""Sums with their counts, masks, and what a loss over tokens is divided by."""

import flax.struct
import jax
import jax.numpy as jnp

from jaxmarl_llm.losses.checks import check_choice, check_shapes

AGGREGATIONS = ("sequence", "token", "sequence_mean")


@flax.struct.dataclass
class SumCount:
    """A mean that is not yet divided: scalar `sum`, scalar `count`, both float32."""

    sum: jax.Array
    count: jax.Array

    def __add__(self, other: "SumCount") -> "SumCount":
        return SumCount(self.sum + other.sum, self.count + other.count)

    def mean(self) -> jax.Array:
        """sum / count, and 0 where nothing was counted."""
        return self.sum / jnp.maximum(self.count, 1.0)


def length_mask(lengths_B, num_tokens: int) -> jax.Array:
    """True for the first `lengths_B` of `num_tokens` positions: integers [...] -> bool [..., L]."""
    lengths_B1 = jnp.asarray(lengths_B)[..., None]
    shape_BL = (*lengths_B1.shape[:-1], num_tokens)
    return jax.lax.broadcasted_iota(jnp.int32, shape_BL, lengths_B1.ndim - 1) < lengths_B1


def reduce_rows(row_sums_B: jax.Array, mask_BL: jax.Array, aggregation: str) -> SumCount:
    tokens_B = jnp.sum(mask_BL, axis=-1, dtype=jnp.float32)
    if aggregation == "sequence_mean":
        row_sums_B = row_sums_B / jnp.maximum(tokens_B, 1.0)
    count_B = tokens_B if aggregation == "token" else (tokens_B > 0).astype(jnp.float32)
    return SumCount(jnp.sum(jnp.where(tokens_B > 0, row_sums_B, 0.0)), jnp.sum(count_B))


def aggregate(values_BL, mask_BL, aggregation: str = "token") -> SumCount:
    """Sum of the unmasked values and what to divide it by: [..., L], bool [..., L] -> SumCount.

    sequence       sum over tokens, count rows: every token weighs the same, long rows weigh more (MAGRPO)
    token          sum over tokens, count tokens: the same direction over the mean length (DAPO, 2503.14476)
    sequence_mean  mean over the row's tokens, count rows: tokens of long rows weigh less (GRPO, 2402.03300)
    """
    check_choice("aggregation", aggregation, AGGREGATIONS)
    mask_BL = jnp.asarray(mask_BL, bool)
    check_shapes(mask_BL, values_BL=values_BL)
    values_BL = jnp.where(mask_BL, jnp.asarray(values_BL, jnp.float32), 0.0)
    return reduce_rows(jnp.sum(values_BL, axis=-1), mask_BL, aggregation)
