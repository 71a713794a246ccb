"""Whether a server draws from the policy that is trained here: its log-probabilities compared with our own.

A server may have another base model, or other adapters (or none) under the right name, and still answer in
the right form. But then it cannot give the log-probabilities that our own policy gives to its tokens.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.rollout.engines.answers import Completion
from jaxmarl_llm.rollout.engines.types import Published
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import bucket
from jaxmarl_llm.update.token_scores import token_scores


class Read(NamedTuple):
    """A completion, its prompt, and the address of the server that drew it."""

    server: str
    prompt: Sequence[int]
    completion: Completion


def gaps(
    published: Published, rows: Mapping[str, Sequence[Read]], params: SamplingParams, number: int
) -> dict[tuple[str, str], float]:
    """By (agent, server), the mean distance in nats between the server's and our token log-probabilities.

    Servers are compared separately: a single wrong server could pass in a mean over all.

    Args:
      published: the parameters that should have drawn the completions.
      rows: by agent, some sampled completions, 1 to ``number``.
      params: how they were drawn.
      number: texts of each agent that are read, so all calls use one program; copies fill missing texts.
    """
    agents = tuple(rows)
    stack, trainable = published.member.stack.subset(agents, published.trainable)
    pairs = [rows[agent][k % len(rows[agent])] for agent in agents for k in range(number)]
    width = bucket(max(len(read.prompt) + len(read.completion.tokens_L) for read in pairs))
    tokens_RW = np.zeros((len(pairs), width), np.int32)
    for r, (_, prompt, completion) in enumerate(pairs):
        tokens_RW[r, : len(prompt) + len(completion.tokens_L)] = [*prompt, *completion.tokens_L]
    tokens_NKW = tokens_RW.reshape(len(agents), number, width)
    own_NKW = jax.device_get(own_logprobs(stack, published.member.base, trainable, tokens_NKW, params))
    own_RW = own_NKW.reshape(len(pairs), width - 1)
    distances: dict[tuple[str, str], list[np.ndarray]] = {}
    for r, (server, prompt, completion) in enumerate(pairs):
        agent, first, length = agents[r // number], len(prompt) - 1, len(completion.tokens_L)
        if r % number < len(rows[agent]):  # a copy does not count
            distance_L = np.abs(own_RW[r, first : first + length] - completion.logprobs_L)
            distances.setdefault((agent, server), []).append(distance_L)
    return {of: float(np.concatenate(parts).mean()) for of, parts in distances.items()}


@functools.partial(jax.jit, static_argnames=("stack", "params"))
def own_logprobs(stack, base, trainable, tokens_NKW, params: SamplingParams) -> jax.Array:
    """Log-probability of each token except the first, given those before it, (N, K, W - 1), as it is sampled.

    One text of each agent at a time, so it needs no more memory than a prompt in an update.

    Args:
      stack, base, trainable: as in `sampling.generate`.
      tokens_NKW: K texts of each agent, padded on the right.
      params: temperature and truncation.
    """
    variables, axes = stack.bind(base, trainable)
    positions_W = jnp.arange(tokens_NKW.shape[-1])

    def of_text(variables, tokens_W):
        features_BWD, _ = stack.policy.apply(variables, tokens_W[None], positions_W[None], method="hidden")
        inputs = stack.policy, variables, features_BWD[0, :-1], tokens_W[1:], params
        return token_scores(*inputs, head_learns=False)[0]

    def of_agents(tokens_NW):
        return jax.vmap(of_text, in_axes=(axes, 0))(variables, tokens_NW)

    return jax.lax.map(of_agents, tokens_NKW.swapaxes(0, 1)).swapaxes(0, 1)
