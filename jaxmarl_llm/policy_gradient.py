"""The gradient of the policy-gradient loss for every agent of a stack, micro-batch by micro-batch.

The trainer reads each prompt once and lets the samples of its group attend to that prefix, exactly as the
sampler does, so that log-probabilities agree and the prompt is not recomputed G times.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_llm import comlrl_compat, diagnostics, losses
from jaxmarl_llm.cache import Block
from jaxmarl_llm.choice import SamplingParams, truncate
from jaxmarl_llm.prompts import Shared, read_prompts, read_shared, shared_length


@struct.dataclass
class Batch:
    """Samples of one stack to learn from; row r = b * G + g belongs to prompt b.

    Attributes:
      prompts_NBP, prompt_lengths_NB: left-padded prompts, or what follows ``shared`` in them.
      tokens_NRL, lengths_NR: completions, padded on the right.
      logprobs_NRL: behaviour log-probabilities of the sampler.
      advantages_NR: one per completion.
      shared: what all prompts of an agent begin with, if anything.
      agents: names of the N agents, if they are not all of their stack.
    """

    prompts_NBP: jax.Array
    prompt_lengths_NB: jax.Array
    tokens_NRL: jax.Array
    lengths_NR: jax.Array
    logprobs_NRL: jax.Array
    advantages_NR: jax.Array
    shared: Shared | None = None
    agents: tuple[str, ...] | None = struct.field(pytree_node=False, default=None)


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
      prompts_per_microbatch: prompts whose groups are held in memory together.
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


def completion_logits(policy, variables, prompts_BP, lengths_B, tokens_RL, shared=None) -> jax.Array:
    """Logits (R, L, V) that predict each completion token of one agent, every prompt read once.

    ``shared`` are the keys and values of what stands before every prompt, see `prompts.read_prompts`.
    """
    samples = tokens_RL.shape[0] // prompts_BP.shape[0]
    prompt_hidden, cache = read_prompts(policy, variables, prompts_BP, lengths_B, shared)
    first = jnp.repeat(prompt_hidden[:, None], samples, axis=0)
    if tokens_RL.shape[1] == 1:
        return policy.apply(variables, first, method="logits")
    start_R = jnp.repeat(lengths_B + shared_length(shared), samples)
    positions_RL = start_R[:, None] + jnp.arange(tokens_RL.shape[1] - 1)[None]
    hidden, _ = policy.apply(
        variables, tokens_RL[:, :-1], positions_RL, cache.fan_out(samples, None), method="hidden"
    )
    return policy.apply(variables, jnp.concatenate([first, hidden], axis=1), method="logits")


def token_logprobs(policy, variables, prompts_BP, lengths_B, tokens_RL, shared, sampling: SamplingParams):
    """Log-probabilities (R, L) of completion tokens under the sampling distribution, and the logits used."""
    logits_RLV = completion_logits(policy, variables, prompts_BP, lengths_B, tokens_RL, shared)
    logits_RLV = truncate(logits_RLV, sampling, keep_R=tokens_RL)
    return losses.token_logprobs(logits_RLV, tokens_RL), logits_RLV


def _agent_loss(stack, config: LossConfig, variables, reference, shared, batch: Batch):
    """Sums of one agent (its batch has no N axis): loss to descend, (SumCount, KL SumCount, Diagnostics).

    ``reference`` is the reference policy, ``shared`` the prompts' common beginning as the two read it.
    """
    tokens_RL = batch.tokens_NRL
    inputs = (batch.prompts_NBP, batch.prompt_lengths_NB, tokens_RL, shared[0])
    mask_RL = losses.length_mask(batch.lengths_NR, tokens_RL.shape[1])
    logprobs_RL, logits_RLV = token_logprobs(stack.policy, variables, *inputs, config.sampling)
    if config.comlrl_compat:
        n_prompts = batch.prompts_NBP.shape[0]
        group_R = jnp.repeat(jnp.arange(n_prompts), tokens_RL.shape[0] // n_prompts)
        raw_RL = losses.token_logprobs(completion_logits(stack.policy, variables, *inputs), tokens_RL)
        pg = comlrl_compat.policy_gradient(
            raw_RL, batch.advantages_NR, batch.lengths_NR, group_R, num_groups=n_prompts
        )
    else:
        pg = losses.policy_gradient(
            logprobs_RL,
            batch.advantages_NR,
            mask_RL,
            behaviour_logprobs_BL=batch.logprobs_NRL,
            clip=config.clip,
            ratio_level=config.ratio_level,
            aggregation=config.aggregation,
        )
    kl = losses.SumCount(jnp.float32(0), jnp.float32(0))
    if config.kl_coef:
        ref_RL, _ = token_logprobs(stack.policy, reference, *inputs[:3], shared[1], config.sampling)
        ref_RL = jax.lax.stop_gradient(ref_RL)
        kl = losses.kl_loss(logprobs_RL, ref_RL, mask_RL, kind=config.kl_kind, aggregation=config.aggregation)
    entropy_RL = losses.entropy(logits_RLV if config.entropy_coef else jax.lax.stop_gradient(logits_RLV))
    bonus = losses.aggregate(entropy_RL, mask_RL, config.aggregation)
    seen = diagnostics.diagnose(
        logprobs_RL,
        batch.logprobs_NRL,
        batch.advantages_NR,
        mask_RL,
        clip=config.clip,
        ratio_level=config.ratio_level,
        entropy_BL=jax.lax.stop_gradient(entropy_RL),
    )
    return pg.sum + config.kl_coef * kl.sum - config.entropy_coef * bonus.sum, (pg, kl, seen)


def _without_signal(config: LossConfig, batch: Batch) -> losses.SumCount:
    """What one agent's completions add where all advantages are 0: a sum of 0, and their count."""
    shape_RL = batch.tokens_NRL.shape
    return losses.policy_gradient(
        jnp.zeros(shape_RL),
        batch.advantages_NR,
        losses.length_mask(batch.lengths_NR, shape_RL[1]),
        aggregation=config.aggregation,
    )


