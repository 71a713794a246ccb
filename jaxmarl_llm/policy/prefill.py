"""Prefill: run prompts through the model once, the common beginning of an agent's prompts as a single row."""

import jax
import jax.numpy as jnp

from jaxmarl_llm.policy.cache import Block, Cache


def prompt_positions(lengths_B: jax.Array, width: int) -> jax.Array:
    """Positions (B, P) of left-padded prompts: 0 at the first real token, negative on padding."""
    return jnp.arange(width)[None, :] - (width - lengths_B)[:, None]


def prefill_shared(policy, variables, tokens_C, length) -> Block:
    """Keys and values of one agent's shared beginning, as a block of one row."""
    slots_C = jnp.arange(tokens_C.shape[0])
    positions_C = jnp.where(slots_C < length, slots_C, -1)
    _, cache = policy.apply(variables, tokens_C[None], positions_C[None], method="hidden")
    return cache.recent


def prefill(policy, variables, prompts_BP, lengths_B, shared: Block | None = None):
    """Features (B, D) of the last prompt token and the cache of the whole prompts, of one agent.

    ``shared`` are the keys and values of the tokens before ``prompts_BP``, the same in every row. The prompts are
    padded on the left; for a kernel, which knows lengths and no masks, they are turned here.
    """
    positions_BP = prompt_positions(lengths_B, prompts_BP.shape[1])
    if policy.kernel is not None:
        prompts_BP, positions_BP = _padded_on_the_right((prompts_BP, positions_BP), lengths_B)
    positions_BP = jnp.where(positions_BP >= 0, positions_BP + _shared_length(shared), -1)
    before = None if shared is None else Cache.after(shared)
    hidden, cache = policy.apply(variables, prompts_BP, positions_BP, before, method="hidden")
    if policy.kernel is None:
        return hidden[:, -1], cache
    return jnp.take_along_axis(hidden, lengths_B[:, None, None] - 1, axis=1)[:, 0], cache


def _padded_on_the_right(arrays_BP, lengths_B: jax.Array):
    """Left-padded arrays with their padding behind what it was in front of."""
    width = arrays_BP[0].shape[1]
    from_BP = (jnp.arange(width)[None] + width - lengths_B[:, None]) % width
    return [jnp.take_along_axis(x_BP, from_BP, axis=1) for x_BP in arrays_BP]


def _shared_length(shared: Block | None) -> jax.Array:
    """Tokens of a shared beginning."""
    return jnp.int32(0) if shared is None else shared.positions_BS.max() + 1
