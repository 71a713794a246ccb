"""How many problems an evaluation answers at a time: as many as fit into memory, by the training's plan."""

import jax.numpy as jnp

from jaxmarl_llm.policy import Policy
from jaxmarl_llm.sharding import Layout, cuts

ROWS_PER_BATCH = 96  # most completions of an agent: more hardly increase the speed
# Share of the memory left by parameters and optimizer: activations, logits and copies need some too.
SHARE = 0.5


def token_bytes(policy: Policy, devices: int) -> float:
    """Bytes of one token's keys and values on one of the devices that share the heads, for ``policy``."""
    c = policy.config
    heads = c.n_kv_heads / (devices if c.n_kv_heads % devices == 0 else 1)
    return 2 * c.n_layers * heads * c.head_dim * jnp.dtype(policy.dtype).itemsize


def cache_bytes(
    policy: Policy, layout: Layout, agents: int, rows: tuple[int, int], tokens: tuple[int, int]
) -> float:
    """Bytes on one device of all keys and values that a call of the sampler holds.

    Args:
      policy: the policy as used for sampling.
      layout: the stack's layout.
      agents: number of agents that answer.
      rows: numbers of prompts and of completions of each agent.
      tokens: numbers of tokens of a prompt and of a completion.
    """
    parts = cuts(layout, agents)
    slots = sum(parts.of_rows(number) * length for number, length in zip(rows, tokens, strict=True))
    return agents / parts.agent * slots * token_bytes(policy, cuts(layout, 1).model)


def items_that_fit(
    item_bytes: float, training_bytes: float, held_bytes: float, limit: float | None, samples: int
) -> int:
    """Problems per batch: for `ROWS_PER_BATCH` completions, or fewer if their caches do not fit; at least 1.

    Args:
      item_bytes: the largest cache of one problem's answers in any turn, on one device.
      training_bytes: the largest cache of the training's sampler, which is known to fit.
      held_bytes: parameters and optimizer, on one device.
      limit: bytes that programs may use; None: unknown, as on a CPU.
      samples: answers to a problem, the greedy one included.

    >>> items_that_fit(2.0, 5.0, 80.0, 100.0, samples=8)  # half of 20 for 5 problems, of the 12 of 96 completions
    5
    """
    most = max(1, ROWS_PER_BATCH // samples)
    if limit is None or not item_bytes:  # a stack that does not answer
        return most
    room = max(training_bytes, SHARE * (limit - held_bytes))
    return max(1, min(most, int(room // item_bytes)))
