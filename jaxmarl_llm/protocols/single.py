"""Ask one agent a question about every item that nobody judges: rounds may begin with one."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.types import Episode


@dataclasses.dataclass(frozen=True)
class Single:
    """Attributes:
    agent: who is asked.
    ask: item -> the messages that it sees.
    """

    agent: str
    ask: Callable[[Any], Sequence[dict[str, str]]]

    def step(self, state: Episode) -> list[SpeakRequest]:
        """A request for every item, once."""
        if state.turns:
            return []
        return [SpeakRequest(self.agent, i, tuple(self.ask(item)), 1) for i, item in enumerate(state.items)]

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """Return no node: nothing is judged."""
        return []
