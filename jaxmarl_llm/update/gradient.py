"""The gradient of the policy-gradient loss for every agent of a stack, micro-batch by micro-batch.

Text shared by several completions is read once, and its summed gradient is computed once. The order is: the
common beginning of an agent's prompts, the stems shared by some prompts, every prompt, and the packed
completions (see `packing`).
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_llm import losses
from jaxmarl_llm.policy import Block, Cache
from jaxmarl_llm.policy.prefill import prefill, prefill_shared
from jaxmarl_llm.sampling.padding import Shared
from jaxmarl_llm.sampling.stems import Stems
from jaxmarl_llm.update.agent_loss import LossConfig, agent_loss
from jaxmarl_llm.update.diagnostics import Diagnostics
from jaxmarl_llm.update.packing import Packed
from jaxmarl_llm.utils import agent_axis
from jaxmarl_llm.utils.errors import UserError


def gradients(stack, config: LossConfig, base, trainable, packed: Packed, reference=None):
    """Gradient of the weighted mean loss per agent (leading axis N) and the merged (SumCount, KL, Diagnostics).

    Micro-batches add sums and counts and divide once, so their number does not change the result. The
    diagnostics are over the completions that the model reads (see `packing.pack`).

    Args:
      stack, config: static.
      base, trainable: parameters of the stack.
      packed: from `LossConfig.pack` of the same config.
      reference: parameters of the reference policy if it is not the base (`Stack.bind_reference`).

    Raises:
      ValueError: if a KL term or a user's loss needs a reference policy and there is none.
    """
    if config.reads_reference and base is None and reference is None:
        needs = f"kl_coef={config.kl_coef}" if config.kl_coef else "a loss that names ref_logprobs_BL"
        raise UserError(f"{needs} needs a reference: build the team with keep_reference")
    if config.comlrl_compat:
        stack = dataclasses.replace(stack, policy=stack.policy.clone(pad_row_fixed=True))
    fixed = _Fixed(stack, config, base, reference)

    def read(trainable):
        return _read_shared(stack, *stack.bind(base, trainable), packed.shared)

    shared, back_to_shared = _vjp(read, trainable)
    shared_ref = None
    if config.reads_reference:
        shared_ref = _read_shared(stack, *stack.bind_reference(base, reference), packed.shared)
    begin = functools.partial(_begin_prompts, fixed, trainable, shared, shared_ref)
    of_rows = functools.partial(_of_rows, fixed, trainable)
    prompts = packed.prompts_XNDBP, packed.prompt_lengths_XNDB, packed.stems
    prompts = stack.layout.shard(prompts, None, "agent", "rows")
    rows = stack.layout.shard(packed.rows, None, None, "agent", "rows")
    used_X = (packed.rows.lengths_MS > 0).any((2, 3, 4, 5)).sum(1)

    def learn(x, totals):
        prompts_NDBP, rows_Z = _at(x, (prompts, rows))
        return _add_prompts(totals, begin(prompts_NDBP), of_rows, rows_Z, used_X[x])

    agents = len(packed.lengths_NR)
    no_sums = losses.SumCount.zeros(agents), losses.SumCount.zeros(agents), Diagnostics.zeros(agents)
    nothing = jax.tree.map(jnp.zeros_like, (trainable, _floats(shared))), no_sums
    # Prompts with something to learn come first.
    (grads, of_shared), (pg, kl, seen) = jax.lax.fori_loop(0, (used_X > 0).sum(), learn, nothing)
    grads = jax.tree.map(jnp.add, grads, *back_to_shared(of_shared))
    if not config.own_count:  # all completions count, also those not packed
        pg = pg.replace(count=_count(packed, config.division))
    divisor_N = jnp.maximum(pg.count, 1.0)
    if packed.weight_N is not None:
        divisor_N /= packed.weight_N
        pg = pg.replace(sum=pg.sum * packed.weight_N)
    grads = jax.tree.map(lambda g: g / agent_axis.along(divisor_N, g), grads)
    return grads, (pg, kl, seen)


class _Fixed(NamedTuple):
    """The arguments of `gradients` that are the same for all micro-batches."""

    stack: Any
    config: LossConfig
    base: Any
    reference: Any = None


def _begin_prompts(fixed: _Fixed, trainable, shared, shared_ref, prompts):
    """Run some prompts through the policy and the reference.

    Args:
      fixed: the arguments of `gradients`.
      trainable: parameters that learn, leading axis N.
      shared, shared_ref: the agents' shared beginnings under policy and reference, or None.
      prompts: tokens (N, D, B, P) and lengths (N, D, B), for D shards, and their stems or None.

    Returns:
      The results under policy and reference, each features (N, D, B, F) and cache (the policy's twice without
      a reference), and the function that pulls gradients of the policy's result back to ``trainable`` and to
      the floats of ``shared``.
    """
    stack, config, base, reference = fixed

    def read(trainable, floats):
        return _read_prompts(stack, *stack.bind(base, trainable), _with_floats(shared, floats), prompts)

    reading, pull = _vjp(read, trainable, _floats(shared))
    if not config.reads_reference:
        return (reading, reading), pull
    return (reading, _read_prompts(stack, *stack.bind_reference(base, reference), shared_ref, prompts)), pull


def _add_prompts(totals, readings, of_rows, rows, used):
    """Add the gradients and sums of some prompts' completions to the totals, in the same arrays.

    Args:
      totals: ((gradient of the parameters, gradient of the shared beginnings' floats), sums), see `_add`.
      readings: the result of `_begin_prompts` for the prompts.
      of_rows: `_of_rows` with its first two arguments bound.
      rows: Z micro-batches of completions, leading axes (Z, N, D).
      used: number of micro-batches, from the first, that hold completions.
    """
    reads, pull = readings
    (grads, of_shared), sums = totals

    def learn(z, carry):
        return _add(carry, of_rows(*reads, _at(z, rows)))

    nothing = jax.tree.map(jnp.zeros_like, _floats(reads[0]))
    (grads, of_reads), sums = jax.lax.fori_loop(0, used, learn, ((grads, nothing), sums))
    return jax.tree.map(jnp.add, (grads, of_shared), pull(of_reads)), sums


def _of_rows(fixed: _Fixed, trainable, read, read_ref, rows):
    """Compute gradients and sums of one micro-batch.

    Args:
      fixed: the arguments of `gradients`.
      trainable: parameters that learn, leading axis N.
      read, read_ref: features and cache of the prompts under policy and reference, leading axes (N, D).
      rows: packed completions, leading axes (N, D).

    Returns:
      The gradients (of the parameters, of the floats of ``read``), and the sums (SumCount (N,), KL SumCount
      (N,), Diagnostics (N,)), added up over the shards.
    """
    stack, config, base, own_reference = fixed
    reference, ref_axes = stack.bind_reference(base, own_reference)

    def loss(trainable, floats):
        variables, axes = stack.bind(base, trainable)
        reads = (_with_floats(read, floats), read_ref)
        per_shard = _over_shards(functools.partial(agent_loss, stack, config), (None, None, 0, 0))
        sums_ND, aux = jax.vmap(per_shard, in_axes=(axes, ref_axes, 0, 0))(variables, reference, reads, rows)
        return sums_ND.sum(), aux

    grads, (pg, kl, seen) = jax.grad(loss, argnums=(0, 1), has_aux=True)(trainable, _floats(read))
    pg, kl = jax.tree.map(lambda x_ND: x_ND.sum(1), (pg, kl))
    of_params, of_reads = grads
    return (stack.layout.constrain(of_params), of_reads), (pg, kl, jax.vmap(Diagnostics.merge_all)(seen))


def _count(packed: Packed, division: dict) -> jax.Array:
    """Compute the divisor of each agent's loss, (N,)."""

    def one(lengths_R):
        mask_RL = losses.length_mask(lengths_R, packed.rows.logprobs_MSL.shape[-1])
        return losses.aggregate(jnp.zeros(mask_RL.shape), mask_RL, **division).count

    return jax.vmap(one)(packed.lengths_NR)


def _read_shared(stack, variables, axes, shared: Shared | None) -> Block | None:
    """Keys and values of every agent's shared beginning, leading axis N."""
    if shared is None:
        return None
    read = functools.partial(prefill_shared, stack.policy)
    return jax.vmap(read, in_axes=(axes, 0, 0))(variables, shared.tokens_NC, shared.lengths_N)


def _read_prompts(stack, variables, axes, shared: Block | None, prompts) -> tuple[jax.Array, Cache]:
    """`prefill` of every agent and shard, leading axes N, D; ``prompts`` are tokens, lengths and stems."""

    def one(variables, tokens_BP, lengths_B, stems: Stems | None, shared: Block | None):
        before = (shared,)
        if stems is not None:
            before = prefill(stack.policy, variables, stems.tokens_NSQ, stems.lengths_NS, *before)[1].blocks
        return prefill(stack.policy, variables, tokens_BP, lengths_B, *before)

    read = _over_shards(one, (None, 0, 0, 0, None))
    return jax.vmap(read, in_axes=(axes, 0, 0, 0, 0))(variables, *prompts, shared)


def _over_shards(function, in_axes: tuple):
    """``function`` for each shard: a `jax.vmap`, or a plain call where there is only one shard."""

    def of_all(*inputs):
        mapped = [x for x, axis in zip(inputs, in_axes, strict=True) if axis == 0]
        if jax.tree.leaves(mapped)[0].shape[0] > 1:
            return jax.vmap(function, in_axes)(*inputs)
        pairs = zip(inputs, in_axes, strict=True)
        one = [jax.tree.map(lambda leaf: leaf.squeeze(0), x) if axis == 0 else x for x, axis in pairs]
        return jax.tree.map(lambda leaf: leaf[None], function(*one))

    return of_all


def _at(i, tree):
    """Element i of the leading axis."""
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, i, keepdims=False), tree)


def _add(left, right):
    """The sum of two results (gradients, (SumCount, KL SumCount, Diagnostics))."""
    (grads, (pg, kl, seen)), (more, (pg_more, kl_more, seen_more)) = left, right
    return jax.tree.map(jnp.add, grads, more), (pg + pg_more, kl + kl_more, seen.merge(seen_more))


def _is_float(x) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _floats(tree) -> list[jax.Array]:
    """The leaves that have a gradient."""
    return [x for x in jax.tree.leaves(tree) if _is_float(x)]


def _with_floats(tree, floats):
    """The tree with its float leaves replaced."""
    rest = iter(floats)
    return jax.tree.map(lambda x: next(rest) if _is_float(x) else x, tree)


def _vjp(function, *inputs):
    """A function's value, and the function that pulls gradients of its `_floats` back to the inputs."""

    def floats_and_value(*inputs):
        value = function(*inputs)
        return _floats(value), value

    _, pull_back, value = jax.vjp(floats_and_value, *inputs, has_aux=True)
    return value, pull_back
