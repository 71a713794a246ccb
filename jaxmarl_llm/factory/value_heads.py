"""Fit the value heads for switching between members, or read them from a folder."""

import json
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxmarl_llm import update
from jaxmarl_llm.decoding import values
from jaxmarl_llm.decoding.ledger import Ledger
from jaxmarl_llm.decoding.settings import Settings
from jaxmarl_llm.decoding.writers import Prompts, Writers
from jaxmarl_llm.evaluation import scores
from jaxmarl_llm.factory import evaluations, randomness, training
from jaxmarl_llm.systems import critics
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.errors import UserError

FILE = "fit.json"


class Fit(NamedTuple):
    """How value heads are fitted: to ``samples`` answers of each member to ``problems`` training problems.

    There are ``updates`` updates of ``batch`` answers each; the learning rate ``lr`` falls to 0.
    """

    problems: int = 64
    samples: int = 4
    updates: int = 60
    batch: int = 16
    lr: float = 3e-4


def prompts_of(config, task, team: Team) -> Prompts:
    """The prompts of a task's problems, the same for all members."""
    return Prompts.of(task, team, config.sampling.max_prompt_tokens, config.sampling.long_prompts)


def writers(config, prompts: Prompts, team: Team, settings: Settings, ledger: Ledger) -> Writers:
    """The members as writers, with the sampling parameters of the config's one agent."""
    params = training.sampling_params(config).of(config.team.agents[0])
    sizes = dict(candidates=settings.candidates, horizon=settings.horizon)
    return Writers(team, prompts, params, every=settings.every, **sizes, ledger=ledger)


def fitted(
    config, executor, team: Team, fit: Fit, members: Sequence, folder: str = ""
) -> tuple[critics.Critics, dict[str, float]]:
    """A critic per member, fitted to its answers to training problems, and numbers about the fit.

    Args:
      config: of the problems, with one agent.
      executor: the sandbox in which the task's judge runs programs.
      team: the members.
      fit: how critics are fitted.
      members: JSON data that identifies the members and their states.
      folder: where critics are saved, and read from if they exist; '' for nowhere.

    Raises:
      UserError: if those in the folder were fitted with other settings.
    """
    optimizer = update.make_optimizer(lr=fit.lr, steps=fit.updates, decay="linear")
    key, options = (
        randomness.stream(config, "critics"),
        dict(rank=config.team.rank, targets=tuple(config.team.targets)),
    )
    own = critics.build(team, key, joint=False, **options)
    models = critics.Critics(own, optimizer, rows=config.critic.prompts_per_microbatch, by_token=True)
    about = {"fit": fit._asdict(), "members": [*map(list, members)], "seed": config.seed}
    about |= {"task": config.task.to_dict(), "sampling": config.sampling.to_dict()}
    about = json.loads(json.dumps(about))
    if not folder:
        return models, _fit(config, executor, team, fit, models, key)
    path = pathlib.Path(folder) / FILE
    with models.kept_in(path.parent / "critics", 1):
        if path.is_file():
            held = files.read_json(path)
            if other := [name for name in about if held["about"].get(name) != about[name]]:
                raise UserError(
                    f"--heads={folder}: the heads there were fitted with another {other[0]}; give another folder"
                )
            models.restore(fit.updates)
            return models, held["numbers"]
        numbers = _fit(config, executor, team, fit, models, key)
        models.save(fit.updates)
        files.atomic_write_text(path, json.dumps({"about": about, "numbers": numbers}, indent=1) + "\n")
    return models, numbers


def _fit(config, executor, team: Team, fit: Fit, models: critics.Critics, key) -> dict[str, float]:
    task, ledger = evaluations.build_split(config, executor, "train"), Ledger(team.agents)
    write = writers(config, prompts_of(config, task, team), team, Settings(), ledger)
    rows = scores.spread(len(task.items), fit.problems)
    write.begin(rows, (), key)
    random = np.random.default_rng((config.seed, randomness.STREAMS.index("critics")))
    print(f"fitting value heads to {len(rows) * fit.samples} answers of each member", flush=True)
    sizes = dict(samples=fit.samples, updates=fit.updates, batch=fit.batch)
    progress = console.LateProgress("updates of the value heads")
    judge = values.Judge(task, write, ledger)
    return fit._asdict() | values.fit(
        models, write, judge, team.agents, **sizes, random=random, progress=progress
    )
