"""Combine agents of several runs as members of one team that write texts together."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

from jaxmarl_llm import saved_agents
from jaxmarl_llm.config import remote
from jaxmarl_llm.factory import built_models, inputs, teams
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils.errors import UserError


class Origin(NamedTuple):
    """Origin of a member: its name in the new team, and its agent in a run or an exported team."""

    name: str
    folder: str
    agent: str
    model: str


def origins(workdirs: Sequence[str], configs: Sequence, chosen: Sequence[str] = ()) -> list[Origin]:
    """The local models among the agents of some folders, in order.

    ``chosen``: only agents with these names, in this order. Agents with the same name get a number appended.
    UserError for a name that no agent has, and for agents without parameters of their own.
    """
    rows = []
    for folder, config in zip(workdirs, configs, strict=True):
        if config.team.mode == "frozen":
            raise UserError(
                f"team.mode='frozen' of {folder}: its agents have no parameters of their own, all are the same"
            )
        pairs = zip(config.team.agents, remote.names(config), strict=True)
        rows += [(str(folder), agent, name) for agent, name in pairs if not remote.is_remote(name)]
    if missing := [name for name in chosen if name not in [agent for _, agent, _ in rows]]:
        known = ", ".join(dict.fromkeys(agent for _, agent, _ in rows))
        raise UserError(f"--agents={','.join(chosen)}: no run has a model {missing[0]!r}, only {known}")
    if chosen:
        rows = [row for name in chosen for row in rows if row[1] == name]
    agents = [agent for _, agent, _ in rows]
    numbers = [agents[: i + 1].count(agent) for i, agent in enumerate(agents)]
    names = [f"{a}_{n}" if agents.count(a) > 1 else a for a, n in zip(agents, numbers, strict=True)]
    return [Origin(name, *row) for name, row in zip(names, rows, strict=True)]


def check_runs(workdirs: Sequence[str], configs: Sequence) -> None:
    """UserError, naming the fields, for runs whose agents cannot form one team."""
    first = configs[0]
    for folder, config in zip(workdirs[1:], configs[1:], strict=True):
        for name in ("mode", "rank", "alpha", "targets"):
            if name != "mode" and first.team.mode != "adapters":
                continue
            one, two = first.team[name], config.team[name]
            if one != two:
                raise UserError(
                    f"{workdirs[0]} and {folder} do not go together: team.{name}: first {one!r}, second {two!r}"
                )
        drawn = set(built_models.BUILDERS).intersection((*remote.names(first), *remote.names(config)))
        if drawn and first.team.mode == "adapters" and first.seed != config.seed:
            raise UserError(
                f"{workdirs[0]} and {folder} do not go together: the base {min(drawn)!r} is drawn from the seed; "
                f"seed: first {first.seed}, second {config.seed}"
            )


def build(config, members: Sequence[Origin], which) -> Team:
    """The members as a team, with the parameters saved in the folders.

    Args:
      config: of the first run; all members use its sampling settings and stop texts.
      members: from `origins`.
      which: ``best``, ``latest`` or a step.

    Raises:
      ValueError: naming the difference, if the saved parameters do not fit.
    """
    config = config.copy_and_resolve_references()
    config.team.agents = tuple(member.name for member in members)
    config.team.models = tuple(member.model for member in members)
    team = teams.build_team(config)
    for folder in dict.fromkeys(member.folder for member in members):
        own = {member.name: member.agent for member in members if member.folder == folder}
        inputs.warn(folder, functools.partial(inputs.of_models, config, team))
        team, _ = saved_agents.restore_team(folder, which, team, tuple(own), own)
    return team
