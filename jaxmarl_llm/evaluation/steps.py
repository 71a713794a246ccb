"""How well agents with tools take single steps, each after the right steps before it (arXiv 2401.07324, static scores).

Every step of a solution is drawn once, greedily, from the prompt that the solution itself leads to. So a
mistake counts once, while in a whole conversation all steps after it would also be wrong.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from jaxmarl_llm import rollout
from jaxmarl_llm.evaluation.evaluator import plan_batches
from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols import Episode, item_name
from jaxmarl_llm.protocols.worked import Part
from jaxmarl_llm.rollout.requests import encode_prompt
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Sizes, plan_sizes
from jaxmarl_llm.tasks.planned import route_of
from jaxmarl_llm.tasks.tools.toolbox import MARK, ReadCall, read_call
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils.statistics.bootstrap import ratio

# Names of the scores, in their order.
ROUTE, CALL_RIGHT, NO_SUCH_TOOL, ARGUMENTS, TEXT = "route", "call", "no such tool", "arguments", "text"


class Written(NamedTuple):
    """A step of a solution, with its problem's name, and the agent's text for it."""

    problem: str
    part: Part
    text: str


@dataclasses.dataclass(frozen=True)
class Given:
    """A protocol with given requests, request n for item n; nothing is judged."""

    parts: Sequence[Part]

    def step(self, state: Episode) -> list[SpeakRequest]:
        """All requests, once."""
        if state.turns:
            return []
        return [
            SpeakRequest(agent, n, tuple(messages), 1) for n, (agent, messages, _) in enumerate(self.parts)
        ]

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """Never judges anything."""
        return []


def draw(
    team: Team,
    trainables: Sequence[Any],
    task: Any,
    rows: Mapping[str, Sequence[Part]],
    *,
    params: SamplingParams,
    max_prompt_tokens: int,
    long_prompts: str = "error",
    steps_per_batch: int = 32,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[Written]:
    """The team's greedy text for each step, agent by agent.

    Args:
      team, trainables: the agents, and the parameters of each member of the team.
      task: the task whose items have these steps.
      rows: the steps of each item, by its name.
      params: how tokens are drawn, apart from randomness.
      max_prompt_tokens, long_prompts: see `rollout.requests.encode_prompt`.
      steps_per_batch: steps of an agent that are drawn together; one program serves all batches.
      progress: called after every batch with the number of steps done and of all steps.
    """
    scorer = TaskScorer.of_team(task, team, "aligned")
    steps = [(i, part) for i, item in enumerate(task.items) for part in rows[item.task_id]]
    drawn: list[Written] = []
    for agent in dict.fromkeys(part[0] for _, part in steps):
        own = [(i, part) for i, part in steps if part[0] == agent]
        limits = dict(max_prompt_tokens=max_prompt_tokens, long_prompts=long_prompts)
        sizes = _sizes(team, task, own, steps_per_batch, **limits)
        options = dict(params=params, last_greedy=True, prompt_sizes=sizes, **limits)
        for number, places in plan_batches(len(own), steps_per_batch):
            ids, parts = zip(*(own[n] for n in places), strict=True)
            forest = rollout.run(Given(parts), team, trainables, scorer, ids, jax.random.key(0), **options)
            names = [task.items[i].task_id for i in ids[:number]]
            texts = [turn.text for turn in forest.turns[:number]]
            drawn += map(Written, names, parts[:number], texts)
            progress(len(drawn), len(steps))
    return drawn


def _sizes(
    team: Team,
    task: Any,
    steps: Sequence[tuple[int, Part]],
    batch: int,
    max_prompt_tokens: int,
    long_prompts: str,
) -> list[Sizes | None]:
    """One width for the prompts of all steps of an agent, by member of the team; None for other members."""
    agent = steps[0][1][0]
    member, limits = team[agent], (max_prompt_tokens, long_prompts)
    if member.remote:
        return [None] * len(team.members)
    requests = [SpeakRequest(agent, i, tuple(messages), 1) for i, (_, messages, _) in steps]
    names = [item_name(task.items[i]) for i, _ in steps]
    prompts = [
        encode_prompt(member.tokenizer, request, *limits, name)
        for request, name in zip(requests, names, strict=True)
    ]
    planned = plan_sizes({agent: prompts}, batch).largest()
    return [planned if each is member else None for each in team.members]


def scores(right: str, text: str, tools: Sequence[str]) -> dict[str, float]:
    """The scores by name of a text whose right version is ``right``; its kind decides which scores.

    ``route``: whether it leads to the same next step: the planner's route, or a call or an answer. For a
    call: ``call``, whether tool and arguments are the same; ``no such tool``, whether the tool is not among
    ``tools``; ``arguments``, the F1 of the arguments with their values, 0 for another tool. ``text``: whether
    a text that neither routes nor calls is the same, apart from surrounding spaces.
    """
    row: dict[str, float] = {}
    if route_of(right) is not None:
        return {ROUTE: float(route_of(text) == route_of(right))}
    calls = MARK in right
    row[ROUTE] = float((MARK in text) == calls)
    if not calls:
        return row | {TEXT: float(text.strip() == right.strip())}
    wanted, given = read_call(right), _call(text)
    row[CALL_RIGHT] = float(given == wanted)
    row[NO_SUCH_TOOL] = float(given is not None and given.name not in tools)
    row[ARGUMENTS] = _f1(wanted, given)
    return row


def table(drawn: Sequence[Written], tools: Sequence[str]) -> dict[str, dict[str, float]]:
    """Means of the `scores` in percent, by agent and name, and the number of steps in each mean.

    With the ends ``<name>_low`` and ``<name>_high`` of their 95 % intervals over the problems; a single
    problem has no interval.
    """
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for problem, (agent, _, right), text in drawn:
        for name, value in scores(right, text, tools).items():
            by_problem = values.setdefault(agent, {}).setdefault(name, {})
            by_problem.setdefault(problem, []).append(value)
    rows: dict[str, dict[str, float]] = {}
    for agent, by_name in values.items():
        row = rows.setdefault(agent, {})
        for name, by_problem in by_name.items():
            own = by_problem.values()
            mean, low, high = ratio([100 * sum(each) for each in own], [len(each) for each in own])
            row[name] = float(mean)
            if len(own) > 1:
                row |= {f"{name}_low": float(low), f"{name}_high": float(high)}
        row["steps"] = float(max(sum(map(len, own.values())) for own in by_name.values()))
    return rows


def _call(text: str) -> ReadCall | None:
    try:
        return read_call(text)
    except ValueError:
        return None


def _f1(wanted: ReadCall, given: ReadCall | None) -> float:
    """F1 of the arguments, names and values together."""
    if given is None or given.name != wanted.name or not isinstance(given.arguments, dict):
        return 0.0
    common = sum(
        name in given.arguments and given.arguments[name] == v for name, v in wanted.arguments.items()
    )
    total = len(wanted.arguments) + len(given.arguments)
    return 2 * common / total if total else 1.0
