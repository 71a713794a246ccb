"""What may stand in a config about the task: roles of coding, what a reward of one's own replaces, advice."""

import re

from jaxmarl_llm.config import programs
from jaxmarl_llm.config.common import ConfigDict, base_config, field

MOST_ROLES = 8  # of a coding team: the executor runs each agent's function in a process of its own
# What the task's own reward reads, and a reward of the user's does not.
OF_THE_TASKS_REWARD = ("task.held_back", "task.cooperation", "task.bands", "task.matching")


def asks_expert(config: ConfigDict) -> bool:
    """Whether an external expert is asked between turns."""
    c = config.train
    return c.turns > 1 and c.protocol not in programs.METHODS and config.task.feedback == "expert_edits"


def problems(config: ConfigDict) -> list[str]:
    """One sentence per field of the task that cannot be."""
    return _own_reward(config) + _roles(config) + _advice(config) + _centralised(config)


def _own_reward(config: ConfigDict) -> list[str]:
    """Settings of the task's reward, where one of the user's takes its place."""
    reward, base = config.task.reward, base_config()
    paths = [path for path in OF_THE_TASKS_REWARD if reward and field(config, path) != field(base, path)]
    return [
        f"{path}={field(config, path)!r}: task.reward={reward!r} judges in place of the task's reward, "
        f"allowed is {field(base, path)!r}"
        for path in paths
    ]


def _roles(config: ConfigDict) -> list[str]:
    """Roles of a coding team: as many as the executor takes, and named by one field only."""
    roles, agents, coding = tuple(config.task.roles), tuple(config.team.agents), config.task.kind == "coding"
    if roles and not (coding and config.task.centralised):
        return [f"task.roles={roles!r}: needs task.kind='coding' and task.centralised=True, allowed is ()"]
    names = all(type(name) is str and re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) for name in roles)
    if roles and not (names and 2 <= len(roles) == len(set(roles)) <= MOST_ROLES):
        return [f"task.roles={roles!r}: allowed are 2 to {MOST_ROLES} different names, letters, digits and _"]
    if coding and len(agents) > MOST_ROLES:
        return [f"team.agents={agents!r}: task.kind='coding' allows 1 to {MOST_ROLES} names"]
    return []


def _advice(config: ConfigDict) -> list[str]:
    """An expert that is never asked."""
    if config.task.feedback == "expert_edits" and config.train.turns == 1:
        return [
            "task.feedback='expert_edits': with train.turns=1 no turn follows, so no expert advises, allowed "
            "are train.turns=2 or more, or another feedback"
        ]
    return []


def _centralised(config: ConfigDict) -> list[str]:
    """One agent for all roles, in a task that has no roles."""
    if config.task.centralised and config.task.kind in programs.JUDGED_ALONE:
        return [f"task.centralised=True: task.kind={config.task.kind!r} has one role, allowed is False"]
    return []
