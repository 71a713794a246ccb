"""Measure which tokens the loss reaches, on the packed batch that the update reads.

The last layer's features at a token do nothing but predict the token after it. So the gradient of the loss to
these features is not 0 exactly where the next token is trained. `Perturbed` adds zeros to the features, and the
gradient to the zeros is read; the loss, the packing and the model are those of training.
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
    """A policy whose features are moved by ``perturbation``, of their shape."""

    def __init__(self, policy, perturbation: jax.Array):
        self._policy, self._perturbation = policy, perturbation

    def apply(self, variables, *inputs, method: str):
        """`Policy.apply`."""
        found = self._policy.apply(variables, *inputs, method=method)
        if method != "hidden":
            return found
        hidden, cache = found
        return hidden + self._perturbation.astype(hidden.dtype), cache


class Perturbations(NamedTuple):
    """Per token, of packed completions (N, M, W), prompts (N, B, P) and shared beginnings (N, C) or None."""

    rows: Any
    prompts: Any
    shared: Any


class MicrobatchGradients(NamedTuple):
    """The findings on one micro-batch: its rows, the gradient's norm at every token, and the loss's
    diagnostics.
    """

    rows: Rows
    norms: Perturbations
    seen: Diagnostics


def microbatch_gradients(
    stack, config: LossConfig, base, trainable, packed: Packed, most: int = 32
) -> Iterator[MicrobatchGradients]:
    """The first ``most`` micro-batches that hold something; arrays lie on the host, with agent axis N."""
    if packed.agents is not None:
        stack, trainable = stack.subset(packed.agents, trainable)
    steps, _, shards = packed.prompts_XNDBP.shape[:3]
    for x, d, z in np.ndindex(steps, shards, packed.rows.tokens_MW.shape[1]):
        rows = jax.tree.map(lambda leaf, x=x, d=d, z=z: leaf[x, z, :, d], packed.rows)
        if most and rows.lengths_MS.any():
            prompts = packed.prompts_XNDBP[x, :, d], packed.prompt_lengths_XNDB[x, :, d]
            found = _measure(stack, config, base, trainable, packed.shared, prompts, rows)
            yield MicrobatchGradients(rows, *jax.device_get(found))
            most -= 1


@functools.partial(jax.jit, static_argnames=("stack", "config"))
def _measure(stack, config: LossConfig, base, trainable, shared, prompts, rows: Rows):
    """Norms of the gradient at every token, as `Perturbations`, and `Diagnostics`, both with agent axis N."""
    variables, axes = stack.bind(base, trainable)
    reference, _ = stack.bind_reference(base)
    one = functools.partial(_one_agent, stack, config, reference)

    def loss(perturbations: Perturbations):
        each = jax.vmap(one, in_axes=(axes, 0, 0, 0, 0))
        sums_N, seen = each(variables, shared, prompts, rows, perturbations)
        return sums_N.sum(), seen

    def zeros(tokens):
        return jnp.zeros((*tokens.shape, stack.policy.config.d_model))

    begins = None if shared is None else zeros(shared.tokens_NC)
    grads, seen = jax.grad(loss, has_aux=True)(
        Perturbations(zeros(rows.tokens_MW), zeros(prompts[0]), begins)
    )
    return jax.tree.map(lambda x: jnp.linalg.norm(x, axis=-1), grads), seen


def _one_agent(
    stack, config: LossConfig, reference, variables, shared, prompts, rows: Rows, perturbations: Perturbations
):
    """Loss of one agent on some rows, and its `Diagnostics`."""

    def read(policies, variables):
        begins, rest = policies
        block = shared and prefill_shared(begins, variables, shared.tokens_NC, shared.lengths_N)
        return prefill(rest, variables, *prompts, block)

    begins = None if shared is None else Perturbed(stack.policy, perturbations.shared[None])
    own = read((begins, Perturbed(stack.policy, perturbations.prompts)), variables)
    before = read((stack.policy, stack.policy), reference) if config.reads_reference else own
    perturbed = dataclasses.replace(stack, policy=Perturbed(stack.policy, perturbations.rows))
    total, (_, _, seen) = agent_loss(perturbed, config, variables, reference, (own, before), rows)
    return total, seen
