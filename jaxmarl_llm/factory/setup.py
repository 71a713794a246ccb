"""From a config to objects. Below this file nothing knows the ConfigDict."""

import dataclasses
import json
import logging
import math
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import config_dict

from jaxmarl_llm import evaluation, sharding, update, weights
from jaxmarl_llm import team as team_lib
from jaxmarl_llm.config import (
    agent_settings,
    checks,
    loss_checks,
    preference_checks,
    remote,
    sft_checks,
    warm_up_checks,
    workload,
)
from jaxmarl_llm.config.common import base_config
from jaxmarl_llm.factory import built_models, chat_options, protocols, rollouts
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.update import agent_loss, custom_loss

STREAMS = (
    "adapters",
    "rollout",
    "eval",
    "random_model",
    "critics",
    "counterfactual",
    "preferences",
    "search",
    "tests",
    "fidelity",
    "test",
    "report",
    "demonstrations",
)


def stream(config, name: str) -> jax.Array:
    """The named random key of a run; streams of one seed never meet."""
    return jax.random.fold_in(jax.random.key(config.seed), STREAMS.index(name))


def batch_ids(config, items, step: int) -> list[int]:
    """Items of iteration ``step`` (from 0), at random; none comes again before all that may come have come.

    With ``train.grade_every`` = n only items of the lowest grade may come in the first n iterations, only
    those of the two lowest in the next n, and so on. The order follows from the seed alone, so the cursor is
    the step itself.
    """
    size, every = config.train.prompts, config.train.grade_every
    grade_of = [getattr(item, "grade", 0) for item in items]
    grades = sorted(set(grade_of)) if every else [math.inf]
    order, come, epoch = [], set(), 0
    while len(order) < (step + 1) * size:
        stage = len(order) // (every * size) if every else 0
        last = stage >= len(grades) - 1
        room = (step + 1 if last else (stage + 1) * every) * size - len(order)
        shuffled = np.random.default_rng((config.seed, epoch)).permutation(len(items)).tolist()
        fresh = [i for i in shuffled if i not in come and grade_of[i] <= grades[-1 if last else stage]]
        order += fresh[:room]
        come.update(fresh[:room])
        if len(fresh) <= room:
            come, epoch = set(), epoch + 1
    return order[step * size : (step + 1) * size]


def layout(config, devices=None) -> sharding.Layout:
    """Where a run's arrays lie, on all devices or on these; ValueError if ``mesh`` needs another number."""
    c = config.mesh
    if c.agent * c.data * c.model == 1 and jax.process_count() == 1:
        return sharding.ONE_DEVICE  # the first one, if there are more
    return sharding.Layout(sharding.make_mesh(c.agent, c.data, c.model, devices), c.fsdp)


def load_model(config, name: str, on_host: bool = False) -> weights.LoadedModel:
    """A model of the team by name, with float32 parameters, NumPy arrays if ``on_host``.

    Its tokenizer writes chats as ``model_options`` says. ValueError, naming the config's field, for one that
    cannot be loaded or has no tokenizer.
    """
    if name in built_models.BUILDERS:
        seed = (config.seed, STREAMS.index("random_model"))
        model = built_models.BUILDERS[name](config, seed, on_host)
        return model.replace(tokenizer=chat_options.apply(config, model.tokenizer))
    dtype, remat = jnp.dtype(config.policy.dtype), config.policy.remat
    field = "team.models" if config.team.models else "model"
    try:
        model = weights.load(name, compute_dtype=dtype, remat=remat, on_host=on_host)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error
    if model.tokenizer is None:
        raise ValueError(f"{field}: {name!r} has no tokenizer files; an agent needs one")
    return model.replace(tokenizer=chat_options.apply(config, model.tokenizer))


def build_team(config, devices=None, speakers=None) -> team_lib.Team:
    """Load every model once and build the team, on all devices or on these.

    ``speakers`` are asked in place of models of ours (`remote_agents.build`); without them nobody can be.
    """
    c, names = config.team, remote.names(config)
    experts = dict.fromkeys(filter(remote.is_remote, names)) | (speakers or {})
    where = layout(config, devices)  # before anything is loaded: it may be refused
    on_host = where.mesh is not None
    models = {name: load_model(config, name, on_host) for name in dict.fromkeys(names) if name not in experts}
    chat_options.check_arguments(config, {name: model.tokenizer for name, model in models.items()})
    for name, model in models.items():
        needed = config.sampling.max_prompt_tokens + agent_settings.longest(config)
        if needed > model.policy.config.max_positions:
            raise ValueError(
                f"sampling.max_prompt_tokens + max_new_tokens = {needed} is more than the context of "
                f"{name!r}, {model.policy.config.max_positions} tokens"
            )
    return team_lib.build(
        models,
        dict(zip(c.agents, names, strict=True)),
        stream(config, "adapters"),
        mode=c.mode,
        rank=c.rank,
        alpha=c.alpha,
        targets=tuple(c.targets),
        keep_reference=c.mode == "full"
        and not warm_up_checks.begins(config)
        and (loss_config(config).reads_reference or preference_checks.needs_reference(config)),
        stop=tuple(config.sampling.stop),
        sampling_dtype=config.sampling.dtype or None,
        layout=where,
        experts=experts,
    )


def sampling_params(config) -> SamplingParams:
    """How tokens are drawn in training and sampled evaluation, by each agent."""
    c = config.sampling
    shared = SamplingParams(c.max_new_tokens, c.temperature, c.top_k, c.top_p, c.min_p)
    own = {a: agent_settings.sampling(config, a) for a in config.team.agents}
    pairs = tuple((agent, SamplingParams(**values)) for agent, values in own.items())
    others = tuple((agent, params) for agent, params in pairs if params != shared)
    return dataclasses.replace(shared, agents=others)


