"""AdamW with a learning-rate schedule, its state for every agent of a stack, and one step of it.

Everything is computed in float32. Parameters and moments stored in bfloat16 are rounded stochastically
(`dtypes.rounded`): with 8 bits, rounding to the nearest number would lose most updates.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxmarl_llm.sharding import ONE_DEVICE, Layout
from jaxmarl_llm.utils import agent_axis, dtypes
from jaxmarl_llm.utils.errors import UserError

LEAF = 7919  # distance between the seeds of one update's arrays


@struct.dataclass
class TrainState:
    """The training state: parameters and optimizer state with agent axis N; ``step`` counts updates.

    For S runs side by side, whose agents follow each other on the agent axis, ``step`` is (S,).
    """

    step: jax.Array
    trainable: Any
    opt_state: Any


class Rates(NamedTuple):
    """Learning rates of the agents of a stack, if they differ.

    Attributes:
      learns_N: if False, the agent's parameters and optimizer state stay the same, bit for bit.
      scale_N: the agent's learning rate as a multiple of the optimizer's. AdamW's step, weight decay
        included, is proportional to the learning rate, and its state does not depend on it. So this equals
        a separate optimizer.
    """

    learns_N: jax.Array
    scale_N: jax.Array


@functools.cache  # equal arguments give the same object: programs that hold it are compiled once
def make_optimizer(
    *,
    lr: float,
    steps: int,
    warmup: int = 0,
    decay: str = "constant",
    weight_decay: float = 0.0,
    grad_clip: float = 1.0,
    moment_dtype: str = "float32",
) -> optax.GradientTransformation:
    """AdamW with a warm-up, an optional linear or cosine decay over ``steps``, and clipping by global norm.

    ``moment_dtype``: float32 or bfloat16, the dtype of the stored state. The transformation is for one agent;
    `train_step` maps it over the agent axis, so clipping is per agent.
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
    return _in_float32(optax.chain(clip, optax.adamw(schedule, weight_decay=weight_decay)), moment_dtype)


def _in_float32(optimizer: optax.GradientTransformation, moment_dtype: str) -> optax.GradientTransformation:
    """The optimizer, computing in float32 for any input dtype, with its state stored in ``moment_dtype``."""

    def init(params):
        return dtypes.cast(optimizer.init(dtypes.cast(params, jnp.float32)), moment_dtype)

    def update(grads, state, params=None):
        # AdamW and its schedule count their updates.
        steps = next(x for x in jax.tree.leaves(state) if not dtypes.is_float(x))
        updates, new = optimizer.update(*dtypes.cast((grads, state, params), jnp.float32))
        return updates, _rounded(new, state, steps)

    return optax.GradientTransformation(init, update)


def _rounded(tree, like, seed):
    """The tree with every float leaf in the dtype of the same leaf in ``like``, see `dtypes.rounded`."""
    leaves, structure = jax.tree.flatten(tree)
    pairs = enumerate(zip(leaves, jax.tree.leaves(like), strict=True))
    # Leaves of equal shapes get different random numbers.
    new = [dtypes.rounded(x, y.dtype, seed + LEAF * i) if dtypes.is_float(x) else x for i, (x, y) in pairs]
    return jax.tree.unflatten(structure, new)


def _rounded_by_run(tree, like, step):
    """`_rounded` for the agents of one run, or of several side by side: each as if it were alone."""
    if step.ndim == 0:
        return _rounded(tree, like, step)
    apart = [jax.tree.map(lambda x: x.reshape(step.size, -1, *x.shape[1:]), each) for each in (tree, like)]
    new = jax.vmap(_rounded)(*apart, step)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), new)


def init_state(
    trainable: Any, optimizer: optax.GradientTransformation, layout: Layout = ONE_DEVICE
) -> TrainState:
    """A fresh state, sharded by ``layout``; ``trainable``, already sharded, has a leading agent axis."""
    opt_state = layout.init(jax.vmap(optimizer.init), trainable)
    return TrainState(layout.init(lambda: jnp.int32(0)), trainable, opt_state)


def descend(optimizer, state: TrainState, grads, losses_N, rates: Rates | None = None):
    """The state after one optimizer step, the metrics ``loss`` and ``grad_norm`` (N,), and the updates.

    If a loss or gradient norm is not finite, the state of all agents of the run stays as it was, so that it
    can be saved. ``rates``: see `train_step`.
    """
    grads = dtypes.cast(grads, jnp.float32)
    if rates is not None:  # another loss may have gradients for an agent that does not learn
        grads = _of_agents(rates.learns_N, grads, jax.tree.map(jnp.zeros_like, grads))
    updates, opt_state = jax.vmap(optimizer.update)(grads, state.opt_state, state.trainable)
    if rates is not None:
        updates = jax.tree.map(lambda u: u * agent_axis.along(rates.scale_N, u).astype(u.dtype), updates)
        updates = _of_agents(rates.learns_N, updates, jax.tree.map(jnp.zeros_like, updates))
        opt_state = _of_agents(rates.learns_N, opt_state, state.opt_state)
    moved = jax.tree.map(jnp.add, dtypes.cast(state.trainable, jnp.float32), updates)
    trainable = _rounded_by_run(moved, state.trainable, state.step)
    metrics = {"loss": losses_N, "grad_norm": jax.vmap(optax.tree.norm)(grads)}
    finite_N = jnp.isfinite(metrics["grad_norm"]) & jnp.isfinite(metrics["loss"])
    new = TrainState(state.step + 1, trainable, opt_state)
    return _where_finite(finite_N, new, state), metrics, updates


def _where_finite(finite_N, new: TrainState, old: TrainState) -> TrainState:
    """The new state of every run whose agents are all finite, else its old one."""
    if new.step.ndim == 0:
        finite = finite_N.all()
        return jax.tree.map(lambda after, before: jnp.where(finite, after, before), new, old)
    finite_S = finite_N.reshape(new.step.size, -1).all(1)
    finite_N = jnp.repeat(finite_S, finite_N.size // new.step.size)
    parts = [(s.trainable, s.opt_state) for s in (new, old)]
    return TrainState(jnp.where(finite_S, new.step, old.step), *_of_agents(finite_N, *parts))


def _of_agents(chosen_N, new, old):
    """Leaves (N, ..) of ``new`` for the chosen agents, of ``old`` for the others."""
    return jax.tree.map(lambda x, y: jnp.where(agent_axis.along(chosen_N, x), x, y), new, old)
