"""A task in which one agent answers at a time, and every answer has a cost (`protocols.routed`)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from jaxmarl_llm.tasks.judgement import History, Judgement, check_batch
from jaxmarl_llm.tasks.types import Messages, Task
from jaxmarl_llm.utils.errors import UserError

STOP = "stop"  # the deciding agent writes this to accept the last answer


def named(text: str, words: Sequence[str]) -> str | None:
    """Which of some words, such as agents' names, the last line of a text is; None for any other line.

    >>> named("It is easy.\\ncheap.", ("cheap", "dear")), named("cheap or dear", ("cheap", "dear"))
    ('cheap', None)
    """
    match = re.search(last_line(words), text)
    return match.group(1) if match else None


def last_line(words: Sequence[str]) -> str:
    """A regular expression for texts whose last line is one of some words; its group is the word."""
    return rf"(?:^|\n) *({'|'.join(map(re.escape, words))}) *\.?\s*\Z"


class RoutedTask:
    """A task of one role that any of several agents may answer, as a sequential task.

    With q the quality of an answer, the task's return on a scale of 0..1, and q_0 = 0, the t-th answer of a route earns

        r_t = change (q_t - q_(t-1)) - cost of the agent

    so that with change = 1 a route earns the quality of its last answer minus the cost of all its answers.

    Args:
      task: a task with one agent, whose role it is.
      agents: names of the agents that may play it.
      costs: cost of an answer of each agent, in the same order, in units of q.
      change: see above.
      decides: an agent that only names who answers next; its cost is added to that of every answer. '' if
        there is none.
      token_prices: per agent, the prices of a thousand prompt tokens and of a thousand completion tokens;
        ``costs`` are then 0. They are charged after the rollout, when token counts are known
        (`forest.charges`).

    Parts: those of the task, for the last answer; ``quality`` and ``cost``, of the route so far; ``before``,
    what the route had earned before. An empty text counts as no answer and costs nothing. With ``decides``
    also ``no_route``: whether the route ended by a text that names no agent, either before the first answer,
    or after one and not `STOP`.
    """

    sequential = True
    reward_range = None

    def __init__(
        self,
        task: Task,
        agents: Sequence[str],
        costs: Sequence[float],
        change: float = 1.0,
        decides: str = "",
        token_prices: Sequence[tuple[float, float]] = (),
    ):
        if len(task.agents) != 1:
            raise UserError(f"agents of the task are {task.agents!r}; a route needs a task of one role")
        self.items, self.agents, (self._role,) = task.items, tuple(agents), task.agents
        self._task, self._change = task, change
        self._costs, self._decides = dict(zip(self.agents, costs, strict=True)), decides
        self._prices = dict(zip(self.agents, token_prices, strict=True)) if token_prices else {}
        self.part_names = (*task.part_names, "quality", "cost", "before", *["no_route"] * bool(decides))

    def prompts(self, item) -> dict[str, Messages]:
        """Chat messages: the same for all agents."""
        return dict.fromkeys(self.agents, self._task.prompts(item)[self._role])

    def references(self, item) -> dict[str, str] | None:
        """The task's reference answer, the same for every agent."""
        own = getattr(self._task, "references", None)
        if own is None:
            raise UserError("the task has no reference answers")
        return own(item) and dict.fromkeys(self.agents, own(item)[self._role])

    @property
    def prices_tokens(self) -> bool:
        """Whether answers are charged for their tokens."""
        return bool(self._prices)

    def price(self, agent: str, prompt_tokens: int, completion_tokens: int) -> float:
        """What an agent's tokens cost, in units of q."""
        prompt, completion = self._prices[agent]
        return (prompt * prompt_tokens + completion * completion_tokens) / 1000

    def charge(self, judgement: Judgement, own: float, before: float) -> Judgement:
        """A judgement minus its answer's cost; ``before``: the cost of earlier answers."""
        if judgement.total is None:
            return judgement
        parts = judgement.parts
        changed = {"cost": parts["cost"] + own + before, "before": parts["before"] - before}
        return dataclasses.replace(judgement, parts=parts | changed, total=judgement.total - own)

    def ended(self, judgement: Judgement, agent: str, after: str | None) -> Judgement:
        """A judgement with the part ``no_route``; ``after``: text that ended it after ``agent``'s answer."""
        if not self._decides or judgement.total is None:
            return judgement
        lost = agent == self._decides or after is not None and named(after, [STOP]) is None
        return dataclasses.replace(judgement, parts=judgement.parts | {"no_route": float(lost)})

    def judge(
        self, items: Sequence, completions: dict[str, list[str]], histories: Sequence[History]
    ) -> list[Judgement]:
        """Judgements of one answer each, in order; earlier answers are judged too, to know the change."""
        check_batch(items, completions, self.agents)
        rows = zip(*(completions[agent] for agent in self.agents), strict=True)
        routes = [
            [*map(self._spoken, history), self._spoken(dict(zip(self.agents, texts, strict=True)))]
            for texts, history in zip(rows, histories, strict=True)
        ]
        pairs = [(n, text) for n, route in enumerate(routes) for _, text in route[-2:]]
        given = {self._role: [text for _, text in pairs]}
        judged = iter(self._task.judge([items[n] for n, _ in pairs], given))
        return [self._judgement(route, [next(judged) for _ in route[-2:]]) for route in routes]

    def normalise(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Scores in percent; "return" is the quality minus the costs if ``change`` is 1."""
        own = {name: value for name, value in scores.items() if name in self._task.part_names}
        parts = self._task.normalise(own | {"total": 0.0})
        del parts["return"]
        shown = ("quality", "cost", "before", *["no_route"] * bool(self._decides))
        scaled = {name: 100 * scores[name] for name in shown}
        return parts | scaled | {"return": 100 * (scores["before"] + scores["total"])}

    def _spoken(self, texts: Mapping[str, str]) -> tuple[str, str]:
        """The agent that answered ('' if none), and its text."""
        agent = next((agent for agent in self.agents if texts.get(agent) and agent != self._decides), "")
        return agent, texts.get(agent, "")

    def _quality(self, judgement: Judgement) -> float:
        return self._task.normalise(judgement.scores)["return"] / 100

    def _judgement(self, route: Sequence[tuple[str, str]], judged: Sequence[Judgement]) -> Judgement:
        """The judgement of a route's last answer, from the task's judgements of it and of the one before."""
        last = judged[-1]
        if last.total is None:
            return Judgement({}, None, last.verdict, last.failures)
        quality = self._quality(last)
        before = self._quality(judged[0]) if len(judged) > 1 and judged[0].total is not None else 0.0
        deciding = self._costs.get(self._decides, 0.0)
        *earlier, cost = [self._costs[agent] + deciding if agent else 0.0 for agent, _ in route]
        parts = {
            **last.parts,
            "quality": quality,
            "cost": cost + sum(earlier),
            "before": self._change * before - sum(earlier),
        }
        if self._decides:
            parts["no_route"] = float(not route[-1][0])
        total = self._change * (quality - before) - cost
        return Judgement(parts, total, last.verdict, last.failures, last.program_source, last.interactions)
