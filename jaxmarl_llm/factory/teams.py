"""Build the team of a config: its models, their layout on devices, and checks of its prompts."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import evaluation, sharding, weights
from jaxmarl_llm import team as team_lib
from jaxmarl_llm.chat import roles
from jaxmarl_llm.config import agent_settings, remote
from jaxmarl_llm.factory import (
    built_models,
    chat_options,
    hardware,
    mesh_checks,
    randomness,
    references,
    tools,
)
from jaxmarl_llm.policy import PolicyConfig
from jaxmarl_llm.tasks.tools import Toolbox
from jaxmarl_llm.tasks.worlds.task import WorldTask
from jaxmarl_llm.utils import quantised
from jaxmarl_llm.utils.errors import UserError


def layout(config, devices=None) -> sharding.Layout:
    """The sharding of a run's arrays, on all devices or ``devices``; ValueError if ``mesh`` does not fit."""
    c = config.mesh
    if c.agent * c.data * c.model == 1 and jax.process_count() == 1:
        return sharding.ONE_DEVICE  # the first device, if there are several
    return sharding.Layout(sharding.make_mesh(c.agent, c.data, c.model, devices), c.fsdp)


def read_model(config, name: str, on_host: bool = False) -> weights.LoadedModel:
    """A model of the team by name; with ``on_host`` its weights stay on the host or in its files.

    Its dtype is ``model_options.dtype``, else that of its files, but not narrower than the computation's:
    each use would widen it again. With ``model_options.quantize`` linear layers are quantized instead.
    ValueError, naming the config's field, for a model that cannot be loaded or has no tokenizer.
    """
    if name in built_models.BUILDERS:
        seed = (config.seed, randomness.STREAMS.index("random_model"))
        model = built_models.BUILDERS[name](config, seed, on_host)
        params = weights.in_dtype(model.params, config.model_options.dtype or None, config.policy.dtype)
        params = quantised.quantised(params, config.model_options.quantize)
        return model.replace(params=jax.tree.map(np.asarray, params) if on_host else params)
    dtype, remat = jnp.dtype(config.policy.dtype), config.policy.remat
    field = "team.models" if config.team.models else "model"
    try:
        held = config.model_options.dtype or None
        options = dict(compute_dtype=dtype, remat=remat, on_host=on_host, at_least=dtype)
        model = weights.load(name, held, **options, quantise=config.model_options.quantize)
    except ValueError as error:
        raise UserError(f"{field}: {error}") from error
    if model.tokenizer is None:
        raise UserError(f"{field}: {name!r} has no tokenizer files; an agent needs one")
    return model


def load_model(config, name: str, on_host: bool = False, read: Callable = read_model) -> weights.LoadedModel:
    """`read_model`, or ``read`` in its place, with the chat template of ``model_options``."""
    model = read(config, name, on_host)
    tokenizer = chat_options.apply(config, model.tokenizer)
    if name not in built_models.BUILDERS and roles.folds_system(tokenizer.template or ""):
        logging.warning(
            "the chat template of %r accepts no system message: it is put in front of the user's first", name
        )
    return model.replace(tokenizer=tokenizer)


def _architecture(config, name: str) -> PolicyConfig:
    """The sizes of a model of the team; the weights in its files are not read."""
    if name in built_models.BUILDERS:
        return load_model(config, name, on_host=True).policy.config
    try:
        return weights.architecture(name)
    except ValueError as error:
        field = "team.models" if config.team.models else "model"
        raise UserError(f"{field}: {error}") from error


