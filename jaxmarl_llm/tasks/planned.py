"""A task of one role for a planner, a caller and a summarizer (`protocols.planner`): only the last one answers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from jaxmarl_llm.tasks.judgement import Judgement, check_batch
from jaxmarl_llm.tasks.types import Messages, Task
from jaxmarl_llm.utils.errors import UserError

ROUTES = CALLER, CONCLUSION, GIVE_UP = ("caller", "conclusion", "give up")


def last_line(*routes: str) -> str:
    """A regular expression for texts whose last line names one of the routes; its group is the route."""
    return rf"(?:^|\n) *Next: *({'|'.join(routes)}) *\.?\s*\Z"


def route_of(text: str) -> str | None:
    """The route that the last line of a planner's text names, or None.

    >>> route_of("The price is needed.\\nNext: caller"), route_of("Next: caller, please"), route_of("caller")
    ('caller', None, None)
    """
    match = re.search(last_line(*ROUTES), text)
    return match.group(1) if match else None


class PlannedTask:
    """The task for three agents. Judged is the summarizer's text, or "give up" where the planner did.

    Args:
      task: a task with one agent, whose role it is.
      agents: names of the planner, the caller and the summarizer.

    Parts: those of the task; ``concluded``, whether there is an answer; ``gave_up``; ``no_route``, whether the
    planner's last text named no route, or asked for more calls than allowed. An empty summarizer text also
    counts as ``no_route``, since only the last text of a conversation is judged.
    """

    def __init__(self, task: Task, agents: Sequence[str]):
        if len(task.agents) != 1:
            raise UserError(f"agents of the task are {task.agents!r}; a planner needs a task of one role")
        if len(agents) != 3:
            raise UserError(f"agents is {tuple(agents)!r}; allowed are a planner, a caller and a summarizer")
        self.items, self.reward_range, self.agents = task.items, task.reward_range, tuple(agents)
        self._task, (self._role,) = task, task.agents
        self.part_names = (*task.part_names, "concluded", "gave_up", "no_route")
        self.tools = getattr(task, "tools", None)

    def prompts(self, item) -> dict[str, Messages]:
        """Chat messages: the question, the same for all; the protocol adds each agent's instructions."""
        return dict.fromkeys(self.agents, self._task.prompts(item)[self._role])

    def judge(self, items: Sequence, completions: dict[str, list[str]]) -> list[Judgement]:
        """Judgements of conversations by their last texts, in order; other agents' texts are ''."""
        check_batch(items, completions, self.agents)
        planner, _, summarizer = self.agents
        pairs = list(zip(completions[planner], completions[summarizer], strict=True))
        texts = [answer or (GIVE_UP if route_of(plan) == GIVE_UP else "") for plan, answer in pairs]
        judged = self._task.judge(items, {self._role: texts})
        return [self._judgement(own, *pair) for own, pair in zip(judged, pairs, strict=True)]

    def normalise(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Scores on the task's scale, the shares of endings in percent."""
        ends = {name: 100 * scores[name] for name in ("concluded", "gave_up", "no_route") if name in scores}
        return self._task.normalise({k: v for k, v in scores.items() if k not in ends}) | ends

    def _judgement(self, judged: Judgement, plan: str, answer: str) -> Judgement:
        gave_up = not answer and route_of(plan) == GIVE_UP
        ends = {"concluded": bool(answer), "gave_up": gave_up, "no_route": not answer and not gave_up}
        parts = judged.parts | {name: float(value) for name, value in ends.items()}
        return dataclasses.replace(judged, parts=parts, local={})
