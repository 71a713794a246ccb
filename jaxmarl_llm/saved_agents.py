"""The agents saved in a folder: in a run's checkpoints, or in a team that `experiments.export` wrote.

An exported team is a folder with ``team.json`` (`TEAM_FILE`), which has the config and, for each agent that
learned, the place of its weights: ``adapter``, a PEFT folder, or ``merged``, a model folder. Commands accept
it wherever they accept a run folder.
"""

import dataclasses
import logging
import pathlib
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import checkpoint, weights
from jaxmarl_llm.resume_checks import check_agents, describe_team, renamed
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.utils import agent_axis, files
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.saved_names import MERGED, TEAM_FILE
from jaxmarl_llm.weights import peft

FORMAT = 1


def is_team(folder) -> bool:
    """Whether a folder holds an exported team."""
    return (pathlib.Path(folder) / TEAM_FILE).is_file()


def folder_and_agent(text: str) -> tuple[str, str]:
    """Both parts of ``<folder>:<agent>`` for an existing folder; the text and '' if it names no agent.

    The folder is a run's, an exported team or a PEFT folder, and may have ':' in its own path.
    """
    places = [] if _holds_agents(text) else [place for place, sign in enumerate(text) if sign == ":"]
    for place in reversed(places):
        if _holds_agents(text[:place]):
            return text[:place], text[place + 1 :]
    return text, ""


def _holds_agents(folder: str) -> bool:
    is_run = bool(folder) and (pathlib.Path(folder) / "config.json").is_file()
    return bool(folder) and (is_run or is_team(folder) or peft.is_adapter(folder))


def read_team(folder) -> dict:
    """What an exported team's file says; ValueError naming the file if there is none or it is none of ours.

    Keys: ``format``, ``step``, ``config``, and ``agents``: by name what `resume_checks.describe_team` says of
    it, with ``base`` and, if it learned, ``folder`` and ``form``.
    """
    path = pathlib.Path(folder) / TEAM_FILE
    if not path.is_file():
        raise UserError(f"{folder} holds no team: {TEAM_FILE} is missing")
    held = files.read_json(path)
    if not isinstance(held.get("format"), int) or not isinstance(held.get("agents"), dict):
        raise UserError(f"{path} is not a team's: it has no format or no agents")
    if held["format"] > FORMAT:
        raise UserError(f"{path} has format {held['format']}; this version reads formats up to {FORMAT}")
    return held


def read_meta(folder, which=checkpoint.BEST) -> dict:
    """``step``, ``agents`` and more of a run's checkpoint, see `checkpoint.read_meta`, or of an exported team."""
    return read_team(folder) if is_team(folder) else checkpoint.read_meta(_checkpoints(folder), which)


def restore_team(
    folder,
    which,
    team: Team,
    agents: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
    same_base: bool = False,
) -> tuple[Team, dict]:
    """The team with the agents that a run or an exported team holds, see `checkpoint.restore_team`.

    ``which`` applies only to a run: an exported team has one state. Adapters exported on another base model
    of the same architecture are refused with ``same_base`` (always for a run); otherwise there is a warning.
    ``names``: the names of ``agents`` in the folder, if they differ.
    """
    if not is_team(folder):
        return checkpoint.restore_team(_checkpoints(folder), which, team, agents, names)
    held, names = read_team(folder), dict(names or {})
    saved = renamed(held["agents"], agents or team.agents, names, f"{folder}: the team")
    chosen = check_agents(_on_this_base(saved, team, same_base), team, agents, str(folder))
    members = [dataclasses.replace(m, trainable=jax.tree.map(jnp.copy, m.trainable)) for m in team.members]
    for member in members:
        for index, agent in enumerate(member.stack.agents):
            if agent in chosen and member.stack.learns:
                one = _weights(pathlib.Path(folder), saved[agent], member)
                one = jax.tree.map(lambda x, like: x.astype(like.dtype), one, member.trainable)
                member.trainable = agent_axis.put(member.trainable, one, index)
    return Team(tuple(members)), held


def _checkpoints(folder) -> pathlib.Path:
    return pathlib.Path(folder) / "checkpoints"


def _on_this_base(saved: dict, team: Team, same_base: bool) -> dict:
    """What is saved of the agents, with the names that the team's models have here; `restore_team` says when."""
    names = {agent: fields["model"] for agent, fields in describe_team(team).items()}
    changed = {}
    for agent, fields in saved.items():
        own = {name: value for name, value in fields.items() if name not in ("folder", "form", "base")}
        if agent in names and names[agent] != own["model"]:
            if (
                same_base
                and fields.get("form") != MERGED
                and not _same_folder(names[agent], fields.get("base"))
            ):
                raise UserError(
                    f"agent {agent!r} learned on {fields.get('base') or own['model']!r}, not on {names[agent]!r}"
                )
            logging.warning("agent %r learned on %r and plays on %r", agent, own["model"], names[agent])
            own["model"] = names[agent]
        changed[agent] = own
    return changed


def _same_folder(one: str, two: str | None) -> bool:
    """Whether two names of models are of one folder: an export keeps a base that was drawn from a seed."""
    return bool(two) and pathlib.Path(one).resolve() == pathlib.Path(two).resolve()


def _weights(folder: pathlib.Path, entry: dict, member: Member) -> dict:
    """One agent's own parameters, as the member's tree has them without the agent axis."""
    place = folder / str(entry.get("folder"))
    if entry.get("form") == MERGED:
        return jax.tree.map(np.asarray, weights.load(str(place), on_host=True).params)
    adapter = peft.load_adapter(place, member.stack.policy.config)
    scale = adapter.alpha / adapter.rank
    if not np.isclose(scale, member.stack.adapter_scale, rtol=1e-6):
        raise UserError(
            f"{place}: lora_alpha / r is {scale:g}; the config's team.alpha / team.rank is "
            f"{member.stack.adapter_scale:g}"
        )
    both = (adapter.lora, agent_axis.one_like(member.trainable))
    here, wanted = (jax.tree.map(lambda x: tuple(x.shape), tree) for tree in both)
    if here != wanted:
        raise UserError(
            f"{place}: its adapters are of other layers or another rank than the config's team.rank"
        )
    return adapter.lora
