"""Evaluations of several members that write one text together, and of each of them alone."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxmarl_llm import saved_agents
from jaxmarl_llm.decoding import engine as engines
from jaxmarl_llm.decoding import settings as settings_lib
from jaxmarl_llm.decoding import values
from jaxmarl_llm.decoding.ledger import Ledger
from jaxmarl_llm.decoding.settings import CONFIDENCE, HEAD, Settings
from jaxmarl_llm.decoding.switching import of_rollouts, of_switcher
from jaxmarl_llm.decoding.writers import ROWS
from jaxmarl_llm.evaluation import Evaluations, results
from jaxmarl_llm.factory import (
    chat_options,
    evaluations,
    experts,
    members,
    randomness,
    tasks,
    teams,
    value_heads,
)
from jaxmarl_llm.factory.value_heads import Fit
from jaxmarl_llm.rollout.engines import Engine
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import compile_times, console
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.statistics import bootstrap

OUTSIDE = ("world", "optimisation", "generation", "lock", "commits")  # more than one answer to a prompt


def one_speaker(config):
    """The config with one agent that answers once, as the members do together.

    For task.kind=reasoning, where all agents read the same question, the first agent and its settings stay.
    UserError for other tasks with several agents, whose roles differ, and for tasks with several answers.
    """
    agents = tuple(config.team.agents)
    if config.task.kind in OUTSIDE:
        raise UserError(
            f"task.kind={config.task.kind!r}: members write one text together where one answer is all"
        )
    if len(agents) > 1 and config.task.kind != "reasoning":
        raise UserError(
            f"team.agents={agents!r}: in task.kind={config.task.kind!r} they have roles; give a --config with one agent"
        )
    if config.tools.functions or config.tools.servers or config.tools.of_task:
        raise UserError(
            "tools.functions, servers or of_task: members that write one text call no tools; say none"
        )
    config = config.copy_and_resolve_references()
    own = {name: section for name, section in config.team.agent.items() if name == agents[0]}
    config.team.agents, config.team.models, config.team.agent = agents[:1], (), own
    config.train.protocol, config.train.turns, config.train.later_samples = "simultaneous", 1, 0
    config.eval.vote = ""
    return config


def evaluate(
    config,
    origins: Sequence[members.Origin],
    settings: Settings,
    which,
    *,
    answering=None,
    samples: int = 0,
    split: str = "test",
    fit: Fit | None = None,
    heads: str = "",
    alone: bool = True,
) -> tuple[dict[str, Any], dict]:
    """Evaluate members together, and each alone, on the same problems with the same random keys.

    Args:
      config: of the run of the first member.
      origins: the members.
      settings: how they write together.
      which: ``best``, ``latest`` or a step, of each run.
      answering: config of the problems and the sampling; None: ``config``.
      samples: answers per problem; 0 for ``eval.samples``.
      split: problems to answer, one of `EVALUATED`.
      fit, heads: for ``settings.value='head'``: how heads are fitted (None: the defaults), and the folder
        that stores them, see `value_heads.fitted`.
      alone: whether each member is also evaluated alone.

    Returns:
      {"sampled": Evaluation, "greedy": Evaluation} of the members together, and the report, JSON data.

    Raises:
      ValueError: for incompatible members, settings or problems, before anything is compiled.
    """
    names, models = [o.name for o in origins], [o.model for o in origins]
    settings_lib.check(settings)
    if len(names) < 2:
        settings_lib.check_members(settings, names, models, True)
    steps = {o.folder: saved_agents.read_meta(o.folder, which)["step"] for o in origins}
    config = chat_options.dated(config, origins[0].folder)
    answering = one_speaker(config if answering is None else chat_options.dated(answering, origins[0].folder))
    samples = samples or answering.eval.samples
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(tasks.build_executor(answering))
        task = evaluations.build_split(
            answering, executor, split, experts.build_expert(answering, origins[0].folder)
        )
        team = members.build(config, origins, which)
        settings_lib.check_members(settings, names, [team[name].model_name for name in names], _alike(team))
        speaker = engines.speaker(team[names[0]], names[0], answering.team.agents[0])
        teams.check_prompts(answering, speaker[0], task)
        ledger = Ledger(tuple(names))
        about = [[*o, steps[o.folder]] for o in origins]
        fitting = functools.partial(value_heads.fitted, answering, executor, team, fit or Fit(), about, heads)
        engine, fitted = _engine(answering, task, team, settings, ledger, fitting)
        held = [(member.base, member.trainable) for member in team.members]
        rows = ROWS if settings.searches else evaluations.rows_per_batch(answering, team, held, samples)
        run = _Run(answering, task, samples, max(steps.values()), rows)
        answers = run("together", *speaker, engine=engine)
        chosen = names if alone else []
        single = {n: run(n, *engines.speaker(team[n], n, answering.team.agents[0])) for n in chosen}
    about_run = {
        "members": {o.name: {**o._asdict(), "step": steps[o.folder]} for o in origins},
        "step": max(steps.values()),
        "settings": dataclasses.asdict(settings),
        "split": split,
        "seed": answering.seed,
        "problems": len(task.items),
        "task": answering.task.to_dict(),
        "sampling": answering.sampling.to_dict(),
    }
    numbers = _numbers(answers, single, ledger) | ({"fit": fitted} if fitted else {})
    return {mode: getattr(answers, mode) for mode in results.MODES}, about_run | numbers


def _engine(
    config, task, team: Team, settings: Settings, ledger: Ledger, heads: Callable[[], tuple]
) -> tuple[Engine, dict[str, float]]:
    """The engine that writes the texts, and numbers about its heads, see `switching`."""
    if settings.searches:
        return switching(config, task, team, settings, ledger, heads)
    return engines.MixedEngine(team.members[0], engines.choice(settings, len(team.agents)), ledger), {}


def _numbers(answers: Evaluations, single: dict[str, Evaluations], ledger: Ledger) -> dict[str, dict]:
    """The results of the members together, of each alone, and the differences."""
    return {
        "together": _described(answers) | {"ledger": ledger.describe(), "seconds": answers.seconds},
        "alone": {name: _described(own) | {"seconds": own.seconds} for name, own in single.items()},
        "gains": {name: _gains(answers, own) for name, own in single.items()},
    }


class _Run(NamedTuple):
    """Evaluations one after the other, on the same problems with the same key."""

    config: Any
    task: Any
    samples: int
    step: int
    rows: int

    def __call__(self, label: str, team: Team, trainables: Sequence[Any], **options) -> Evaluations:
        config, items = self.config, range(len(self.task.items))
        key, compiles = randomness.stream(config, "report"), compile_times.of_process()
        with console.ProgressDisplay(len(items), label="problems", name=label, compiles=compiles) as display:
            return evaluations.evaluate(
                config, team, trainables, self.task, items, self.samples, key, self.step, rows_per_batch=self.rows,
                **evaluations.shown_in(display), **options,
            )  # fmt: skip


def switching(
    config, task, team: Team, settings: Settings, ledger: Ledger, heads: Callable[[], tuple]
) -> tuple[engines.SwitchingEngine, dict[str, float]]:
    """The engine that switches between members, and numbers about the value heads, {} for none."""
    prompts = value_heads.prompts_of(config, task, team)
    write = value_heads.writers(config, prompts, team, settings, ledger)
    judge, numbers = values.Judge(task, write, ledger), {}
    if settings.value == CONFIDENCE:
        value: Callable = values.confidence(write)
    elif settings.value == HEAD:
        models, numbers = heads()
        value = values.Head(models, write, team.agents, ledger)
    else:
        value = of_rollouts(write.go_on, judge, settings.rollouts)
        if settings.goes_on == settings_lib.BEST:
            value = of_switcher(write.propose, value, settings.alpha, judge, settings.rollouts)
    return engines.SwitchingEngine(team, prompts, write, value, settings.alpha, ledger), numbers


def _alike(team: Team) -> bool:
    """Whether all members share one vocabulary."""
    sizes = {getattr(member.tokenizer, "vocab_size", id(member.tokenizer)) for member in team.members}
    return len(sizes) == 1 and len({tuple(member.tokenizer.eos_ids) for member in team.members}) == 1


def _described(answers: Evaluations) -> dict[str, dict]:
    return {mode: results.describe(getattr(answers, mode), ()) for mode in results.MODES}


def _gains(answers: Evaluations, single: Evaluations) -> dict[str, dict[str, float | None]]:
    """Return together minus return alone, by mode: mean over problems and 95 % interval; None: no number."""
    pairs = {mode: [getattr(e, mode).scores()["return"] for e in (answers, single)] for mode in results.MODES}
    ends = {mode: bootstrap.interval(one - other)._asdict() for mode, (one, other) in pairs.items()}
    return {mode: {k: x if math.isfinite(x) else None for k, x in own.items()} for mode, own in ends.items()}
