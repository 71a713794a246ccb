"""Feedback between turns from an expert's suggestions (guided learning, arXiv 2508.04652)."""

from __future__ import annotations

from collections.abc import Sequence

from jaxmarl_llm.experts.types import Expert, Request
from jaxmarl_llm.tasks.coding.expert_edits import parse_edits, request_messages

SUGGESTED = "A reviewer suggests this instead:\n{code}\n\n{again}"
KEPT = "A reviewer would leave it as it is.\n\n{again}"
AGAIN = "Try again. Answer with code only."


class ExpertEdits:
    """Between turns, an expert reads the problem and the joint answer, and each agent reads its suggestion.

    Args:
      expert: see `types.Expert`.
      agents: names in the order (helper, main), or (main,).
      max_tokens: maximum length of the expert's answer.
      parsing: which part of an answer is read, see `coding.sources`.

    If the expert's answer holds neither edits nor approval, agents are only asked to try again.
    """

    def __init__(
        self, expert: Expert, agents: Sequence[str], max_tokens: int = 2048, parsing: str = "python"
    ):
        self._expert, self._agents, self._max_tokens = expert, tuple(agents), max_tokens
        self._parsing = parsing

    def request(self, item, completions: dict[str, str]) -> Request:
        """Build the question to the expert about a joint answer to a coding item."""
        messages = request_messages(item, completions, self._agents, self._parsing)
        return Request(tuple(messages), str(item.task_id), self._max_tokens)

    def __call__(self, answers: Sequence) -> list[dict[str, str]]:
        """Feedback to each agent on every judged answer, with all requests sent at once.

        See `protocols.types.Feedback`.

        Raises ExpertError, which names the item.
        """
        replies = self._expert.ask([self.request(a.item, a.completions) for a in answers])
        return [self._told(parse_edits(reply.text, self._agents)) for reply in replies]

    def _told(self, edits: dict[str, str] | None) -> dict[str, str]:
        if edits is None:
            return dict.fromkeys(self._agents, AGAIN)
        texts = {agent: SUGGESTED.format(code=code, again=AGAIN) for agent, code in edits.items()}
        return {agent: texts.get(agent, KEPT.format(again=AGAIN)) for agent in self._agents}
