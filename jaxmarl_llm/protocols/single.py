"""One request to one agent for every item; the answers are not judged. Rounds may begin with it."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.types import Episode


@dataclasses.dataclass(frozen=True)
class Single:
    """One agent answers one request for every item; nothing is judged.

    Attributes:
      agent: name of the agent.
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
