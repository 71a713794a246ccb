"""The gradient of the policy-gradient loss for every agent of a stack, micro-batch by micro-batch.

What completions have in common is read once, and its gradient, summed over them, goes back once: what all
prompts of an agent begin with, then every prompt, then the completions, packed (see `packing`). The samples
attend to those prefixes exactly as they do in the sampler, so that log-probabilities agree.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from jaxmarl_llm import comlrl_compat, diagnostics, losses, packing
from jaxmarl_llm.cache import Block, Cache
from jaxmarl_llm.choice import SamplingParams
from jaxmarl_llm.packing import Batch, Packed, Rows
from jaxmarl_llm.prompts import Shared, read_prompts, read_shared
from jaxmarl_llm.token_scores import token_scores


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """Options of the policy-gradient loss; the defaults are MAGRPO's (arXiv 2508.04652).

    Attributes:
      sampling: how the tokens were drawn; temperature and truncation are applied to the trainer's logits too.
      clip: PPO's epsilon, or None for no importance ratio.
      ratio_level, aggregation: see `losses.policy_gradient`.
      kl_coef, kl_kind: weight and estimator of the KL term towards the reference (0 switches it off).
      entropy_coef: weight of an entropy bonus, exact, over the sampling distribution (0 switches it off).
      comlrl_compat: reproduce the reference implementation's loss with its quirks, for comparison only.
      prompts_per_microbatch, tokens_per_microbatch: prompts, and of their completions tokens of each agent,
        that are held in memory together.
    """

    sampling: SamplingParams
    clip: float | None = None
    ratio_level: str = "token"
    aggregation: str = "sequence"
    kl_coef: float = 0.0
    kl_kind: str = "k3"
    entropy_coef: float = 0.0
    comlrl_compat: bool = False
    prompts_per_microbatch: int = 1
    tokens_per_microbatch: int = 512

    def pack(self, batch: Batch) -> Packed:
        """The batch as `gradients` reads it; without groups that cannot change this loss."""
        return packing.pack(
            batch,
            prompts_per_microbatch=self.prompts_per_microbatch,
            tokens_per_microbatch=self.tokens_per_microbatch,
            silent=bool(self.kl_coef or self.entropy_coef or self.comlrl_compat),
            whole=self.comlrl_compat,
        )


def _features(policy, variables, read, rows: Rows) -> jax.Array:
    """Features (M, W, D) that predict each token of some rows; ``read`` is what `read_prompts` returned."""
    last_BD, cache = read
    prompt_M = rows.prompt_M
    lengths_B = cache.recent.positions_BS[:, -1] + 1
    positions_MW = jnp.where(rows.offsets_MW < 0, -1, lengths_B[prompt_M][:, None] + rows.offsets_MW)
    first_MW = rows.offsets_MW == 0
    segments_MW = jnp.cumsum(first_MW, axis=1)
    inputs = (rows.tokens_MW, positions_MW, cache.take(prompt_M), segments_MW)
    hidden_MWD, _ = policy.apply(variables, *inputs, method="hidden")
    return jnp.where(first_MW[..., None], last_BD[prompt_M][:, None], jnp.roll(hidden_MWD, 1, axis=1))


def _by_slot(x_MW, rows: Rows) -> jax.Array:
    """Values of each slot's tokens, (M * S, L), from those of the rows' tokens."""
    length = rows.logprobs_MSL.shape[-1]
    columns_MSL = rows.starts_MS[..., None] + jnp.arange(length)[None, None]
    columns_MX = jnp.minimum(columns_MSL, x_MW.shape[1] - 1).reshape(x_MW.shape[0], -1)
    return jnp.take_along_axis(x_MW, columns_MX, axis=1).reshape(-1, length)


def _agent_loss(stack, config: LossConfig, variables, reference, read, rows: Rows):
    """Sums of one agent: loss to descend, (SumCount, KL SumCount, Diagnostics).

    ``reference`` is the reference policy; ``read`` are the prompts as the policy and the reference read them.
    """

    def scores(variables, read, sampling, entropy_learns=False, learns=stack.mode == "full"):
        features_MWD = _features(stack.policy, variables, read, rows)
        found = token_scores(
            stack.policy,
            variables,
            features_MWD.reshape(-1, features_MWD.shape[-1]),
            rows.tokens_MW.reshape(-1),
            sampling,
            head_learns=learns,
            entropy_learns=entropy_learns,
        )
        return [_by_slot(x_T.reshape(rows.tokens_MW.shape), rows) for x_T in found]

    lengths_R, advantages_R = rows.lengths_MS.reshape(-1), rows.advantages_MS.reshape(-1)
    behaviour_RL = rows.logprobs_MSL.reshape(-1, rows.logprobs_MSL.shape[-1])
    mask_RL = losses.length_mask(lengths_R, behaviour_RL.shape[1])
    logprobs_RL, entropy_RL = scores(variables, read[0], config.sampling, config.entropy_coef > 0)
    if config.comlrl_compat:
        raw_RL, _ = scores(variables, read[0], SamplingParams(config.sampling.max_new_tokens))
        group_R = jnp.where(lengths_R > 0, jnp.repeat(rows.prompt_M, rows.lengths_MS.shape[1]), -1)
        n_groups = read[0][0].shape[0]
        pg = comlrl_compat.policy_gradient(raw_RL, advantages_R, lengths_R, group_R, num_groups=n_groups)
    else:
        pg = losses.policy_gradient(
            logprobs_RL,
            advantages_R,
            mask_RL,
            behaviour_logprobs_BL=behaviour_RL,
            clip=config.clip,
            ratio_level=config.ratio_level,
            aggregation=config.aggregation,
        )
    kl = losses.SumCount(jnp.float32(0), jnp.float32(0))
    if config.kl_coef:
        ref_RL, _ = scores(reference, read[1], config.sampling, learns=False)
        ref_RL = jax.lax.stop_gradient(ref_RL)
        kl = losses.kl_loss(logprobs_RL, ref_RL, mask_RL, kind=config.kl_kind, aggregation=config.aggregation)
    bonus = losses.aggregate(entropy_RL, mask_RL, config.aggregation)
    seen = diagnostics.diagnose(
        logprobs_RL,
        behaviour_RL,
        advantages_R,
        mask_RL,
        clip=config.clip,
        ratio_level=config.ratio_level,
        entropy_BL=jax.lax.stop_gradient(entropy_RL),
    )
    return pg.sum + config.kl_coef * kl.sum - config.entropy_coef * bonus.sum, (pg, kl, seen)


def _is_float(x) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _floats(tree) -> list[jax.Array]:
    """The leaves that have a gradient."""
    return [x for x in jax.tree.leaves(tree) if _is_float(x)]


def _with_floats(tree, floats):
    """The tree with other leaves where it has floats."""
    rest = iter(floats)
    return jax.tree.map(lambda x: next(rest) if _is_float(x) else x, tree)


def _vjp(function, *inputs):
    """A function's value, and what pulls gradients of the value's `_floats` back to the inputs."""

    def both(*inputs):
        value = function(*inputs)
        return _floats(value), value

    _, pull_back, value = jax.vjp(both, *inputs, has_aux=True)
    return value, pull_back


def _read_shared(stack, variables, axes, shared: Shared | None) -> Block | None:
    """Keys and values of every agent's shared beginning, leading axis N."""
    if shared is None:
        return None
    read = functools.partial(read_shared, stack.policy)
    return jax.vmap(read, in_axes=(axes, 0, 0))(variables, shared.tokens_NC, shared.lengths_N)


