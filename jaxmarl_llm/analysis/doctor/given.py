"""Check the inputs of a team's training: the demonstrations, and the run from which it starts."""

import collections

from jaxmarl_llm.analysis.doctor.result import Result, by_agent, check, failed
from jaxmarl_llm.config import agent_settings
from jaxmarl_llm.config.systems import SFT
from jaxmarl_llm.factory import imitation
from jaxmarl_llm.runs import begin, warm_up
from jaxmarl_llm.team import Team

BEGIN = "begin"


@check("demonstrations")
def demonstrations(config, task, team: Team) -> tuple[str, str]:
    """Read the demonstrations of the training, or of its warm-up, as these do.

    Args:
      config: the complete config, with its own token limits.
      task: the problems of the training split.
    """
    notes: list[str] = []
    stage = config if config.train.system == SFT else warm_up.stage(config)
    rows = imitation.load(stage, task, team, notes.append)
    counts = collections.Counter(row.agent for row in rows)
    longest = max(len(row.completion) for row in rows)
    shown = by_agent({agent: counts[agent] for agent in team.agents})
    idle = [agent for agent in team.agents if not counts[agent] and agent_settings.trainable(stage, agent)]
    notes += [f"{agent} has none and learns nothing" for agent in idle]
    status = "warn" if idle else "ok"
    return status, "; ".join([f"by agent: {shown}, the longest has {longest} tokens with its end", *notes])


def begun(config, team: Team) -> tuple[Team, Result]:
    """The team with the parameters of the run in ``team.begin``, or on failure unchanged with a failed check.

    ``config``: a config with ``team.begin``.
    """
    place = begin.source(config, "")
    try:
        team, meta = begin.read(config, team, place)
    except Exception as error:
        return team, failed(BEGIN, error)
    return team, Result(
        BEGIN, "ok", f"{place}: {', '.join(begin.learners(team))} after {meta['step']} iterations"
    )
