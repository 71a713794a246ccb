"""Who speaks when, and sees what.

A protocol turns the items and the turns so far into requests. Requests of one list are sampled as one batch;
lists in turn give order. An empty list ends the episode.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any
from typing import Protocol as Interface

from jaxmarl_llm.forest import SpeakRequest, Turn

Prompts = Callable[[Any], dict[str, list[dict[str, str]]]]


@dataclasses.dataclass
class Episode:
    """State of one iteration's conversation: the items and every turn observed so far."""

    items: Sequence[Any]
    turns: list[Turn] = dataclasses.field(default_factory=list)


class Protocol(Interface):
    """What the rollout needs of a protocol."""

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to answer next; an empty list when everything has been said."""

    def observe(self, state: Episode, turns: Sequence[Turn]) -> None:
        """Take the answers to the last requests into the state."""


@dataclasses.dataclass(frozen=True)
class Simultaneous:
    """Every agent answers every item once, at the same time, blind to the others (MAGRPO with one turn).

    Attributes:
      prompts: item -> {agent: chat messages}; agents speak in this dict's order.
      samples: G, completions per agent and item.
    """

    prompts: Prompts
    samples: int

    def step(self, state: Episode) -> list[SpeakRequest]:
        """All agents on all items first, then nothing."""
        if state.turns:
            return []
        return [
            SpeakRequest(agent, i, tuple(messages), self.samples)
            for i, item in enumerate(state.items)
            for agent, messages in self.prompts(item).items()
        ]

    def observe(self, state: Episode, turns: Sequence[Turn]) -> None:
        """Remember that everybody has spoken."""
        state.turns.extend(turns)
