"""From a config to the task: problems or texts, roles, rewards."""

import contextlib
import logging

from jaxmarl_llm.executor import Executor, Limits, available_level, levels
from jaxmarl_llm.tasks import code_data, code_reward, writing_items, writing_reward
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


def build_task(config, executor: Executor | None, split: str):
    """The training task (``split="train"``) or the held-out one (``split="eval"``)."""
    c = config.task
    source = c.source if split == "train" else c.eval_source or c.source
    part = c.train_split if split == "train" else c.eval_split
    build = _coding if c.kind == "coding" else _writing
    task = build(config, executor, source, part)
    task = CentralisedTask(task, config.team.agents[0]) if c.centralised else task
    return CustomRewardTask(task, resolve_reward(c.reward)) if c.reward else task


def _coding(config, executor: Executor, source: str, part: str) -> CodingTask:
    c = config.task
    return CodingTask(
        code_data.load_items(source, part),
        executor,
        code_reward.TEAM if c.centralised else tuple(config.team.agents),
        cooperation=c.cooperation,
        compat=config.train.comlrl_compat,
        feedback=c.feedback,
        revealed_tests=c.revealed_tests,
        held_back=c.held_back,
    )


def _writing(config, executor: None, source: str, part: str) -> WritingTask:
    del executor  # no code is run
    c = config.task
    agents = AGENTS[c.kind] if c.centralised else tuple(config.team.agents)
    bands = writing_reward.bands(c.bands or c.kind)
    return WritingTask(writing_items.load_items(source, part, c.column), c.kind, agents, c.matching, bands)
