"""What a search or an iteration cost: calls and tokens by agent, programs executed, CPU time of measuring."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.tasks.outcomes import Outcome

KINDS = ("program", "other")  # other: lessons, reflections, plans, whatever is not judged


@dataclasses.dataclass(frozen=True)
class Usage:
    """Completions drawn, and tokens: every completion counts the prompt it answers.

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
class Measured:
    """Programs executed, and how many of these only in name, as the same one had been measured before.

    seconds: CPU time (s) of the others.
    """

    programs: int = 0
    reused: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Measured") -> "Measured":
        return Measured(
            self.programs + other.programs, self.reused + other.reused, self.seconds + other.seconds
        )


@dataclasses.dataclass(frozen=True)
class Ledger:
    """Costs that can be added. ``Ledger()`` is that of nothing.

    Attributes:
      usage: by agent and kind, see KINDS.
      search: programs of the search. held_out: those measured again for the record.
    """

    usage: Mapping[tuple[str, str], Usage] = dataclasses.field(default_factory=dict)
    search: Measured = Measured()
    held_out: Measured = Measured()

    def __add__(self, other: "Ledger") -> "Ledger":
        keys = dict.fromkeys((*self.usage, *other.usage))
        usage = {key: self.usage.get(key, Usage()) + other.usage.get(key, Usage()) for key in keys}
        return Ledger(usage, self.search + other.search, self.held_out + other.held_out)

    def total(self, agent: str | None = None) -> Usage:
        """Of an agent, or of all."""
        return sum((used for (name, _), used in self.usage.items() if agent in (None, name)), Usage())

    def cost(self, models: Mapping[str, str], prices: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """What the tokens of each agent cost, in the currency of the prices.

        Args:
          models: by agent.
          prices: by model, (of a million prompt tokens, of a million completion tokens).

        Raises:
          ValueError: an agent has no model, or its model no price.
        """
        costs = {}
        for agent in dict.fromkeys(agent for agent, _ in self.usage):
            model = models.get(agent)
            if model not in prices:
                known = ", ".join(prices) or "none"
                raise ValueError(
                    f"agent {agent!r} has the model {model!r}, which has no price; known: {known}"
                )
            used, (asked, drawn) = self.total(agent), prices[model]
            costs[agent] = (used.prompt_tokens * asked + used.completion_tokens * drawn) / 1e6
        return costs

    def as_dict(
        self, models: Mapping[str, str] | None = None, prices: Mapping[str, Sequence[float]] | None = None
    ) -> dict[str, Any]:
        """As JSON data: totals, ``agents``, what was measured, and with prices the ``cost``.

        Raises:
          ValueError: as of `cost`.
        """
        agents: dict[str, dict] = {}
        for (agent, kind), used in self.usage.items():
            agents.setdefault(agent, {})[kind] = dataclasses.asdict(used)
        told = dataclasses.asdict(self.total()) | {"agents": agents}
        told |= {"search": dataclasses.asdict(self.search), "held_out": dataclasses.asdict(self.held_out)}
        if prices is not None:
            costs = self.cost(models or {}, prices)
            told["cost"] = {"total": sum(costs.values()), "agents": costs}
        return told


def of(forest: Forest, held_out: Sequence[Outcome] = ()) -> Ledger:
    """Costs of a forest; of `ProgramJudgement`s also what was measured.

    held_out: outcomes of programs that were measured again.
    """
    judged = {i: joint for joint in forest.joints for i in joint.turns}
    usage: dict[tuple[str, str], Usage] = {}
    for turn in forest.turns:
        key = (turn.agent, "program" if turn.id in judged else "other")
        usage[key] = usage.get(key, Usage()) + Usage(1, *turn.tokens, turn.cut > 0)
    outcomes = [
        getattr(joint.judgement, "outcomes", {}).get(forest.turns[i].agent) for i, joint in judged.items()
    ]
    return Ledger(usage, _measured([o for o in outcomes if o is not None]), _measured(held_out))


def _measured(outcomes: Sequence[Outcome]) -> Measured:
    fresh = [outcome.seconds for outcome in outcomes if not outcome.reused]
    return Measured(sum(o.executions for o in outcomes), sum(o.reused for o in outcomes), float(sum(fresh)))