def loss_config(config) -> agent_loss.LossConfig:
    """Options of the loss; ValueError if ``train.loss`` names what cannot be one."""
    c = config.train
    if c.system == sft_checks.SYSTEM:
        return agent_loss.LossConfig(
            SamplingParams(config.sampling.max_new_tokens),  # the model's own distribution
            aggregation="token",
            given_texts=True,
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
        importance_cap=c.importance_cap or None,
        comlrl_compat=c.comlrl_compat,
        custom=_custom_loss(config) if c.loss else None,
        prompts_per_microbatch=c.prompts_per_microbatch,
        tokens_per_microbatch=c.tokens_per_microbatch,
    )


def _custom_loss(config):
    """The function that ``train.loss`` names."""
    function = custom_loss.resolve(config.train.loss)
    if loss_checks.off_policy(config) and "behaviour_logprobs_BL" not in custom_loss.asks(function):
        raise ValueError(
            f"train.loss {config.train.loss!r} does not name behaviour_logprobs_BL: with train.overlap, "
            "train.minibatches above 1, or sampling.dtype other than policy.dtype, it must correct for the "
            "sampler's being another policy"
        )
    return function


def evaluate(
    config,
    team: team_lib.Team,
    trainables,
    task,
    items,
    samples: int,
    key: jax.Array,
    step: int = 0,
    memory=(),
    **options,
) -> evaluation.Evaluations:
    """`evaluation.evaluate` with the run's sampling settings and protocol.

    ``key``: where samples come from. A run has streams of its own for validation and for the test (see
    `run_evaluations`); every other command takes "report", so that it measures with draws that chose nothing.
    ``memory``: lessons of earlier problems, see `protocols.build`. ``options``: others of
    `evaluation.evaluate`.
    """
    return evaluation.evaluate(
        team,
        trainables,
        task,
        items,
        key,
        params=sampling_params(config),
        samples=samples,
        protocol=lambda drawn: rollouts.RoomForPrograms(protocols.build(config, task, team, drawn, memory=memory)),
        max_prompt_tokens=config.sampling.max_prompt_tokens,
        long_prompts=config.sampling.long_prompts,
        step=step,
        **options,
    )


def check_prompts(config, team: team_lib.Team, *tasks) -> None:
    """Refuse, or warn about, prompts longer than ``sampling.max_prompt_tokens``, before compilation."""
    limit = config.sampling.max_prompt_tokens
    for task in tasks:
        for item in task.items:
            for agent, messages in task.prompts(item).items():
                if team[agent].remote:
                    continue  # what it takes is not known here
                length = len(team[agent].tokenizer.encode_chat(messages))
                if length > limit:
                    text = f"the prompt of agent {agent!r} for {item.task_id} has {length} tokens"
                    if config.sampling.long_prompts == "error":
                        advice = "raise sampling.max_prompt_tokens or set sampling.long_prompts='truncate'"
                        raise ValueError(f"{text}, the limit is {limit}; {advice}")
                    logging.warning("%s: it will be cut on the left to %d", text, limit)


def prompt_sizes(config, team: team_lib.Team, tasks_of_run):
    """What the prompts of a run's tasks are padded to, of each member of the team, see `prompts.Sizes`."""
    c = config.sampling
    every = [(task, range(len(task.items))) for task in tasks_of_run]
    limits = c.max_prompt_tokens, c.long_prompts
    return evaluation.prompt_sizes(team, every, config.train.prompts, *limits)


def build_optimizer(config):
    """The optimizer of one agent, at the greatest learning rate of all of them (see `rates`)."""
    c = config.train
    return update.make_optimizer(
        lr=max(_learning_rates(config).values(), default=c.lr),
        steps=workload.updates(config, c.steps),
        warmup=c.warmup,
        decay=c.decay,
        weight_decay=c.weight_decay,
        grad_clip=c.grad_clip,
    )


def _learning_rates(config) -> dict[str, float]:
    """Learning rate of every agent that learns."""
    agents = [agent for agent in config.team.agents if agent_settings.trainable(config, agent)]
    return {agent: agent_settings.value(config, agent, "lr") for agent in agents}


def rates(config, agents: tuple[str, ...]) -> update.Rates | None:
    """How some agents learn beside `build_optimizer`; None: all of them, at its learning rate."""
    own = _learning_rates(config)
    most = max(own.values(), default=0.0)
    learns_N = [agent in own for agent in agents]
    scale_N = [own.get(agent, most) / most if most else 1.0 for agent in agents]
    if all(learns_N) and all(scale == 1 for scale in scale_N):
        return None
    return update.Rates(np.array(learns_N), np.array(scale_N, np.float32))


def load_run(workdir) -> config_dict.ConfigDict:
    """The config of a run folder; ValueError if there is none, or one that this version cannot use.

    Its mesh is that of the run if there are as many devices here, else one device.
    """
    path = pathlib.Path(workdir) / "config.json"
    if not path.is_file():
        raise ValueError(f"{path.parent} holds no run: config.json is missing")
    config = config_dict.ConfigDict(json.loads(path.read_text()))
    checks.validate(config, str(path))
    if math.prod(config.mesh[axis] for axis in sharding.AXES) != jax.device_count():
        config.mesh = base_config().mesh
    return config


def new_workdir() -> str:
    """A fresh folder name under runs/."""
    return str(pathlib.Path("runs") / time.strftime("%Y%m%d-%H%M%S"))
