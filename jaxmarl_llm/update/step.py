"""One update of every agent of a stack: gradients, then a step of the optimizer."""

import dataclasses
import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxmarl_llm.update import diagnostics
from jaxmarl_llm.update.agent_loss import LossConfig
from jaxmarl_llm.update.diagnostics import Diagnostics
from jaxmarl_llm.update.gradient import gradients
from jaxmarl_llm.update.optimizer import Rates, TrainState, descend
from jaxmarl_llm.update.packing import Packed


@functools.partial(jax.jit, static_argnames=("stack", "config", "optimizer"), donate_argnames=("state",))
def train_step(
    stack,
    config: LossConfig,
    optimizer,
    base,
    state: TrainState,
    batches: tuple[Packed, ...],
    more: Any = None,
    rates: Rates | None = None,
    reference: Any = None,
):
    """Update every agent of the stack once, on the sum of the mean losses of all batches.

    Args:
      stack, config, optimizer: static.
      base: frozen variables of the stack.
      state: donated.
      batches: from `LossConfig.pack`; one per turn of the rollout, or several for different agents.
      more: gradient of another loss of the same parameters; it is added to that of the batches and clipped
        together with it. The metric ``loss`` does not include that loss.
      rates: for agents with different learning rates, or that do not learn; None: all learn at the same rate.
      reference: parameters of the reference policy if it is not the base (`Stack.bind_reference`).

    Returns:
      The new state and a dict of metrics, each of shape (N,).
    """
    of_batch = functools.partial(_gradients, stack, config, base, state.trainable, reference)
    grads, losses_N, kl, seen = _sum_over([_of_alike(of_batch, alike) for alike in _alike(batches)])
    if more is not None:
        grads = jax.tree.map(jnp.add, grads, more)
    new, metrics, updates = descend(optimizer, state, grads, losses_N, rates)
    metrics |= seen.values()
    if config.custom is not None:
        del metrics["clip_fraction"]  # a user's loss may clip in another way
    if config.importance_bound:
        metrics["outside_bound"] = seen.outside_bound.mean()
    if config.given_texts:
        metrics = {name: values for name, values in metrics.items() if name not in diagnostics.OF_SAMPLER}
    metrics["update_norm"] = jax.vmap(optax.tree.norm)(updates)
    if config.kl_coef:
        metrics["kl"] = kl.mean()
    return stack.layout.constrain(new), stack.layout.replicate(metrics)


def _alike(batches: tuple[Packed, ...]) -> list[list[Packed]]:
    """Group adjacent batches with the same shapes, such as those of later turns of conversations."""
    groups: list[list[Packed]] = []
    for batch in batches:
        if groups and _form(groups[-1][0]) == _form(batch):
            groups[-1].append(batch)
        else:
            groups.append([batch])
    return groups


def _form(batch: Packed):
    """All properties of a batch that its compiled program depends on."""
    leaves, tree = jax.tree.flatten(batch)
    return tree, [(x.shape, x.dtype) for x in leaves]


def _of_alike(of_batch, batches: list[Packed]):
    """Gradient, mean loss (N,), KL and diagnostics of batches of one form, compiled once for any number."""
    if len(batches) == 1:
        grads, (pg, kl, seen) = of_batch(batches[0])
        return grads, pg.mean(), kl, seen
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)
    grads, (pg, kl, _) = jax.eval_shape(of_batch, batches[0])
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (grads, pg.sum, kl))

    def add(total, batch):
        grads, (pg, kl, seen) = of_batch(batch)
        return _sum_over([total, (grads, pg.mean(), kl, seen)]), None

    return jax.lax.scan(add, (*zeros, Diagnostics.zeros(pg.sum.shape[0])), stacked)[0]


def _gradients(stack, config: LossConfig, base, trainable, reference, batch: Packed):
    """`gradients` for all agents of the stack, 0 for agents that are not in the batch."""
    config = config if batch.sampling is None else dataclasses.replace(config, sampling=batch.sampling)
    if batch.agents is None:
        return gradients(stack, config, base, trainable, batch, reference)
    index = jnp.array([stack.agents.index(agent) for agent in batch.agents])
    part_stack, part_trainable = stack.subset(batch.agents, trainable)
    part_reference = None if reference is None else stack.subset(batch.agents, reference)[1]
    results = gradients(part_stack, config, base, part_trainable, batch, part_reference)

    def among_all(x):
        return jnp.zeros((len(stack.agents), *x.shape[1:]), x.dtype).at[index].set(x)

    return jax.tree.map(among_all, results)


def _sum_over(results):
    """Sums over several results of `_of_alike`; diagnostics are merged."""
    grads, losses_N, kls, seen = zip(*results, strict=True)
    added = jax.tree.map(lambda *parts: functools.reduce(jnp.add, parts), *grads)
    merged = functools.reduce(lambda a, b: a.merge(b), seen)
    return added, sum(losses_N), functools.reduce(operator.add, kls), merged
