"""Agents that are endpoints or scripts: how `team.models` names them, and which fields they do not allow."""

from collections.abc import Mapping

from jaxmarl_llm.config import systems

EXPERT = "expert:"  # followed by a model's name at the endpoint of config.expert
SCRIPTED = "scripted:"
# Every script, and the task that it knows.
SCRIPTS = {
    "scripted:mixture": "optimisation", "scripted:repeater": "reasoning", "scripted:follower": "lock",
    "scripted:answerer": "reasoning", "scripted:describer": "coding", "scripted:cheap": "reasoning",
    "scripted:mid": "reasoning", "scripted:dear": "reasoning", "scripted:planner": "world",
    "scripted:guide": "world", "scripted:author": "commits", "scripted:silent": "commits",
}  # fmt: skip


def names(config: Mapping) -> tuple[str, ...]:
    """The model of each agent."""
    return tuple(config["team"]["models"]) or (config["model"],) * len(config["team"]["agents"])


def is_remote(name: str) -> bool:
    """Whether a model's name stands for an endpoint or a script."""
    return isinstance(name, str) and name.startswith((EXPERT, SCRIPTED))


def agents(config: Mapping) -> dict[str, str]:
    """The agents that are endpoints or scripts, with their models' names."""
    pairs = zip(config["team"]["agents"], names(config), strict=False)
    return {agent: name for agent, name in pairs if is_remote(name)}


def stacks(config: Mapping) -> dict[str, tuple[str, ...]]:
    """The agents of every model in this process by its name, in the order of the team's stacks."""
    local = set(config["team"]["agents"]).difference(agents(config))
    made: dict[str, tuple[str, ...]] = {}
    for agent, name in zip(config["team"]["agents"], names(config), strict=False):
        if agent in local:
            made[name] = (*made.get(name, ()), agent)
    return made


def problems(config, base) -> list[str]:
    """One sentence per field that such an agent does not allow."""
    bad, system = [], config.train.system
    for agent, name in agents(config).items():
        where = f"the model {name!r} of agent {agent!r}"
        if name == EXPERT:
            bad.append(f"{where}: allowed is expert:<model's name at the endpoint of config.expert>")
        elif name.startswith(SCRIPTED) and SCRIPTS.get(name) != config.task.kind:
            known = " and ".join(f"{script} of task.kind={kind!r}" for script, kind in SCRIPTS.items())
            bad.append(f"{where}: the scripts are {known}, it is {config.task.kind!r}")
        elif name.startswith(EXPERT) and config.expert.kind == "local":
            bad.append(
                f"{where}: expert.kind='local' has no endpoint; give the model's name without {EXPERT}"
            )
        partner = system == "sweet" and agent == tuple(config.team.agents)[-1]  # whose texts nobody scores
        if name == "scripted:describer" and config.train.protocol != "dialogue":
            bad.append(f"{where}: it replies to questions, allowed is train.protocol='dialogue'")
        if name == "scripted:guide" and (agent, config.task.source[:4]) != (config.team.agents[0], "ball"):
            bad.append(f"{where}: it is the adviser, the first agent, of task.source='ball'")
        if system in (*systems.CRITICS, *systems.FROM_PAIRS) and not partner:
            bad.append(f"train.system={system!r}: it reads what agents think, and {where} does not show it")
        if system == "maporl" and config.maporl.verifier:
            bad.append(f"maporl.verifier=True: it reads the tokens of all agents, and {where} has others")
        if not config.model_options.chat:
            bad.append(f"model_options.chat=False: {where} is reached by chats, which its endpoint writes")
        if config.train.counterfactual == "reference":
            bad.append(f"train.counterfactual='reference': {where} has no untrained form")
    return bad
