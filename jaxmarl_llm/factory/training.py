"""Build sampling parameters, loss, optimizer and learning rates from a config."""

import dataclasses
from collections.abc import Collection

import numpy as np

from jaxmarl_llm import update
from jaxmarl_llm.config import agent_settings, workload
from jaxmarl_llm.config.loss import CAP, corrects, off_policy
from jaxmarl_llm.config.systems import SFT
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.update import agent_loss, custom_loss
from jaxmarl_llm.utils.errors import UserError


def sampling_params(config) -> SamplingParams:
    """Each agent's sampling parameters in training and in sampled evaluation."""
    c = config.sampling
    shared = SamplingParams(c.max_new_tokens, c.temperature, c.top_k, c.top_p, c.min_p)
    own = {a: agent_settings.sampling(config, a) for a in config.team.agents}
    pairs = tuple((agent, SamplingParams(**values)) for agent, values in own.items())
    others = tuple((agent, params) for agent, params in pairs if params != shared)
    return dataclasses.replace(shared, agents=others)


def _own_distribution(params: SamplingParams) -> SamplingParams:
    """The models' own distribution, without temperature and truncation; completion limits are kept."""
    agents = tuple((agent, SamplingParams(own.max_new_tokens)) for agent, own in params.agents)
    others = tuple(pair for pair in agents if pair[1].max_new_tokens != params.max_new_tokens)
    return SamplingParams(params.max_new_tokens, agents=others)


def loss_config(config) -> agent_loss.LossConfig:
    """Options of the loss; ValueError if ``train.loss`` does not name a loss."""
    c = config.train
    if c.system == SFT:
        return agent_loss.LossConfig(
            _own_distribution(sampling_params(config)),
            aggregation="token",
            given_texts=True,
            teacher_weight=config.distil.weight,
            prompts_per_microbatch=c.prompts_per_microbatch,
            tokens_per_microbatch=c.tokens_per_microbatch,
        )
    return agent_loss.LossConfig(
        sampling_params(config),
        clip=(c.clip, c.clip_high) if c.clip_high else c.clip or None,
        dual_clip=c.dual_clip or None,
        ratio_level=c.ratio_level,
        aggregation=c.aggregation,
        drop_truncated=c.drop_truncated,
        kl_coef=c.kl_coef,
        kl_kind=c.kl_kind,
        entropy_coef=c.entropy_coef,
        importance_cap=CAP if corrects(config) else c.importance_cap or None,
        importance_bound=c.importance_bound if corrects(config) else 0.0,
        comlrl_compat=c.comlrl_compat,
        custom=_custom_loss(config) if c.loss else None,
        prompts_per_microbatch=c.prompts_per_microbatch,
        later_prompts_per_microbatch=c.later_prompts_per_microbatch,
        tokens_per_microbatch=c.tokens_per_microbatch,
    )


def _custom_loss(config):
    """The function that ``train.loss`` names."""
    function = custom_loss.resolve(config.train.loss)
    if off_policy(config) and "behaviour_logprobs_BL" not in custom_loss.named_arguments(function):
        raise UserError(
            f"train.loss {config.train.loss!r} does not name behaviour_logprobs_BL: with train.overlap, "
            "train.minibatches above 1, sampling.dtype other than policy.dtype, or engine.kind other than local, "
            "it must correct for the sampler's being another policy"
        )
    return function


def build_optimizer(config):
    """The optimizer of one agent, with the largest learning rate of all agents (see `rates`)."""
    c = config.train
    return update.make_optimizer(
        lr=max(_learning_rates(config).values(), default=c.lr),
        steps=workload.updates(config, c.steps),
        warmup=c.warmup,
        decay=c.decay,
        weight_decay=c.weight_decay,
        grad_clip=c.grad_clip,
        moment_dtype=c.moment_dtype,
    )


def _learning_rates(config) -> dict[str, float]:
    """Learning rate of every agent that learns."""
    agents = [agent for agent in config.team.agents if agent_settings.trainable(config, agent)]
    return {agent: agent_settings.value(config, agent, "lr") for agent in agents}


def rates(config, agents: tuple[str, ...], present: Collection[str] | None = None) -> update.Rates | None:
    """The agents' rates relative to `build_optimizer`; None: all of them learn at its learning rate.

    ``present``: the agents that have turns to learn from (None: all); the others do not learn.
    """
    own = _learning_rates(config)
    most = max(own.values(), default=0.0)
    learns_N = [agent in own and (present is None or agent in present) for agent in agents]
    scale_N = [own.get(agent, most) / most if most else 1.0 for agent in agents]
    if all(learns_N) and all(scale == 1 for scale in scale_N):
        return None
    return update.Rates(np.array(learns_N), np.array(scale_N, np.float32))
