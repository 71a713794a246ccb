"""What may stand in a config about what a team begins with: a warm-up, or another run."""

import re

from jaxmarl_llm.config.common import ConfigDict, base_config, field


def begins(config: ConfigDict) -> bool:
    """Whether the team begins with parameters that another run learned."""
    return bool(config.team.begin or config.warm_up.steps)


def check_read(config: ConfigDict, workdir) -> None:
    """ValueError, naming the field, if a team that begins from another run is to answer without a run folder.

    What it begins with is in its run folder only (`jaxmarl_llm.runs.begin`).
    """
    if workdir or not begins(config):
        return
    path = "team.begin" if config.team.begin else "warm_up.steps"
    raise ValueError(
        f"{path}={field(config, path)!r}: without --workdir the untrained team would answer; give the run's "
        f"folder, or say --config.{path}={field(base_config(), path)!r}"
    )


def problems(config: ConfigDict) -> list[str]:
    """One sentence per field about the begin that cannot be."""
    return _warm_up(config) + _begin(config.team)


def _warm_up(config: ConfigDict) -> list[str]:
    """What does not go with a warm-up, or says nothing without."""
    c = config.warm_up
    if not c.steps:
        unread = [name for name in ("protocol", "folder") if c[name]]
        return [f"warm_up.{name}={c[name]!r}: warm_up.steps is 0, allowed is ''" for name in unread]
    bad = []
    if config.team.begin:
        bad.append(f"team.begin={config.team.begin!r}: with warm_up.steps={c.steps} the warm-up is the begin")
    if config.team.mode == "frozen":
        bad.append(f"warm_up.steps={c.steps}: team.mode='frozen' learns nothing, allowed is 0")
    if (c.protocol or config.train.protocol) == "lessonl":
        bad.append(
            f"warm_up.protocol={c.protocol!r}: demonstrations have no lessons; name another "
            "protocol, such as 'repeated'"
        )
    return bad


def _begin(c: ConfigDict) -> list[str]:
    """What does not describe the run that a team begins from."""
    bad, agents, base = [], tuple(c.agents), base_config().team
    if not c.begin:
        for name in ("begin_map", "begin_step"):
            value = tuple(c[name]) if isinstance(c[name], list) else c[name]  # of a saved config
            if value != base[name]:
                bad.append(f"team.{name}={value!r}: team.begin is '', allowed is {base[name]!r}")
        return bad
    if c.mode == "frozen":
        bad.append(f"team.begin={c.begin!r}: team.mode='frozen' has no parameters to begin with")
    if not re.fullmatch(r"latest|best|\d+", c.begin_step):
        bad.append(f"team.begin_step={c.begin_step!r}: allowed are latest, best, or a number of iterations")
    pairs = [text.split("=") if type(text) is str else [] for text in c.begin_map]
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        return [*bad, f"team.begin_map={tuple(c.begin_map)!r}: allowed are pairs such as 'aux1=aux'"]
    names = [pair[0] for pair in pairs]
    if len(set(names)) < len(names) or not set(names) <= set(agents):
        bad.append(f"team.begin_map={tuple(c.begin_map)!r}: before '=' allowed is each of {agents!r} once")
    return bad
