"""All checks of a config, one after another, on a few problems that the team answers."""

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jaxmarl_llm import update
from jaxmarl_llm.analysis.doctor import (
    choices,
    data,
    exports,
    first_rollout,
    given,
    machine,
    rewards,
    texts,
    updates,
)
from jaxmarl_llm.analysis.doctor.result import Result, failed
from jaxmarl_llm.analysis.doctor.rewards import ErrorKeepingTask
from jaxmarl_llm.config import agent_settings, imitation, maporl, validate
from jaxmarl_llm.config.programs import check_training
from jaxmarl_llm.config.systems import FROM_PAIRS, SFT
from jaxmarl_llm.executor.levels import ExecutorRefused, available_level
from jaxmarl_llm.factory import experts, systems, tasks, teams, tools, training
from jaxmarl_llm.factory import user_code as named
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.protocols import item_name
from jaxmarl_llm.protocols.types import Reads
from jaxmarl_llm.runs import agent_export, plan_table
from jaxmarl_llm.tasks import judgement
from jaxmarl_llm.tasks.split_overlap import Neighbour
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils.errors import UserError

READ = 64  # tokens that an exported agent reads
SPLITS = ("train", "eval", "test")


def examine(config, problems: int = 2, tokens: int = 64) -> Iterator[Result]:
    """Yield the results of a config's checks, each as soon as it is known.

    Args:
      config: a training config.
      problems: the team answers at most so many problems.
      tokens: maximal tokens of a completion.

    Raises:
      ValueError: for bad fields, data or models that training would refuse before it starts.
    """
    validate(config)
    check_training(config)
    small = first_rollout.shrunk(config, problems, tokens)
    with contextlib.ExitStack() as stack:
        executor, level = _executor(small, stack)
        named.check(small)
        yield level
        expert = experts.build_expert(small)
        rows, splits = _tasks(small, executor, expert)
        yield rows
        small.task.bad_rows = "drop"  # their faults are already reported
        task = splits[0]
        yield from data.checks({s: each.items for s, each in zip(SPLITS, splits, strict=True)})[0]
        speakers = experts.build(small, [item for each in splits for item in each.items])
        team = teams.build_team(small, speakers=speakers)
        if config.team.begin:
            team, begins = given.begun(config, team)
            yield begins
        if imitation.used(config):
            yield given.demonstrations(config, task, team)
        local_team = team.local("the doctor")
        toolbox = stack.enter_context(tools.opened(small, executor, task))
        yield from _of_prompts(config, local_team, splits, tools.first_reads(config, toolbox))
        caught, start = ErrorKeepingTask(task), time.perf_counter()
        try:
            forest = first_rollout.draw(small, team, caught, toolbox)
        except Exception as error:
            yield failed("rollout", error)
            return
        yield first_rollout.check_of_rollout(config, small, forest, time.perf_counter() - start)
        yield from _of_update(small, local_team, forest)
        yield from _of_reward(small, caught, forest, stack, expert)
        read = config.train.protocol != "simultaneous", config.train.turns > 1
        yield texts.round_trip(forest, _tokenizers(team), task.prompts(task.items[0]), *read)
        yield memory(config, team)  # before the export, which takes memory that training does not
        yield _export(local_team, forest)


def examine_data(config) -> tuple[list[Result], dict[str, list[Neighbour]]]:
    """The checks of the problems only, and the training problems nearest to those of the other splits."""
    validate(config)
    with contextlib.ExitStack() as stack:
        rows, splits = _tasks(config, _executor(config, stack)[0])
    results, neighbours = data.checks({s: each.items for s, each in zip(SPLITS, splits, strict=True)})
    return [rows, *results], neighbours


def _tasks(config, executor, expert=None) -> tuple[Result, list[Any]]:
    """The check of the rows, and the tasks of `SPLITS`, without bad rows.

    ValueError for data that cannot be used at all.
    """
    refusing, dropping = config.copy_and_resolve_references(), config.copy_and_resolve_references()
    refusing.task.bad_rows, dropping.task.bad_rows = "refuse", "drop"
    faults: dict[str, None] = {}  # in order; splits of the same file have the same faults
    built = []
    for split in SPLITS:
        try:
            built.append(tasks.build_task(refusing, executor, split, expert))
        except UserError as error:
            built.append(tasks.build_task(dropping, executor, split, expert))
            faults[str(error.__cause__ or error)] = None
    problems = sum(len(task.items) for task in built)
    tests = "none" if executor is None else "read" if isinstance(executor, _Refuses) else "run"
    return data.rows(list(faults), problems, config.task.bad_rows == "drop", tests), built


class _Refuses:
    """Takes the place of an executor that did not start: every run raises its error."""

    def __init__(self, error: ExecutorRefused):
        self._error = error

    def run(self, programs):
        raise self._error


def _executor(config, stack: contextlib.ExitStack) -> tuple[Any, Result]:
    try:
        executor = stack.enter_context(tasks.build_executor(config))
    except ExecutorRefused as error:
        return _Refuses(error), machine.executor_level(None, refusal=error)
    if executor is None:
        return None, machine.executor_level(None)
    return executor, machine.executor_level(executor.level, available_level()[1])


