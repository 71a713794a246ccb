"""Costs of a search or an iteration: calls and tokens by agent, programs executed, CPU time of measuring."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmarl_llm.forest import STEP, Forest, Turn
from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.utils.errors import UserError

# other: lessons, reflections, plans, lines and all other unjudged texts; value: texts read by a value model
KINDS = ("program", "other", "value")


@dataclasses.dataclass(frozen=True)
class Usage:
    """Number of completions and their tokens; the prompt counts once for every completion.

    cut_prompts: completions whose prompt was too long and lost its beginning.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut_prompts: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cut_prompts + other.cut_prompts,
        )


@dataclasses.dataclass(frozen=True)
class Measurements:
    """Programs measured, and the CPU time of measuring.

    programs: all of them. reused: those that did not run, because the same program had been measured before.
    seconds: CPU time (s) of the others.
    """

    programs: int = 0
    reused: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Measurements") -> "Measurements":
        return Measurements(
            self.programs + other.programs, self.reused + other.reused, self.seconds + other.seconds
        )


@dataclasses.dataclass(frozen=True)
class Ledger:
    """Costs of a search or an iteration; ledgers can be added, ``Ledger()`` is zero.

    Attributes:
      usage: by (agent, kind), see KINDS.
      search: programs measured in the search. held_out: programs measured again on held-out inputs or tests.
      expansions: in a search over steps, texts for which next lines were sampled.
    """

    usage: Mapping[tuple[str, str], Usage] = dataclasses.field(default_factory=dict)
    search: Measurements = Measurements()
    held_out: Measurements = Measurements()
    expansions: int = 0

    def __add__(self, other: "Ledger") -> "Ledger":
        keys = dict.fromkeys((*self.usage, *other.usage))
        usage = {key: self.usage.get(key, Usage()) + other.usage.get(key, Usage()) for key in keys}
        expansions = self.expansions + other.expansions
        return Ledger(usage, self.search + other.search, self.held_out + other.held_out, expansions)

    def total(self, agent: str | None = None) -> Usage:
        """Usage of one agent, or of all agents."""
        return sum((usage for (name, _), usage in self.usage.items() if agent in (None, name)), Usage())

    def cost(self, models: Mapping[str, str], prices: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """The price of each agent's tokens, in the currency of ``prices``.

        Args:
          models: model names by agent.
          prices: by model, (price of a million prompt tokens, price of a million completion tokens).

        Raises:
          ValueError: an agent has no model, or its model has no price.
        """
        costs = {}
        for agent in dict.fromkeys(agent for agent, _ in self.usage):
            model = models.get(agent)
            if model not in prices:
                known = ", ".join(prices) or "none"
                raise UserError(
                    f"agent {agent!r} has the model {model!r}, which has no price; known: {known}"
                )
            used, (prompt_price, completion_price) = self.total(agent), prices[model]
            costs[agent] = (
                used.prompt_tokens * prompt_price + used.completion_tokens * completion_price
            ) / 1e6
        return costs

    def as_dict(
        self, models: Mapping[str, str] | None = None, prices: Mapping[str, Sequence[float]] | None = None
    ) -> dict[str, Any]:
        """The ledger as JSON data: totals, ``agents``, programs measured, and, if prices are given, ``cost``.

        Raises:
          ValueError: as in `cost`.
        """
        agents: dict[str, dict] = {}
        for (agent, kind), used in self.usage.items():
            agents.setdefault(agent, {})[kind] = dataclasses.asdict(used)
        data = dataclasses.asdict(self.total()) | {"agents": agents}
        data |= {"search": dataclasses.asdict(self.search), "held_out": dataclasses.asdict(self.held_out)}
        data |= {"expansions": self.expansions}
        if prices is not None:
            costs = self.cost(models or {}, prices)
            data["cost"] = {"total": sum(costs.values()), "agents": costs}
        return data


def forest_costs(
    forest: Forest, held_out: Sequence[Outcome] = (), values: Sequence[int] = (), valuer: str = ""
) -> Ledger:
    """Costs of a forest; programs measured are counted if its judgements are `ProgramJudgement`s.

    held_out: outcomes of programs that were measured again. values: for every text, tokens that a value model
    read; valuer: the agent to which this model belongs.
    """
    judged = {i: joint for joint in forest.joints for i in joint.turns}
    usage: dict[tuple[str, str], Usage] = {}
    for turn in forest.turns:
        key = (turn.agent, "program" if turn.id in judged else "other")
        usage[key] = usage.get(key, Usage()) + Usage(1, *turn.tokens, turn.cut > 0)
    outcomes = [
        getattr(joint.judgement, "outcomes", {}).get(forest.turns[i].agent) for i, joint in judged.items()
    ]
    if any(values):
        usage[valuer, "value"] = Usage(len(values), sum(values))
    search = _measured([o for o in outcomes if o is not None])
    return Ledger(usage, search, _measured(held_out), len(expansions(forest.turns)))


def expansions(turns: Sequence[Turn]) -> set[int]:
    """The requests for next lines that some turns answer."""
    return {turn.request for turn in turns if turn.kind == STEP}


def _measured(outcomes: Sequence[Outcome]) -> Measurements:
    fresh = [outcome.seconds for outcome in outcomes if not outcome.reused]
    return Measurements(
        sum(o.executions for o in outcomes), sum(o.reused for o in outcomes), float(sum(fresh))
    )
