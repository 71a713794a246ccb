"""Load the demonstrations that a config's agents imitate."""

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
    """The demonstrations of ``sft.source`` for the training problems; [] if the config reads none.

    The task's own reference answers are left out if they exceed their agent's ``max_new_tokens``, and
    ``tell`` gets a line with their number. In the user's demonstrations a text that is too long is an error.

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
    """UserError if a demonstration's prompt is not the task's: the prompt of the rollout would replace it."""
    prompts = {str(item.task_id): task.prompts(item) for item in task.items}
    for row in rows:
        if list(row.messages) != list(prompts[row.name][row.agent]):
            raise UserError(
                f"sft.prompts='rollout': the demonstration of {row.agent!r} for problem {row.name!r} has a prompt "
                "of its own; return {agent: text}, or give sft.prompts='given'"
            )


def _reading(config, team: Team) -> demonstration_sources.Reading | None:
    """How agents read each other's texts in a turn of ``train.protocol``; None if they do not."""
    name = config.train.protocol
    if name not in protocols.SHOWS:
        return None
    steps = protocols.STEPS.get(name, protocols.one_by_one)
    return demonstration_sources.Reading(
        steps, protocols.SHOWS[name], [a for a in team.agents if not team[a].remote]
    )


def _worked(config) -> worked.Worked | None:
    """What agents read and write in a solution with tools; None if no agent, or more than one, has tools."""
    if not config.tools.functions:
        return None
    tools = Toolbox(of_names(tuple(config.tools.functions)))
    if planner.of(config):
        return worked.of_planner(tools)
    return worked.of_one(tools) if len(config.team.agents) == 1 else None


def solutions(config, task, source: str) -> tuple[dict[str, list[worked.Part]], tuple[str, ...]]:
    """The solution steps of a task's problems, by problem name, and the names of the tools.

    source: dotted name of a function from a problem to its `Solution`, or to None if it has none.

    ValueError for a team whose steps are not known, and the errors of `demonstration_sources.of_items`.
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
    """Reference answers of at most ``limits`` tokens by agent; ``tell`` gets the number of longer ones."""
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
