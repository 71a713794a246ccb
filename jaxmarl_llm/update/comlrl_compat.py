"""The loss of CoMLRL 1.4.3's MAGRPO trainer, quirks included. For comparison only; train with `losses`.

Differences from the paper, all from the package's code (comlrl/trainers/reinforce/magrpo.py) and checked by
benchmarks/comlrl_parity.py (the pad token's row by a test):
  - completions of a node (one prompt of one agent) are padded to the longest, and pad tokens are trained;
  - the model reads prompt + completion[:-1], and its logits are shortened once more, so the last position of
    the padded length has no logits: the EOS (or last token) of the longest completion is not trained;
  - with full copies, torch's embedding layer gives the pad token's row no gradient when it is read as an
    input (``padding_idx``); a tied head still trains it (`Policy.pad_row_fixed`);
  - advantages are divided by the group's population standard deviation, max(std, 1e-6), by default.
Not reproduced: a NaN or infinite loss becomes the constant 0.1 there, a silent no-op update; here it stays
NaN, so that the training loop can stop. A node with equal rewards gets advantages of exactly 0 here, but
rounding noise there.
"""

import jax
import jax.numpy as jnp

from jaxmarl_llm.credit import group_advantage, segment_max, segment_sum
from jaxmarl_llm.losses import SumCount, length_mask


def padded_lengths(lengths_R, group_R, *, num_groups: int) -> jax.Array:
    """Longest completion of each row's node, to which it is padded: [R], keys [R] -> int32 [R].

    A row whose key is outside [0, num_groups) is padding of the batch and has length 0.
    """
    longest_J = segment_max(lengths_R, group_R, num_groups=num_groups)
    group_R = jnp.where(jnp.asarray(group_R) < 0, num_groups, jnp.asarray(group_R))
    return longest_J.at[group_R].get(mode="fill", fill_value=0).astype(jnp.int32)


def token_mask(lengths_R, group_R, *, num_groups: int, num_tokens: int) -> jax.Array:
    """Tokens that CoMLRL 1.4.3 trains: the first C - 1 positions of every row, C the node's padded length.

    Args:
      lengths_R: tokens of each completion, EOS included.
      group_R: integer key of the node each row belongs to; keys outside [0, num_groups) mark no row.
      num_groups: number of nodes (static).
      num_tokens: L, columns of the mask; at least the longest completion.

    Returns:
      bool [R, L]. Positions from `lengths_R` on are pad tokens: the token array must hold the pad id
      there, and the policy must have read them (every position up to C attends causally to all before it,
      pads too).
    """
    return length_mask(padded_lengths(lengths_R, group_R, num_groups=num_groups) - 1, num_tokens)


def advantages(returns_R, group_R, *, num_groups: int) -> jax.Array:
    """`(R - mean) / max(std, 1e-6)` per node, population std: returns [R], keys [R] -> float32 [R]."""
    return group_advantage(returns_R, group_R, num_groups=num_groups, baseline="mean", normalise=True)


def policy_gradient(logprobs_RL, advantages_R, lengths_R, group_R, *, num_groups: int) -> SumCount:
    """Mean over nodes of `(1/G) sum_g - A_g sum_l log pi(token_gl)`, l over `token_mask`.

    Rows of a node with nothing to train (all completions one token long) are left out of G; such a node
    contributes 0 and still counts. All rows of a node must come in one call.

    Args:
      logprobs_RL: log pi of completion and pad tokens at temperature 1, whatever the sampler's.
      advantages_R: one per row, e.g. from `advantages`; no gradient flows through them.
      lengths_R, group_R, num_groups: as in `token_mask`.

    Returns:
      SumCount with count = nodes that have rows; `mean()` is the loss of a CoMLRL minibatch.
    """
    mask_RL = token_mask(lengths_R, group_R, num_groups=num_groups, num_tokens=logprobs_RL.shape[-1])
    logprobs_R = jnp.sum(jnp.where(mask_RL, jnp.asarray(logprobs_RL, jnp.float32), 0.0), axis=-1)
    trained_R = jnp.any(mask_RL, axis=-1).astype(jnp.float32)
    loss_R = -jax.lax.stop_gradient(jnp.asarray(advantages_R, jnp.float32)) * logprobs_R * trained_R
    rows_J = segment_sum(trained_R, group_R, num_groups=num_groups)
    loss_J = segment_sum(loss_R, group_R, num_groups=num_groups) / jnp.maximum(rows_J, 1.0)
    present_J = segment_sum(jnp.ones_like(loss_R), group_R, num_groups=num_groups) > 0
    return SumCount(jnp.sum(loss_J), jnp.sum(present_J, dtype=jnp.float32))