def _of_prompts(config, team: Team, of_tasks: Sequence[Any], reads: Reads) -> Iterator[Result]:
    tokenizers, task = _tokenizers(team), of_tasks[0]
    item = task.items[0]
    prompts = task.prompts(item).items()
    first = {agent: reads(agent, messages) for agent, messages in prompts if agent in tokenizers}
    yield texts.chat_template(tokenizers, first, config.model_options.chat, tuple(config.sampling.stop))
    for agent, messages in first.items():
        yield texts.rendered(agent, tokenizers[agent], messages, item_name(item))
    try:
        lengths = {agent: [] for agent in team.agents}
        for item in (item for task in of_tasks for item in task.items):
            for agent, messages in task.prompts(item).items():
                if agent not in lengths:
                    continue
                lengths[agent].append(len(tokenizers[agent].encode_chat(reads(agent, messages))))
    except Exception as error:
        yield failed(texts.prompt_lengths.title, error)
    else:
        c = config.sampling
        answers = agent_settings.in_next_prompt(config)
        own = {agent: answers[agent] for agent in lengths if agent in answers}
        yield texts.prompt_lengths(lengths, c.max_prompt_tokens, c.long_prompts, own)


def _of_update(config, team: Team, forest: Forest) -> Iterator[Result]:
    loss, trainables = training.loss_config(config), _trainables(team)
    stated = training.sampling_params(config)
    # Given texts are trained on under a distribution that intentionally differs from the sampler's.
    applied = stated if loss.given_texts else loss.sampling
    yield choices.distribution(team, trainables, forest, stated, applied)
    try:
        examined = updates.of_forest(team, trainables, loss, forest)
    except Exception as error:
        yield from (failed(check.title, error) for check in (updates.parity, updates.trained_tokens))
        return
    if loss.given_texts:
        why = f"train.system={config.train.system!r} learns given texts, without the sampler's temperature"
        yield Result(updates.parity.title, "skipped", why)
    else:
        yield updates.parity(examined, choices.precision(team))
    yield updates.trained_tokens(examined, _meant(config.train))


def _meant(c) -> str:
    """Why the loss may train on other tokens than the sampled ones; empty if it must not."""
    if c.comlrl_compat:
        return "train.comlrl_compat trains so, set it to False for a result"
    return f"train.loss={c.loss!r} trains so with all advantages 1; is it meant to?" if c.loss else ""


def _of_reward(
    config, task: ErrorKeepingTask, forest: Forest, stack: contextlib.ExitStack, expert
) -> Iterator[Result]:
    if task.error is not None:
        refused = isinstance(task.error, ExecutorRefused)
        title = rewards.scale.title
        yield Result(title, "skipped", "no programs ran") if refused else failed(title, task.error)
        others = (rewards.zero_signal, rewards.pairs, rewards.purity, rewards.order)
        yield from (Result(check.title, "skipped", "there are no rewards") for check in others)
        return
    yield rewards.scale(forest, task)
    yield from _of_signal(config, forest)
    if config.task.kind == "optimisation":
        for check in (rewards.purity, rewards.order):
            yield Result(check.title, "skipped", "rewards are measured times, never twice the same")
        return
    # A new executor: the rollout's executor would return its cached reports.
    fresh, _ = _executor(config, stack)
    judge = functools.partial(judgement.judge, tasks.build_task(config, fresh, "train", expert))
    answers = forest.joint_texts(task.agents)
    yield rewards.purity(forest, answers, judge)
    yield rewards.order(forest, answers, judge)


def _of_signal(config, forest: Forest) -> Iterator[Result]:
    """Check whether there is something to learn from the rewards."""
    system, credit_of = f"train.system={config.train.system!r}", systems.from_forest(config)
    prefers = config.train.system in FROM_PAIRS
    if credit_of is None:
        what = "pairs of answers" if prefers else "what its critics did not expect"
        what = "demonstrations" if config.train.system == SFT else what
        what = "the scores of a verifier that is not fitted yet" if maporl.has_verifier(config) else what
        yield Result(rewards.zero_signal.title, "skipped", f"{system} learns from {what}, not from groups")
    else:
        credit = credit_of(forest)
        yield rewards.zero_signal(credit.metrics(), len(set(credit.groups.tolist())))
    if prefers:
        yield rewards.pairs(forest, config.preference.pairs)
    else:
        yield Result(rewards.pairs.title, "skipped", f"{system} learns from no pairs")


def _export(team: Team, forest: Forest) -> Result:
    learning = [member for member in team.members if member.trainable is not None]
    # If the protocol decides who speaks, some agents may not have spoken.
    of_agent = {turn.agent: turn for turn in forest.turns}
    speakers = [(m, a) for m in learning or team.members for a in m.stack.agents[::-1] if a in of_agent]
    if not speakers:
        return Result(exports.round_trip.title, "skipped", "no agent that learns has answered")
    member, agent = speakers[0]
    turn = of_agent[agent]
    tokens_L = np.concatenate([turn.prompt, turn.completion])[-READ:]
    return exports.round_trip(member, member.trainable, agent, tokens_L, agent_export.write)


def memory(config, team: Team) -> Result:
    """The check of the memory that training will hold, including the system's own models."""
    start = functools.partial(update.init_state, optimizer=training.build_optimizer(config))
    learning = {i: m.trainable for i, m in enumerate(team.members) if m.trainable is not None}
    states, seeds = {i: jax.eval_shape(start, tree) for i, tree in learning.items()}, len(config.seeds) or 1
    parts = plan_table.memory(config, team, states, seeds)
    own = plan_table.beside(systems.own_states(config, team, _trainables(team)))
    models, optimizer = (seeds * size for size in own)
    if models:
        parts |= {"critics": models, "optimizer of critics": optimizer}
    parts["gradients"] = max(parts["learned"], models)  # one after the other
    return machine.memory(parts, machine.used_mb(), machine.available_mb())


def _tokenizers(team: Team) -> dict[str, Any]:
    return {agent: team[agent].tokenizer for agent in team.agents}


def _trainables(team: Team) -> list:
    return [member.trainable for member in team.members]
