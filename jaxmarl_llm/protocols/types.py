"""What a protocol is, and the state of the conversation it steers.

A protocol turns the items and what has been said so far into requests. Requests of one list are sampled as
one batch; lists in turn give order. An empty list ends the episode.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any
from typing import Protocol as Interface

import numpy as np

from jaxmarl_llm.forest import Joint, Node, SpeakRequest, Turn

Prompts = Callable[[Any], dict[str, list[dict[str, str]]]]


@dataclasses.dataclass(frozen=True)
class Answer:
    """A judged joint answer as a task sees it: the item, {agent: text}, and the task's own judgement."""

    item: Any
    completions: dict[str, str]
    judgement: Any


Feedback = Callable[[Sequence[Answer]], list[dict[str, str]]]


@dataclasses.dataclass
class Episode:
    """State of one iteration's conversation; the rollout appends to it, protocols read it.

    ``requests``, ``turns`` and ``joints`` are indexed by ``Turn.request``, ``Turn.id`` and
    ``SpeakRequest.follows``. ``random`` is seeded by the iteration's key.
    """

    items: Sequence[Any]
    random: np.random.Generator = dataclasses.field(default_factory=lambda: np.random.default_rng(0))
    requests: list[SpeakRequest] = dataclasses.field(default_factory=list)
    turns: list[Turn] = dataclasses.field(default_factory=list)
    joints: list[Joint] = dataclasses.field(default_factory=list)

    def answer(self, index: int) -> Answer:
        """A joint answer with its texts."""
        joint = self.joints[index]
        said = {self.turns[i].agent: self.turns[i].text for i in joint.turns}
        return Answer(self.items[joint.item], said, joint.judgement)


def everybody(state: Episode, prompts: Prompts, samples: int) -> list[SpeakRequest]:
    """All agents are asked on all items, for ``samples`` completions each: a first round."""
    return [
        SpeakRequest(agent, i, tuple(messages), samples)
        for i, item in enumerate(state.items)
        for agent, messages in prompts(item).items()
    ]


class Protocol(Interface):
    """What the rollout needs of a protocol."""

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to answer next; an empty list when everything has been said."""

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """What the last answers, which ``state`` holds by now, complete: it is judged next."""