def build_team(config, devices=None, speakers=None, read: Callable = read_model) -> team_lib.Team:
    """Load every model once and build the team, on all devices or on ``devices``.

    ``speakers`` answer for agents without a local model (`remote_agents.build`); None: these cannot answer.
    ``read``: see `load_model`.
    """
    hardware.prepare(config, devices)
    c, names = config.team, remote.names(config)
    experts = dict.fromkeys(filter(remote.is_remote, names)) | (speakers or {})
    where = layout(config, devices)  # before loading: it may raise
    on_host = where.mesh is not None
    local = [name for name in dict.fromkeys(names) if name not in experts]
    if where.mesh is not None:
        mesh_checks.check_rows(config)
        for name in local:
            mesh_checks.check(config, name, _architecture(config, name))
    models = {name: load_model(config, name, on_host, read) for name in local}
    chat_options.check_arguments(config, {name: model.tokenizer for name, model in models.items()})
    for name, model in models.items():
        needed = config.sampling.max_prompt_tokens + agent_settings.longest(config)
        if needed > model.policy.config.max_positions:
            raise UserError(
                f"sampling.max_prompt_tokens + max_new_tokens = {needed} is more than the context of "
                f"{name!r}, {model.policy.config.max_positions} tokens"
            )
    return team_lib.build(
        models,
        dict(zip(c.agents, names, strict=True)),
        randomness.stream(config, "adapters"),
        mode=c.mode,
        rank=c.rank,
        alpha=c.alpha,
        targets=tuple(c.targets),
        param_dtype=config.train.param_dtype,
        keep_reference=references.keeps_base(config),
        stop=tuple(config.sampling.stop),
        sampling_dtype=config.sampling.dtype or None,
        layout=where,
        experts=experts,
        attention=config.policy.attention,
    )


def check_prompts(config, team: team_lib.Team, *tasks, toolbox: Toolbox | None = None) -> None:
    """Refuse, or warn about, prompts longer than ``sampling.max_prompt_tokens``, before compilation.

    ``toolbox``: the tools that agents may call, which their prompts describe.
    """
    limit = config.sampling.max_prompt_tokens
    for agent, item, length in _prompt_tokens(config, team, tasks, toolbox):
        if length > limit:
            text = f"the prompt of agent {agent!r} for {item.task_id} has {length} tokens"
            if config.sampling.long_prompts == "error":
                advice = "raise sampling.max_prompt_tokens or set sampling.long_prompts='truncate'"
                raise UserError(f"{text}, the limit is {limit}; {advice}")
            logging.warning("%s: it will be cut on the left to %d", text, limit)
    warn_of_next_prompts(config, team, *tasks, toolbox=toolbox)


def warn_of_next_prompts(config, team: team_lib.Team, *tasks, toolbox: Toolbox | None = None) -> None:
    """Warn if an answer of full length would leave no room for the prompt of the next turn.

    That prompt holds the previous prompt, the answer, and the feedback between turns or a tool's result. A
    run ends at the first prompt that is too long, perhaps after hours. ``toolbox``: see `check_prompts`.
    """
    limit, answers = config.sampling.max_prompt_tokens, agent_settings.in_next_prompt(config)
    if not answers or config.sampling.long_prompts != "error":
        return
    longest: dict[str, int] = {}
    for agent, _, length in _prompt_tokens(config, team, tasks, toolbox):
        longest[agent] = max(length, longest.get(agent, 0))
    for agent, first in longest.items():
        if first + answers[agent] > limit:
            logging.warning(
                "sampling.max_prompt_tokens=%d: of agent %r a first prompt has %d tokens and an answer may have %d, "
                "and the prompt of the next turn, or after a call, holds both and more; the run ends at the first one "
                "that is longer",
                limit, agent, first, answers[agent],
            )  # fmt: skip


def _prompt_tokens(config, team: team_lib.Team, tasks, toolbox) -> Iterator[tuple[str, Any, int]]:
    """Agent, item and length of every first prompt of local agents; other agents' limits are not known."""
    reads = tools.first_reads(config, toolbox)
    for item, prompts in ((item, task.prompts(item)) for task in tasks for item in task.items):
        for agent, messages in prompts.items():
            if not team[agent].remote:
                yield agent, item, len(team[agent].tokenizer.encode_chat(reads(agent, messages)))


def prompt_sizes(config, team: team_lib.Team, tasks_of_run, toolbox: Toolbox | None = None):
    """The widths that each team member's prompts in a run's tasks are padded to, see `padding.Sizes`.

    ``toolbox``: the tools that agents may call, which their prompts describe.
    """
    c = config.sampling
    # In a world, the prompts of later turns are known too.
    seen = [task.seen() for task in tasks_of_run if isinstance(task, WorldTask)]
    every = [(task, range(len(task.items))) for task in [*tasks_of_run, *filter(None, seen)]]
    limits = c.max_prompt_tokens, c.long_prompts
    later = config.train.turns > 1 or config.train.protocol != "simultaneous"
    reads = tools.first_reads(config, toolbox)
    return evaluation.prompt_sizes(team, every, config.train.prompts, *limits, tuple(c.widths), later, reads)
