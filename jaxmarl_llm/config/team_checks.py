"""What may stand in a config about the team: the agents' names, and a model for each."""

import math
import re

from jaxmarl_llm.config.common import ConfigDict, base_config

# What metrics begin with that are no agent's; those of an agent begin with its name.
RESERVED = (
    "credit", "eval", "eval_executor", "eval_greedy", "executor", "expert", "lessons", "madpo", "memory",
    "preference", "reward_model", "seconds", "sft", "spent", "step", "test", "test_greedy", "train",
)  # fmt: skip
WRITERS = {"examples": 3, "published": 5}  # by task.prompts: most agents of task.kind=tldr and arxiv


def problems(config: ConfigDict) -> list[str]:
    """One sentence per field of the team that cannot be."""
    agents, models = tuple(config.team.agents), config.team.models
    bad = _names(agents) + _models(config) + _targets(config.team)
    if models and len(models) != len(agents):
        bad.append(f"team.models={models!r}: allowed is one model per agent ({len(agents)}), or none")
    if config.task.centralised and len(agents) != 1:
        bad.append(f"team.agents={agents!r}: task.centralised allows one, who writes all roles")
    return bad + _writers(config.task, agents)


def _writers(c: ConfigDict, agents: tuple) -> list[str]:
    """More writers of a text than there are prompts for."""
    if c.kind not in ("tldr", "arxiv") or len(agents) <= WRITERS.get(c.prompts, math.inf):
        return []
    where = f"task.kind={c.kind!r} with task.prompts={c.prompts!r}"
    return [f"team.agents={agents!r}: {where} allows 1 to {WRITERS[c.prompts]} names"]


def _models(config: ConfigDict) -> list[str]:
    """Models without a name."""
    sentence = "allowed are bundled names, folders, .gguf files and hub ids"
    bad = [] if config.model else [f"model='': {sentence}"]
    if not all(type(name) is str and name for name in config.team.models):
        bad.append(f"team.models={tuple(config.team.models)!r}: {sentence}")
    return bad


def _targets(c: ConfigDict) -> list[str]:
    """Linear maps that cannot get an adapter, or none at all."""
    given, known = tuple(c.targets), base_config().team.targets
    if c.mode != "adapters" or given and set(given) <= set(known) and len(set(given)) == len(given):
        return []
    return [f"team.targets={given!r}: allowed are one or more of {', '.join(known)}"]


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
