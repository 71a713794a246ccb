"""The interface of protocols, and the state of the conversation they steer.

A protocol turns the items and what has been said so far into requests. Requests of one list are sampled as
one batch; lists in turn give order. An empty list ends the episode.
"""

import dataclasses
import re
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
    ``SpeakRequest.follows``. ``random`` is seeded by the iteration's key. ``feedback`` has, by index of each
    joint answer that was handed on, what every agent reads about it.
    """

    items: Sequence[Any]
    random: np.random.Generator = dataclasses.field(default_factory=lambda: np.random.default_rng(0))
    requests: list[SpeakRequest] = dataclasses.field(default_factory=list)
    turns: list[Turn] = dataclasses.field(default_factory=list)
    joints: list[Joint] = dataclasses.field(default_factory=list)
    feedback: dict[int, dict[str, str]] = dataclasses.field(default_factory=dict)

    def answer(self, index: int) -> Answer:
        """A joint answer with its texts."""
        joint = self.joints[index]
        said = {self.turns[i].agent: self.turns[i].text for i in joint.turns}
        return Answer(self.items[joint.item], said, joint.judgement)


def item_name(item: Any) -> str:
    """Name an item as errors do: by its ``task_id``."""
    return str(getattr(item, "task_id", item))


def tell(feedback: Feedback, answers: Sequence[Answer]) -> list[dict[str, str]]:
    """Ask the feedback about judged answers; returns an {agent: text} for each, in order.

    Raises what the feedback raises if that names an item, else RuntimeError with the items that it was asked
    about; ValueError unless there is a text for every agent of every answer.
    """
    names = list(dict.fromkeys(item_name(answer.item) for answer in answers))
    try:
        told = list(feedback(answers))
    except Exception as error:
        if any(names_item(str(error), name) for name in names):
            raise
        reason = f"{type(error).__name__}: {error}"
        raise RuntimeError(f"the feedback raised on {', '.join(names)} ({reason})") from error
    if len(told) != len(answers):
        raise ValueError(f"the feedback said {len(told)} things about {len(answers)} answers to {names}")
    for answer, texts in zip(answers, told, strict=True):
        silent = [agent for agent in answer.completions if not isinstance(dict(texts).get(agent), str)]
        if silent:
            raise ValueError(f"the feedback on {item_name(answer.item)} has no text for {', '.join(silent)}")
    return told


def names_item(text: str, name: str) -> bool:
    """Whether a text speaks of an item: a number alone could be anything's, unless it is in quotes."""
    found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
    return repr(name) in text or (found is not None and not name.isdigit())


def everybody(state: Episode, prompts: Prompts, samples: int, extra: int = 0) -> list[SpeakRequest]:
    """Ask all agents about all items, for ``samples`` completions each and ``extra`` ones: a first round."""
    return [
        SpeakRequest(agent, i, tuple(messages), samples + extra, extra=extra)
        for i, item in enumerate(state.items)
        for agent, messages in prompts(item).items()
    ]


class Protocol(Interface):
    """The interface that the rollout needs of a protocol."""

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to answer next; an empty list when everything has been said."""

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """Return the nodes that the last answers, which ``state`` holds by now, complete: they are judged
        next.
        """
