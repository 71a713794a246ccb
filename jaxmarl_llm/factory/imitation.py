"""From a config to the demonstrations that its agents imitate."""

from collections.abc import Callable

from jaxmarl_llm.config import agent_settings, distil, planner
from jaxmarl_llm.config.imitation import FILE, on_rollouts
from jaxmarl_llm.config.systems import SFT
from jaxmarl_llm.factory import fusion, protocols
from jaxmarl_llm.protocols import worked
from jaxmarl_llm.systems import demonstration_sources, demonstrations
from jaxmarl_llm.systems.demonstrations import Demonstration, Encoded
from jaxmarl_llm.tasks.tools.toolbox import Toolbox, of_names
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import distributed, dotted
from jaxmarl_llm.utils.errors import UserError


def _print(line: str) -> None:
    if distributed.is_main():
        print(line, flush=True)


def load(config, task, team: Team, tell: Callable[[str], None] = _print) -> list[Encoded]:
    """The demonstrations of ``sft.source`` for the problems of the training task; [] where none are read.

    The task's own reference answers that are longer than their agent may write (``max_new_tokens``) are left out, and
    ``tell`` gets a line about how many; other demonstrations are the user's, and too long a text is refused.

    Raises:
      ValueError: for demonstrations that cannot be read or do not fit the team, its prompts or the sampler.
    """
    if config.train.system != SFT:
        return []
    source = config.sft.source
    if source.endswith(FILE):
        rows = demonstration_sources.read(source, task)
    elif source == "reference":
        rows = demonstration_sources.of_items(task, _references(config, task), source)
    else:
        answers = dotted.resolve(source, "sft.source")
        rows = demonstration_sources.of_items(task, answers, source, _reading(config, team), _worked(config))
    if on_rollouts(config):
        _check_task_prompts(rows, task)
    for agent in dict.fromkeys(row.agent for row in rows):
        if team[agent].remote:
            raise UserError(f"sft.source={source!r}: agent {agent!r} is no model of ours and cannot learn")
    tokenizers = {agent: team[agent].tokenizer for agent in team.agents}
    limits = agent_settings.limits(config, team.agents)
    if source == "reference":
        rows = _short_enough(rows, tokenizers, limits, tell)
    encoded = demonstrations.encode(
        rows,
        tokenizers,
        max_prompt_tokens=config.sampling.max_prompt_tokens,
        max_new_tokens=limits,
        stop=tuple(config.sampling.stop),
        truncate=config.sampling.long_prompts == "truncate",
    )
    return fusion.with_teachers(config, encoded, tokenizers) if distil.used(config) else encoded


def _check_task_prompts(rows: list[Demonstration], task) -> None:
    """UserError for a demonstration with another prompt than the task's own: that of the rollout would replace it."""
    prompts = {str(item.task_id): task.prompts(item) for item in task.items}
    for row in rows:
        if list(row.messages) != list(prompts[row.name][row.agent]):
            raise UserError(
                f"sft.prompts='rollout': the demonstration of {row.agent!r} for problem {row.name!r} has a prompt "
                "of its own; return {agent: text}, or give sft.prompts='given'"
            )


def _reading(config, team: Team) -> demonstration_sources.Reading | None:
    """How agents read each other in a turn of ``train.protocol``; None where they do not."""
    name = config.train.protocol
    if name not in protocols.SHOWS:
        return None
    steps = protocols.STEPS.get(name, protocols.one_by_one)
    return demonstration_sources.Reading(
        steps, protocols.SHOWS[name], [a for a in team.agents if not team[a].remote]
    )


def _worked(config) -> worked.Worked | None:
    """What agents read and write in a solution with tools; None where they have none, or several have them."""
    if not config.tools.functions:
        return None
    tools = Toolbox(of_names(tuple(config.tools.functions)))
    if planner.of(config):
        return worked.of_planner(tools)
    return worked.of_one(tools) if len(config.team.agents) == 1 else None


def solutions(config, task, source: str) -> tuple[dict[str, list[worked.Part]], tuple[str, ...]]:
    """The steps of the solutions of a task's problems, by the problem's name, and the names of the tools.

    source: dotted name of a function from a problem to its `Solution`, or None where it has none.

    ValueError for a team whose steps are not known, and what `demonstration_sources.of_items` refuses.
    """
    parts = _worked(config)
    if parts is None:
        agents = tuple(config.team.agents)
        raise UserError(
            f"team.agents={agents!r}: steps are known of one agent with tools, and of train.protocol='planner'"
        )
    solve = dotted.resolve(source, "sft.source")
    rows: dict[str, list[worked.Part]] = {}
    for row in demonstration_sources.of_items(task, solve, source, worked=parts):
        rows.setdefault(row.name, []).append((row.agent, row.messages, row.text))
    by_item = {item.task_id: rows[str(item.task_id)] for item in task.items if str(item.task_id) in rows}
    return by_item, tuple(tool.name for tool in of_names(tuple(config.tools.functions)))


def _short_enough(
    rows: list[Demonstration], tokenizers, limits: dict[str, int], tell: Callable[[str], None]
) -> list[Demonstration]:
    """Reference answers that the sampler could draw, of ``limits`` tokens by agent; tells how many others there are."""
    kept = demonstrations.fitting(rows, tokenizers, limits)
    same = len(set(limits.values())) == 1
    most = min(limits.values()) if same else ", ".join(f"{n} of {agent}" for agent, n in limits.items())
    if not kept:
        raise UserError(
            f"sampling.max_new_tokens={most}: every one of the {len(rows)} reference answers is longer"
        )
    if len(kept) < len(rows):
        tell(
            f"{len(rows) - len(kept)} of {len(rows)} reference answers are longer than "
            f"sampling.max_new_tokens={most} and are left out"
        )
    return kept


def _references(config, task):
    """The task's function from an item to its reference answers."""
    own = getattr(task, "references", None)
    if own is None:
        raise UserError(
            f"sft.source='reference': task.kind={config.task.kind!r} has no reference answers; give a "
            f"{FILE} file or the dotted name of a function"
        )
    return own
