"""One optimizer step for every agent of a stack."""

import dataclasses
import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxmarl_llm.sharding import ONE_DEVICE, Layout
from jaxmarl_llm.update import diagnostics
from jaxmarl_llm.update.agent_loss import LossConfig
from jaxmarl_llm.update.packing import Packed
from jaxmarl_llm.update.policy_gradient import gradients
from jaxmarl_llm.utils import agent_axis
from jaxmarl_llm.utils.errors import UserError


@struct.dataclass
class TrainState:
    """The state of learning: parameters and optimizer state with agent axis N; ``step`` counts updates."""

    step: jax.Array
    trainable: Any
    opt_state: Any


class Rates(NamedTuple):
    """Learning rates of the agents of a stack, where they differ.

    Attributes:
      learns_N: False: the agent's parameters and optimizer state stay, bit for bit.
      scale_N: its learning rate as a multiple of the optimizer's. AdamW's step is proportional to the
        learning rate, weight decay included, and its state does not depend on it: so this equals an
        optimizer of its own.
    """

    learns_N: jax.Array
    scale_N: jax.Array


def make_optimizer(
    *,
    lr: float,
    steps: int,
    warmup: int = 0,
    decay: str = "constant",
    weight_decay: float = 0.0,
    grad_clip: float = 1.0,
) -> optax.GradientTransformation:
    """AdamW with a warm-up, an optional linear or cosine decay over ``steps``, and clipping by global norm.

    The transformation is for one agent; `train_step` maps it over the agent axis, so clipping is per agent.
    """
    shapes = {
        "constant": lambda: optax.constant_schedule(lr),
        "linear": lambda: optax.linear_schedule(lr, 0.0, max(steps - warmup, 1)),
        "cosine": lambda: optax.cosine_decay_schedule(lr, max(steps - warmup, 1)),
    }
    if decay not in shapes:
        raise UserError(f"train.decay={decay!r} is not one of {tuple(shapes)}")
    schedule = optax.join_schedules(
        [optax.linear_schedule(lr / max(warmup, 1), lr, warmup), shapes[decay]()], [warmup]
    )
    clip = optax.clip_by_global_norm(grad_clip) if grad_clip > 0 else optax.identity()
    return optax.chain(clip, optax.adamw(schedule, weight_decay=weight_decay))


def init_state(
    trainable: Any, optimizer: optax.GradientTransformation, layout: Layout = ONE_DEVICE
) -> TrainState:
    """A fresh state, placed as ``layout`` says; ``trainable``, placed already, has a leading agent axis."""
    opt_state = layout.init(jax.vmap(optimizer.init), trainable)
    return TrainState(layout.init(lambda: jnp.int32(0)), trainable, opt_state)


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
    """Update every agent of the stack once, by the sum of the mean losses of all batches.

    Args:
      stack, config, optimizer: static.
      base: frozen variables of the stack.
      state: donated.
      batches: from `LossConfig.pack`; one per turn of the rollout, or several of different agents.
      more: the gradient of another loss of the same parameters, added to that of the batches and clipped
        together with it. The metric ``loss`` does not include that loss.
      rates: of agents that learn at different rates, or not at all; None: all learn alike.
      reference: parameters of the reference policy where it is not the base (`Stack.bind_reference`).

    Returns:
      The new state and a dict of metrics, each of shape (N,).
    """
    grads, losses_N, kl, seen = _sum_over(
        [_gradients(stack, config, base, state.trainable, batch, reference) for batch in batches]
    )
    if more is not None:
        grads = jax.tree.map(jnp.add, grads, more)
    new, metrics, updates = descend(optimizer, state, grads, losses_N, rates)
    metrics |= seen.values()
    if config.custom is not None:
        del metrics["clip_fraction"]  # a loss of the user may clip otherwise
    if config.given_texts:
        metrics = {name: values for name, values in metrics.items() if name not in diagnostics.OF_SAMPLER}
    metrics["update_norm"] = jax.vmap(optax.tree.norm)(updates)
    if config.kl_coef:
        metrics["kl"] = kl.mean()
    return stack.layout.constrain(new), stack.layout.replicate(metrics)


def descend(optimizer, state: TrainState, grads, losses_N, rates: Rates | None = None):
    """The state after one optimizer step, the metrics ``loss`` and ``grad_norm`` (N,), and the updates.

    If a loss or gradient norm is not finite, the state stays as it was, so that it can be saved. ``rates`` as
    in `train_step`.
    """
    if rates is not None:  # another loss may reach parameters of an agent that does not learn
        grads = _where_learning(rates, grads, jax.tree.map(jnp.zeros_like, grads))
    updates, opt_state = jax.vmap(optimizer.update)(grads, state.opt_state, state.trainable)
    if rates is not None:
        updates = jax.tree.map(lambda u: u * agent_axis.along(rates.scale_N, u).astype(u.dtype), updates)
        updates = _where_learning(rates, updates, jax.tree.map(jnp.zeros_like, updates))
        opt_state = _where_learning(rates, opt_state, state.opt_state)
    trainable = optax.apply_updates(state.trainable, updates)
    metrics = {"loss": losses_N, "grad_norm": jax.vmap(optax.tree.norm)(grads)}
    finite = jnp.isfinite(metrics["grad_norm"]).all() & jnp.isfinite(metrics["loss"]).all()
    new = TrainState(state.step + 1, trainable, opt_state)
    new = jax.tree.map(lambda after, before: jnp.where(finite, after, before), new, state)
    return new, metrics, updates


def _where_learning(rates: Rates, new, old):
    """Leaves (N, ..) of ``new`` for the agents that learn, of ``old`` for the others."""
    return jax.tree.map(lambda x, y: jnp.where(agent_axis.along(rates.learns_N, x), x, y), new, old)


def _gradients(stack, config: LossConfig, base, trainable, batch: Packed, reference):
    """`gradients` for all agents of the stack, 0 for those that are not in the batch."""
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
    """Sums over several results of `gradients`: gradients, mean losses (N,); the rest is merged."""
    grads = jax.tree.map(lambda *parts: functools.reduce(jnp.add, parts), *[grads for grads, _ in results])
    pgs, kls, seen = zip(*[aux for _, aux in results], strict=True)
    merged = functools.reduce(lambda a, b: a.merge(b), seen)
    return grads, sum(pg.mean() for pg in pgs), functools.reduce(operator.add, kls), merged
