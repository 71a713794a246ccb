"""Prefill: run prompts through the model once; the common prefix of an agent's prompts is a single row."""

import jax
import jax.numpy as jnp

from jaxmarl_llm.policy.cache import Block, Cache


def prompt_positions(lengths_B: jax.Array, width: int) -> jax.Array:
    """Positions (B, P) of left-padded prompts: 0 at the first real token, negative on padding."""
    return jnp.arange(width)[None, :] - (width - lengths_B)[:, None]


def prefill_shared(policy, variables, tokens_C, length) -> Block:
    """Keys and values of the shared prefix of one agent's prompts, as a block of one row."""
    slots_C = jnp.arange(tokens_C.shape[0])
    positions_C = jnp.where(slots_C < length, slots_C, -1)
    _, cache = policy.apply(variables, tokens_C[None], positions_C[None], method="hidden")
    return cache.recent


def prefill(policy, variables, prompts_BP, lengths_B, *before: Block | None):
    """Features (B, D) of the last prompt token and the cache of the whole prompts, of one agent.

    ``before`` are the keys and values of the tokens before ``prompts_BP``, the earliest first, None for none;
    each row of a block of S rows serves B / S adjacent prompts. The prompts are padded on the left; a kernel
    takes lengths instead of masks, so for it the padding is moved to the right here.
    """
    blocks = tuple(block for block in before if block is not None)
    positions_BP = prompt_positions(lengths_B, prompts_BP.shape[1])
    if policy.kernel is not None:
        prompts_BP, positions_BP = _padded_on_the_right((prompts_BP, positions_BP), lengths_B)
    first_B = _tokens_before(blocks, prompts_BP.shape[0])
    positions_BP = jnp.where(positions_BP >= 0, positions_BP + first_B[:, None], -1)
    earlier = Cache.after(*blocks) if blocks else None
    hidden, cache = policy.apply(variables, prompts_BP, positions_BP, earlier, method="hidden")
    if policy.kernel is None:
        return hidden[:, -1], cache
    return jnp.take_along_axis(hidden, lengths_B[:, None, None] - 1, axis=1)[:, 0], cache


def features(policy, variables, texts_BP, lengths_B) -> jax.Array:
    """Features (B, P, D) of every token of left-padded texts, of one agent; meaningless for padding."""
    positions_BP = prompt_positions(lengths_B, texts_BP.shape[1])
    if policy.kernel is not None:
        texts_BP, positions_BP = _padded_on_the_right((texts_BP, positions_BP), lengths_B)
    positions_BP = jnp.where(positions_BP >= 0, positions_BP, -1)
    hidden_BPD, _ = policy.apply(variables, texts_BP, positions_BP, None, method="hidden")
    if policy.kernel is None:
        return hidden_BPD
    from_BP = (jnp.arange(texts_BP.shape[1])[None] + lengths_B[:, None]) % texts_BP.shape[1]
    return jnp.take_along_axis(hidden_BPD, from_BP[..., None], axis=1)


def _padded_on_the_right(arrays_BP, lengths_B: jax.Array):
    """Left-padded arrays with the padding moved to the right."""
    width = arrays_BP[0].shape[1]
    from_BP = (jnp.arange(width)[None] + width - lengths_B[:, None]) % width
    return [jnp.take_along_axis(x_BP, from_BP, axis=1) for x_BP in arrays_BP]


def _tokens_before(blocks: tuple[Block, ...], rows: int) -> jax.Array:
    """Number of tokens (B,) in the blocks before each of ``rows`` rows."""
    number_B = jnp.zeros(rows, jnp.int32)
    for block in blocks:
        number_S = block.positions_BS.max(axis=1) + 1
        number_B = jnp.maximum(number_B, jnp.repeat(number_S, rows // number_S.shape[0]))
    return number_B
