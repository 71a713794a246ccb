"""From a config to the task: problems or texts, roles, rewards."""

import contextlib
import logging
import pathlib

from configs import checks
from jaxmarl_llm import experts
from jaxmarl_llm.executor import Executor, Limits, available_level, levels
from jaxmarl_llm.experts import Spent
from jaxmarl_llm.experts.feedback import ExpertEdits
from jaxmarl_llm.tasks import code_data, code_feedback, code_reward, game, writing_items, writing_reward
from jaxmarl_llm.tasks.centralised import CentralisedTask
from jaxmarl_llm.tasks.coding import CodingTask
from jaxmarl_llm.tasks.custom_reward import CustomRewardTask, resolve_reward
from jaxmarl_llm.tasks.writing import AGENTS, WritingTask


def build_executor(config) -> contextlib.AbstractContextManager:
    """The sandbox, for tasks that run code, else a context of None; start it before anything touches JAX.

    ExecutorRefused where the machine isolates programs less than ``executor.min_level``.
    """
    if config.task.kind != "coding":
        return contextlib.nullcontext()
    c = config.executor
    limits = Limits(cpu_seconds=c.cpu_seconds, memory_mb=c.memory_mb)
    executor = Executor(c.workers or None, limits, c.min_level)
    if executor.level < max(levels.NAMES):
        logging.warning(
            "programs run at isolation level %d, %s: %s",
            executor.level, levels.NAMES[executor.level], available_level()[1],
        )  # fmt: skip
    return executor


def isolation(executor: Executor | None) -> dict:
    """How programs are run, for the records of a run; {} where none are."""
    return levels.describe(executor.level, executor.limits) if executor else {}


def build_expert(config, workdir="", spent: Spent | None = None):
    """The expert that is asked between turns, or None; what it spends counts from ``spent`` on.

    ValueError for what the user must change (no key, no package, no model), ExpertError if it is not there.
    """
    if not checks.asks_expert(config):
        return None
    expert = experts.build(**expert_options(config, workdir), spent=spent, seed=config.seed)
    expert.check()
    return expert


def expert_options(config, workdir="") -> dict:
    """How ``config.expert`` is reached, for `experts.build`; answers are kept in the run folder, if any."""
    options = config.expert.to_dict()
    del options["max_tokens"]
    return options | {"cache": options["cache"] or (workdir and str(pathlib.Path(workdir) / "expert"))}


def build_task(config, executor: Executor | None, split: str, expert=None):
    """The training task (``split="train"``) or the held-out one (``split="eval"``)."""
    c = config.task
    source = c.source if split == "train" else c.eval_source or c.source
    part = c.train_split if split == "train" else c.eval_split
    if c.kind == "coding":
        task = _coding(config, executor, source, part, expert)
    elif c.kind == "game":
        agents = game.AGENTS if c.centralised else tuple(config.team.agents)
        task = game.GameTask(game.load_items(source, part), agents)
    else:
        task = _writing(config, source, part)
    task = CentralisedTask(task, config.team.agents[0]) if c.centralised else task
    return CustomRewardTask(task, resolve_reward(c.reward)) if c.reward else task


def _coding(config, executor: Executor, source: str, part: str, expert) -> CodingTask:
    c = config.task
    roles = code_reward.TEAM if c.centralised else tuple(config.team.agents)
    feedback = c.feedback if c.feedback in code_feedback.MODES else "plain"  # in one turn nobody is asked
    if expert:
        feedback = ExpertEdits(expert, roles, config.expert.max_tokens)
    return CodingTask(
        code_data.load_items(source, part),
        executor,
        roles,
        cooperation=c.cooperation,
        compat=config.train.comlrl_compat,
        feedback=feedback,
        revealed_tests=c.revealed_tests,
        held_back=c.held_back,
    )


def _writing(config, source: str, part: str) -> WritingTask:
    c = config.task
    agents = AGENTS[c.kind] if c.centralised else tuple(config.team.agents)
    bands = writing_reward.bands(c.bands or c.kind)
    return WritingTask(writing_items.load_items(source, part, c.column), c.kind, agents, c.matching, bands)