def _split(batch: Batch, size: int) -> Batch:
    """Reshape (N, B, ..) and (N, R, ..) into scannable micro-batches (B / size, N, ..)."""
    n_agents, n_prompts = batch.prompts_NBP.shape[:2]
    if n_prompts % size:
        raise ValueError(f"prompts_per_microbatch={size} does not divide {n_prompts} prompts")
    chunks = n_prompts // size

    def cut(x):
        return jnp.moveaxis(x.reshape(n_agents, chunks, x.shape[1] // chunks, *x.shape[2:]), 1, 0)

    return jax.tree.map(cut, batch.replace(shared=None))


def split_minibatches(batch: Batch, parts: int) -> list[Batch]:
    """Cut a batch into ``parts`` batches of equally many prompts, each for an update of its own."""
    size = batch.prompts_NBP.shape[1]
    if size % parts:
        raise ValueError(f"{parts} minibatches do not divide {size} prompts")
    cut = _split(batch, size // parts)
    return [jax.tree.map(lambda x, i=i: x[i], cut).replace(shared=batch.shared) for i in range(parts)]


def _read_shared(stack, variables, axes, shared: Shared | None) -> Block | None:
    """Keys and values of every agent's shared beginning, leading axis N."""
    if shared is None:
        return None
    read = functools.partial(read_shared, stack.policy)
    return jax.vmap(read, in_axes=(axes, 0, 0))(variables, shared.tokens_NC, shared.lengths_N)


def gradients(stack, config: LossConfig, base, trainable, batch: Batch):
    """Gradient of the mean loss per agent (leading axis N) and the merged (SumCount, KL, Diagnostics).

    Micro-batches add sums and counts and divide once, so their number does not change the result. One in
    which every advantage is 0 has no gradient and is not run through the model, unless it is the first: the
    diagnostics are over the others.

    Raises:
      ValueError: if the micro-batches do not divide the prompts, or a KL term has no reference policy.
    """
    if config.kl_coef and base is None:
        raise ValueError(f"kl_coef={config.kl_coef} needs a reference: build the team with keep_reference")

    reference, _ = stack.bind_reference(base)

    def beginning(trainable):
        block = _read_shared(stack, *stack.bind(base, trainable), batch.shared)
        return block and (block.k_YBKSH, block.v_YBKSH), block

    # The shared beginning is read once, and its gradient, summed over the micro-batches, goes back once.
    keys_values, pull_back, block = jax.vjp(beginning, trainable, has_aux=True)
    shared_ref = _read_shared(stack, reference, None, batch.shared) if config.kl_coef else block

    def loss(learned, micro):
        trainable, keys_values = learned
        shared = block and block.replace(k_YBKSH=keys_values[0], v_YBKSH=keys_values[1])
        variables, axes = stack.bind(base, trainable)
        per_agent = functools.partial(_agent_loss, stack, config)
        in_axes = (axes, None, 0, 0)
        sums_N, aux = jax.vmap(per_agent, in_axes)(variables, reference, (shared, shared_ref), micro)
        return sums_N.sum(), aux

    learned = (trainable, keys_values)

    def accumulate(carry, micro):
        grads, (pg, kl, seen) = carry
        new, (pg_i, kl_i, seen_i) = jax.grad(loss, has_aux=True)(learned, micro)
        return jax.tree.map(jnp.add, grads, new), (pg + pg_i, kl + kl_i, seen.merge(seen_i))

    def count_only(carry, micro):
        grads, (pg, kl, seen) = carry
        return grads, (pg + jax.vmap(functools.partial(_without_signal, config))(micro), kl, seen)

    def learn(carry, numbered):
        i, micro = numbered
        if config.kl_coef or config.entropy_coef or config.comlrl_compat:
            return accumulate(carry, micro), None
        needed = (i == 0) | (micro.advantages_NR != 0).any()
        return jax.lax.cond(needed, accumulate, count_only, carry, micro), None

    chunks = _split(batch, config.prompts_per_microbatch)
    first = jax.tree.map(lambda x: x[0], chunks)
    shapes = jax.eval_shape(lambda m: jax.grad(loss, has_aux=True)(learned, m), first)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    numbers = jnp.arange(chunks.lengths_NR.shape[0])
    ((grads, through_shared), aux), _ = jax.lax.scan(learn, zeros, (numbers, chunks))
    grads = jax.tree.map(jnp.add, grads, *pull_back(through_shared))
    count_N = jnp.maximum(aux[0].count, 1.0)
    return jax.tree.map(lambda g: g / count_N.reshape(-1, *[1] * (g.ndim - 1)), grads), aux
