"""A team that begins with the agents of another run, such as a warm-up.

Its initial agents are copied into the run folder (``begin/``) before anything is learned. A resumed run reads
them from there, also as the reference policy, so the other run's folder may be deleted.
"""

import dataclasses
import functools
import json
import pathlib
import shutil
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_llm import checkpoint, metrics, resume_checks, saved_agents
from jaxmarl_llm.checkpoint import Checkpointer
from jaxmarl_llm.config import agent_settings, remote
from jaxmarl_llm.config import saved as saved_config
from jaxmarl_llm.config.options import field
from jaxmarl_llm.config.team import agent_names
from jaxmarl_llm.factory import built_models, inputs, references
from jaxmarl_llm.runs import summaries
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import distributed
from jaxmarl_llm.utils.errors import UserError

KEPT = "begin"
# Two runs that agree on these, on each agent's sampling and on the model options except the date, measure the
# same results.
MEASURED = (
    "model", "seed", "team.agents", "team.mode", "team.models", "task", "sampling", "policy.dtype", "eval.samples",
    "eval.problems", "train.protocol", "train.turns", "advice", "commits", "gate", "tools",
    "expert.kind", "expert.model", "expert.max_tokens",
    "executor.cpu_seconds", "executor.memory_mb", "executor.allow_modules",
)  # fmt: skip


def source(config, folder) -> pathlib.Path | None:
    """The run folder that a team begins from: its warm-up's, or ``team.begin``; None if there is none.

    ``folder``: that of the run. In both config fields ``{seed}`` stands for the run's seed.
    """
    named = config.warm_up.folder if config.warm_up.steps else config.team.begin
    if config.warm_up.steps and not named:
        return own_warm_up(pathlib.Path(folder))
    return pathlib.Path(named.replace("{seed}", str(config.seed))) if named else None


def own_warm_up(folder: pathlib.Path) -> pathlib.Path:
    """The folder of a run's own warm-up in that of the run."""
    return folder / "warm_up"


def begun(config, team: Team, folder: pathlib.Path) -> Team:
    """The team with its initial parameters, and the reference policy if anything reads it.

    Args:
      config: the run's.
      team: as built; its parameters are replaced.
      folder: run folder; what the team begins with is copied there once.

    Raises:
      ValueError: naming ``team.begin`` and the difference: no run or checkpoint there, an agent that it
        lacks, another base model, mode, rank, or targets.
    """
    place = source(config, folder)
    if place is None:
        return team
    kept = pathlib.Path(folder) / KEPT
    distributed.on_main(_forget_unused)(pathlib.Path(folder))
    if not distributed.on_main(checkpoint.saved_steps)(kept / checkpoint.BEST):
        _copy(config, team, place, kept)
    team, _ = checkpoint.restore_team(kept, checkpoint.BEST, team, learners(team))
    if not references.keeps_beginning(config):
        return team
    members = [
        dataclasses.replace(m, reference=jax.tree.map(jnp.copy, m.trainable)) if m.stack.learns else m
        for m in team.members
    ]
    return Team(tuple(members))


def kept_in(folder: pathlib.Path) -> bool:
    """Whether a run's folder has its initial agents; not if the run was refused before it had a config.json.

    A link to another run's (`experiments.replay`) counts: it has the initial agents of that run.
    """
    has_run = (folder / "config.json").is_file() or (folder / KEPT).is_symlink()
    return has_run and bool(checkpoint.saved_steps(folder / KEPT / checkpoint.BEST))


def _forget_unused(folder: pathlib.Path) -> None:
    """Remove the copy made by a start that was refused later: the next one may begin from another run."""
    if not kept_in(folder):
        shutil.rmtree(folder / KEPT, ignore_errors=True)


def learners(team: Team) -> tuple[str, ...]:
    """Agents that have parameters of their own."""
    return tuple(agent for agent in team.agents if team[agent].stack.learns)


