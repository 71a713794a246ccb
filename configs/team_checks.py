"""What may stand in a config about the team: the agents' names, and a model for each."""

import re

from configs.common import ConfigDict

# What metrics begin with that are no agent's; those of an agent begin with its name.
RESERVED = (
    "credit", "eval", "eval_executor", "eval_greedy", "executor", "expert", "lessons", "madpo", "memory",
    "preference", "reward_model", "seconds", "step", "train",
)  # fmt: skip


def found(config: ConfigDict) -> list[str]:
    """One sentence per field of the team that cannot be."""
    agents, models = tuple(config.team.agents), config.team.models
    bad = _names(agents)
    if models and len(models) != len(agents):
        bad.append(f"team.models={models!r}: allowed is one model per agent ({len(agents)}), or none")
    if config.task.centralised and len(agents) != 1:
        bad.append(f"team.agents={agents!r}: task.centralised allows one, who writes all roles")
    return bad


def _names(agents: tuple) -> list[str]:
    """What is wrong with the agents' names: they begin metrics, and name folders of checkpoints."""
    where = f"team.agents={agents!r}:"
    odd = [
        name for name in agents if type(name) is not str or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
    ]
    if odd:
        sentence = "names are made of letters, digits and _, and do not begin with a digit"
        return [f"{where} {odd[0]!r} is not allowed: {sentence}"]
    if len(set(agents)) != len(agents) or not agents:
        return [f"{where} allowed are one or more different names"]
    taken = [name for name in agents if name in RESERVED]
    return [f"{where} {taken[0]!r} is what other metrics begin with, choose another name"] if taken else []