def _read_prompts(stack, variables, axes, shared: Block | None, prompts) -> tuple[jax.Array, Cache]:
    """`read_prompts` of every agent, leading axis N; ``prompts`` are tokens and lengths."""
    read = functools.partial(read_prompts, stack.policy)
    return jax.vmap(read, in_axes=(axes, 0, 0, 0))(variables, *prompts, shared)


def _zeros_like(function, *inputs):
    """Zeros in the shape of a function's value."""
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(function, *inputs))


def _add(left, right):
    """The sum of two results (gradients, (SumCount, KL SumCount, Diagnostics))."""
    (grads, (pg, kl, seen)), (more, (pg_more, kl_more, seen_more)) = left, right
    return jax.tree.map(jnp.add, grads, more), (pg + pg_more, kl + kl_more, seen.merge(seen_more))


def gradients(stack, config: LossConfig, base, trainable, packed: Packed):
    """Gradient of the mean loss per agent (leading axis N) and the merged (SumCount, KL, Diagnostics).

    Micro-batches add sums and counts and divide once, so their number does not change the result. The
    diagnostics are over the completions that the model reads (see `packing.pack`).

    Args:
      stack, config: static.
      base, trainable: parameters of the stack.
      packed: from `LossConfig.pack` of the same config.

    Raises:
      ValueError: if a KL term has no reference policy.
    """
    if config.kl_coef and base is None:
        raise ValueError(f"kl_coef={config.kl_coef} needs a reference: build the team with keep_reference")
    reference, _ = stack.bind_reference(base)
    shared_ref = _read_shared(stack, reference, None, packed.shared) if config.kl_coef else None
    shared, back_to_shared = _vjp(
        lambda trainable: _read_shared(stack, *stack.bind(base, trainable), packed.shared), trainable
    )

    def of_rows(trainable, read, read_ref, rows):
        """Gradient to the parameters and to the floats of ``read``, and the sums, of one micro-batch."""

        def loss(trainable, floats):
            variables, axes = stack.bind(base, trainable)
            per_agent = functools.partial(_agent_loss, stack, config)
            reads = (_with_floats(read, floats), read_ref)
            sums_N, aux = jax.vmap(per_agent, in_axes=(axes, None, 0, 0))(variables, reference, reads, rows)
            return sums_N.sum(), aux

        return jax.grad(loss, argnums=(0, 1), has_aux=True)(trainable, _floats(read))

    def of_prompts(prompts, rows, used):
        """Gradient to the parameters and to the floats of ``shared``, and the sums, of some prompts."""

        def read(trainable, floats):
            return _read_prompts(stack, *stack.bind(base, trainable), _with_floats(shared, floats), prompts)

        own, back_to_prompts = _vjp(read, trainable, _floats(shared))
        own_ref = _read_prompts(stack, reference, None, shared_ref, prompts) if config.kl_coef else own

        def learn(z, found):
            micro = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, z, keepdims=False), rows)
            return _add(found, of_rows(trainable, own, own_ref, micro))

        first = jax.tree.map(lambda x: x[0], rows)
        nothing = _zeros_like(of_rows, trainable, own, own_ref, first)
        (grads, through), aux = jax.lax.fori_loop(0, used, learn, nothing)
        more, through = back_to_prompts(through)
        return (jax.tree.map(jnp.add, grads, more), through), aux

    def step(found, inputs):
        *prompts, rows = inputs
        used = (rows.lengths_MS > 0).any((1, 2, 3)).sum()

        def learn(found):
            return _add(found, of_prompts(prompts, rows, used))

        return jax.lax.cond(used > 0, learn, lambda found: found, found), None

    groups = (packed.prompts_XNBP, packed.prompt_lengths_XNB, packed.rows)
    first = jax.tree.map(lambda x: x[0], groups)
    nothing = _zeros_like(of_prompts, first[:2], first[2], jnp.int32(0))
    ((grads, through), (pg, kl, seen)), _ = jax.lax.scan(step, nothing, groups)
    grads = jax.tree.map(jnp.add, grads, *back_to_shared(through))
    if not config.comlrl_compat:  # all completions count, also those that were left out
        pg = pg.replace(count=_count(packed, config.aggregation))
    divisor_N = jnp.maximum(pg.count, 1.0)
    grads = jax.tree.map(lambda g: g / divisor_N.reshape(-1, *[1] * (g.ndim - 1)), grads)
    return grads, (pg, kl, seen)


def _count(packed: Packed, aggregation: str) -> jax.Array:
    """What each agent's loss is divided by, (N,)."""

    def one(lengths_R):
        mask_RL = losses.length_mask(lengths_R, packed.rows.logprobs_MSL.shape[-1])
        return losses.aggregate(jnp.zeros(mask_RL.shape), mask_RL, aggregation).count

    return jax.vmap(one)(packed.lengths_NR)


def split_minibatches(batch: Batch, parts: int) -> list[Batch]:
    """Cut a batch into ``parts`` batches of equally many prompts, each for an update of its own."""
    size = batch.prompts_NBP.shape[1]
    if size % parts:
        raise ValueError(f"{parts} minibatches do not divide {size} prompts")

    def cut(x, i):
        step = x.shape[1] // parts
        return x[:, i * step : (i + 1) * step]

    own = batch.replace(shared=None)
    return [jax.tree.map(lambda x, i=i: cut(x, i), own).replace(shared=batch.shared) for i in range(parts)]