def earlier(config, folder) -> tuple[dict, list[dict]]:
    """Results that the run that this one begins from already has: of the untrained team and of its own end.

    Returns:
      Entries of the summary, ``before`` and ``warm``, and the rows of metrics of the latter. They are empty
      if that run measured in another way (`MEASURED`); there is no ``warm`` if the team begins from another
      checkpoint or with agents of other names.
    """
    place = source(config, folder)
    if place is None:
        return {}, []
    saved, summary = saved_config.in_folder(place), summaries.read_json(place / "summary.json")
    now = json.loads(json.dumps(config.to_dict()))
    if not saved or _measured(saved) != _measured(now):
        return {}, []
    entries = {"before": summary["before"]} if "before" in summary else {}
    kept = checkpoint.read_meta(pathlib.Path(folder) / KEPT, checkpoint.BEST)
    after, renamed = summary.get("after", {}), any(name != agent for agent, name in kept["names"].items())
    if renamed or after.get("step") != kept["of_step"]:
        return entries, []
    rows = [row for row in metrics.read_metrics(place) if row["step"] == kept["of_step"]]
    rows = [{name: x for name, x in row.items() if name.startswith(("eval", "test"))} for row in rows]
    return entries | {"warm": after | {"step": 0}}, [row for row in rows if row]


def _measured(config: dict) -> dict[str, Any]:
    """The fields that decide an evaluation's results; None for those an earlier version's config lacks."""
    fields = {path: _field(config, path) for path in MEASURED}
    for agent in config["team"]["agents"]:
        fields[f"sampling of {agent}"] = agent_settings.sampling(config, agent)
    options = config.get("model_options", {})
    return fields | {"model_options": {name: value for name, value in options.items() if name != "date"}}


def _field(config: dict, path: str) -> Any:
    try:
        return field(config, path)
    except KeyError:
        return None


def _copy(config, team: Team, place: pathlib.Path, kept: pathlib.Path) -> None:
    """Copy the agents of the run, or exported team, in ``place`` to ``kept``, under the names of this team."""
    team, meta = read(config, team, place)
    learning = [(i, m) for i, m in enumerate(team.members) if m.stack.learns]
    states = {i: SimpleNamespace(trainable=m.trainable) for i, m in learning}
    about = {"run": str(place), "of_step": meta["step"], "names": _names_there(config, team)}
    with Checkpointer(kept) as saver:
        saver.save_best(0, states, team, about)


def read(config, team: Team, place: pathlib.Path) -> tuple[Team, dict]:
    """The team with the agents of the run, or exported team, in ``place``, and the metadata saved there.

    ValueError as in `begun`.
    """
    where, step = f"team.begin={str(place)!r}", config.team.begin_step
    if saved_agents.is_team(place):
        saved = saved_config.upgraded(saved_agents.read_team(place).get("config", {}), place)
    elif (place / "config.json").is_file():
        saved = saved_config.in_folder(place)
    else:
        raise UserError(f"{where}: the folder holds no run, config.json is missing")
    _check_drawn_base(config, saved, where)
    which = int(step) if step.isdigit() else step
    inputs.warn(place, functools.partial(inputs.of_models, config, team))
    try:
        names = _names_there(config, team)
        return saved_agents.restore_team(place, which, team, learners(team), names, same_base=True)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


def _names_there(config, team: Team) -> dict[str, str]:
    """The names that the team's agents have in the run that they begin from."""
    mapped = agent_names(config.team.begin_map, team.agents, "team.begin_map")
    return {agent: mapped.get(agent, agent) for agent in learners(team)}


def _check_drawn_base(config, saved: dict, where: str) -> None:
    """ValueError if the base is drawn from a seed and the other run had another seed."""
    drawn = set(built_models.BUILDERS).intersection(remote.names(config))
    if drawn and config.team.mode == "adapters" and saved["seed"] != config.seed:
        seeds = resume_checks.listed(
            resume_checks.differences({"seed": saved["seed"]}, {"seed": config.seed})
        )
        raise UserError(f"{where}: the base {min(drawn)!r} is drawn from the seed; {seeds}")
