"""Measure which tokens the loss trains, on the packed batch that the update reads.

The last layer's features at a token only predict the next token. So the gradient of the loss with respect
to these features is nonzero exactly where the next token is trained. `Perturbed` adds zeros to the features,
and the gradient with respect to these zeros is read. Loss, packing and model are those of training.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.policy.prefill import prefill, prefill_shared
from jaxmarl_llm.update import LossConfig, Packed
from jaxmarl_llm.update.agent_loss import agent_loss
from jaxmarl_llm.update.diagnostics import Diagnostics
from jaxmarl_llm.update.packing import Rows


class Perturbed:
    """A policy that adds ``perturbation``, of the same shape, to its features."""

    kernel = None  # tokens stay where they are

    def __init__(self, policy, perturbation: jax.Array):
        self._policy, self._perturbation = policy, perturbation

    def apply(self, variables, *inputs, method: str):
        """`Policy.apply`; the perturbation is added to the features that ``method`` 'hidden' returns."""
        outputs = self._policy.apply(variables, *inputs, method=method)
        if method != "hidden":
            return outputs
        hidden, cache = outputs
        return hidden + self._perturbation.astype(hidden.dtype), cache


class Perturbations(NamedTuple):
    """Values by token: packed completions (N, M, W), prompts (N, B, P), shared prefixes (N, C) or None."""

    rows: Any
    prompts: Any
    shared: Any


class MicrobatchGradients(NamedTuple):
    """One micro-batch: its rows, the norm of the gradient at every token, and the loss's diagnostics."""

    rows: Rows
    norms: Perturbations
    seen: Diagnostics


def microbatch_gradients(
    stack, config: LossConfig, base, trainable, packed: Packed, most: int = 32
) -> Iterator[MicrobatchGradients]:
    """Gradients of the first ``most`` micro-batches that hold completions, on the host, with agent axis N."""
    if packed.agents is not None:
        stack, trainable = stack.subset(packed.agents, trainable)
    stack = dataclasses.replace(stack, policy=stack.policy.clone(kernel=None))
    steps, _, shards = packed.prompts_XNDBP.shape[:3]
    for x, d, z in np.ndindex(steps, shards, packed.rows.tokens_MW.shape[1]):
        rows = jax.tree.map(lambda leaf, x=x, d=d, z=z: leaf[x, z, :, d], packed.rows)
        if most and rows.lengths_MS.any():
            prompts = packed.prompts_XNDBP[x, :, d], packed.prompt_lengths_XNDB[x, :, d]
            norms_and_diagnostics = _measure(stack, config, base, trainable, packed.shared, prompts, rows)
            yield MicrobatchGradients(rows, *jax.device_get(norms_and_diagnostics))
            most -= 1


@functools.partial(jax.jit, static_argnames=("stack", "config"))
def _measure(stack, config: LossConfig, base, trainable, shared, prompts, rows: Rows):
    """Norms of the gradient at every token, as `Perturbations`, and `Diagnostics`, both with agent axis N."""
    variables, axes = stack.bind(base, trainable)
    reference, _ = stack.bind_reference(base)
    one_agent = functools.partial(_one_agent, stack, config, reference)

    def loss(perturbations: Perturbations):
        all_agents = jax.vmap(one_agent, in_axes=(axes, 0, 0, 0, 0))
        sums_N, diagnostics = all_agents(variables, shared, prompts, rows, perturbations)
        return sums_N.sum(), diagnostics

    def zeros(tokens):
        return jnp.zeros((*tokens.shape, stack.policy.config.d_model))

    shared_zeros = None if shared is None else zeros(shared.tokens_NC)
    grads, diagnostics = jax.grad(loss, has_aux=True)(
        Perturbations(zeros(rows.tokens_MW), zeros(prompts[0]), shared_zeros)
    )
    return jax.tree.map(lambda x: jnp.linalg.norm(x, axis=-1), grads), diagnostics


def _one_agent(
    stack, config: LossConfig, reference, variables, shared, prompts, rows: Rows, perturbations: Perturbations
):
    """Loss of one agent on some rows, and its `Diagnostics`."""

    def read(policies, variables):
        shared_policy, rest = policies
        shared_block = shared and prefill_shared(shared_policy, variables, shared.tokens_NC, shared.lengths_N)
        return prefill(rest, variables, *prompts, shared_block)

    shared_policy = None if shared is None else Perturbed(stack.policy, perturbations.shared[None])
    prefilled = read((shared_policy, Perturbed(stack.policy, perturbations.prompts)), variables)
    reference_prefill = read((stack.policy, stack.policy), reference) if config.reads_reference else prefilled
    perturbed = dataclasses.replace(stack, policy=Perturbed(stack.policy, perturbations.rows))
    total, (_, _, diagnostics) = agent_loss(
        perturbed, config, variables, reference, (prefilled, reference_prefill), rows
    )
    return total, diagnostics
