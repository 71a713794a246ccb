"""Settings of single agents: ``config.team.agent.<name>``, and the values of agents without such settings.

Agents are named by the user, so the section of an agent is made when a config file, a flag or a member of a
sweep names it (`declare`). A field that is empty (None) takes the value that all agents share.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ml_collections import config_dict

from jaxmarl_llm.config import remote, tools
from jaxmarl_llm.config.fields import Field, end_of, within
from jaxmarl_llm.config.options import TAKEN, ConfigDict, is_taken
from jaxmarl_llm.utils.errors import UserError

# field: (its type, the field that all agents share)
FIELDS: dict[str, tuple[Any, str]] = {
    "trainable": (bool, ""),
    "lr": (float, "train.lr"),
    "temperature": (float, "sampling.temperature"),
    "top_p": (float, "sampling.top_p"),
    "top_k": (int, "sampling.top_k"),
    "min_p": (float, "sampling.min_p"),
    "max_new_tokens": (int, "sampling.max_new_tokens"),
}
SAMPLING = tuple(FIELDS)[2:]
OF_ENDPOINTS = ("temperature", "max_new_tokens")  # what an agent behind an endpoint reads


def paths(texts: Iterable[str]) -> list[tuple[str, str]]:
    """(agent, field) of every dotted name ``team.agent.<agent>.<field>`` whose field exists."""
    matches = (re.fullmatch(r"team\.agent\.([A-Za-z_]\w*)\.(\w+)", text, re.ASCII) for text in texts)
    return [(m[1], m[2]) for m in matches if m and m[2] in FIELDS]


def declare(config: ConfigDict, texts: Iterable[str]) -> None:
    """Give every agent in a dotted name ``team.agent.<agent>.<field>`` a section with all fields.

    Existing values stay. New ones are empty: the agent has the value that all agents share.

    UserError for an agent whose name no section can have (`is_taken`).
    """
    named = paths(texts)
    for agent, name in named:
        if is_taken(agent):
            raise UserError(f"team.agent.{agent}.{name}: no agent can be called {agent!r}, {TAKEN}")
    with config.unlocked():
        for agent, _ in named:
            if agent not in config.team.agent:
                config.team.agent[agent] = ConfigDict()
            section = config.team.agent[agent]
            for name, (kind, _) in FIELDS.items():
                if name not in section:
                    section[name] = True if kind is bool else config_dict.placeholder(kind)


def own(config: Mapping, agent: str, name: str):
    """The agent's own value of a field of `FIELDS`, None where it has none."""
    return config["team"]["agent"].get(agent, {}).get(name)


def trainable(config: Mapping, agent: str) -> bool:
    """Whether the agent learns: it is no endpoint or script, and not ``trainable=False``."""
    return own(config, agent, "trainable") is not False and agent not in remote.agents(config)


def value(config: Mapping, agent: str, name: str):
    """The agent's value of a field of `FIELDS` other than ``trainable``: its own, or the shared one."""
    given = own(config, agent, name)
    section, _, shared = FIELDS[name][1].partition(".")
    return config[section][shared] if given is None else given


def sampling(config: Mapping, agent: str) -> dict:
    """How the agent draws: its value of every field of `SAMPLING`."""
    return {name: value(config, agent, name) for name in SAMPLING}


def limits(config: Mapping, agents: Iterable[str]) -> dict[str, int]:
    """The longest completion of each of the given agents, in tokens."""
    return {agent: value(config, agent, "max_new_tokens") for agent in agents}


def longest(config: Mapping) -> int:
    """The longest completion of any agent, in tokens."""
    return max(limits(config, config["team"]["agents"]).values())


def in_next_prompt(config: ConfigDict) -> dict[str, int]:
    """For each agent whose next prompt holds its last text: the longest such text, in tokens.

    These are all agents if another turn follows, except in a world, where the prompt of each turn is new and
    known before. Agents that call tools always belong to them, because another prompt follows a call.
    """
    if config.train.turns > 1 and config.task.kind != "world":
        return limits(config, config.team.agents)
    return limits(config, tools.callers(config)) if tools.offered(config) else {}


def problems(config: ConfigDict, shared: Mapping[str, Field]) -> list[str]:
    """One sentence per invalid field of ``team.agent``; ``shared``: the fields that all agents share."""
    bad, agents = [], tuple(config.team.agents)
    for agent, section in config.team.agent.items():
        where = f"team.agent.{agent}"
        if agent not in agents:
            bad.append(f"{where}: there is no such agent, team.agents={agents!r}")
        elif not isinstance(section, (ConfigDict, dict)):
            bad.append(f"{where}={section!r}: must be a section with {', '.join(FIELDS)}")
        else:
            bad += [s for name in section for s in _wrong(config, agent, name, section[name], shared)]
    return bad


def _wrong(config: ConfigDict, agent: str, name: str, given: Any, fields: Mapping[str, Field]) -> list[str]:
    """What is wrong with one field of one agent."""
    path = f"team.agent.{agent}.{name}"
    if name not in FIELDS:
        return [f"{path}: there is no such field; allowed are {', '.join(FIELDS)}"]
    kind, shared = FIELDS[name]
    if kind is bool:
        return [] if given in (None, True, False) else [f"{path}={given!r}: allowed are True and False"]
    if given is None:
        return []
    if type(given) is not kind and not (kind is float and type(given) is int):
        return [f"{path}={given!r}: must be of type {kind.__name__}, or None for {shared}"]
    low, high = fields[shared].low, fields[shared].high
    if not within(given, low, high):
        return [f"{path}={given!r}: allowed is {low} to {end_of(high)}"]
    if name == "temperature" and given == 0 and trainable(config, agent):
        return [f"{path}=0: training needs samples that differ; allowed: any number above 0"]
    return _unread(config, agent, path, name)


def _unread(config: ConfigDict, agent: str, path: str, name: str) -> list[str]:
    """A field that is set but not read."""
    if agent in remote.agents(config) and name not in OF_ENDPOINTS:
        return [f"{path}: the agent speaks through an endpoint or a script, which reads no {name}"]
    if name == "lr" and not trainable(config, agent):
        return [f"{path}: the agent is not trained (team.agent.{agent}.trainable=False)"]
    return []


def known_fields(config: Mapping) -> list[str]:
    """Dotted names of the fields that each agent of a config may have."""
    return [f"team.agent.{agent}.{name}" for agent in config["team"]["agents"] for name in FIELDS]


def check_training(config: ConfigDict, name: str) -> None:
    """ValueError, with ``name`` for the config, if no agent learns."""
    agents = tuple(config.team.agents)
    if not any(trainable(config, agent) for agent in agents) and not all(
        agent in remote.agents(config) for agent in agents
    ):
        raise UserError(
            f"{name} cannot be trained: no agent learns, team.agent.<name>.trainable is False for "
            f"{', '.join(agents)}"
        )
