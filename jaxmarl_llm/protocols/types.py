"""The interface of protocols, and the state of the conversation that they control.

A protocol turns the items and the answers so far into requests. Requests of one list are sampled as one
batch; an order of agents takes several lists. An empty list ends the episode.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from typing import Protocol as Interface

import numpy as np

from jaxmarl_llm.forest import REMARK, Joint, Node, SpeakRequest, Turn
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.dotted import UserCodeError
from jaxmarl_llm.utils.errors import UserError

Messages = tuple[dict[str, str], ...]
Prompts = Callable[[Any], dict[str, list[dict[str, str]]]]
# How an agent reads a task's prompt for it: its name and the prompt -> messages.
Reads = Callable[[str, Sequence[dict[str, str]]], Sequence[dict[str, str]]]


@dataclasses.dataclass(frozen=True)
class Answer:
    """A judged joint answer as a task sees it: the item, {agent: text}, and the task's own judgement.

    ``history`` has the earlier joint answers of its conversation, {agent: text}, in order.
    """

    item: Any
    completions: dict[str, str]
    judgement: Any
    history: tuple[dict[str, str], ...] = ()


Feedback = Callable[[Sequence[Answer]], list[dict[str, str]]]


@dataclasses.dataclass
class Episode:
    """State of one iteration's conversation; the rollout appends to it, protocols read it.

    ``requests``, ``turns`` and ``joints`` are indexed by ``Turn.request``, ``Turn.id`` and
    ``SpeakRequest.follows``. ``random`` is seeded by the iteration's key. ``feedback`` maps the index of
    each joint answer that was handed on to {agent: feedback text}.
    """

    items: Sequence[Any]
    random: np.random.Generator = dataclasses.field(default_factory=lambda: np.random.default_rng(0))
    requests: list[SpeakRequest] = dataclasses.field(default_factory=list)
    turns: list[Turn] = dataclasses.field(default_factory=list)
    joints: list[Joint] = dataclasses.field(default_factory=list)
    feedback: dict[int, dict[str, str]] = dataclasses.field(default_factory=dict)

    def answer(self, index: int) -> Answer:
        """The joint answer at ``index`` with its texts, and those of earlier answers."""
        joint = self.joints[index]
        texts = [
            {self.turns[i].agent: self.turns[i].message for i in self.joints[j].turns}
            for j in (*self.before(joint.follows), index)
        ]
        return Answer(self.items[joint.item], texts[-1], joint.judgement, tuple(texts[:-1]))

    def messages(self, turn: Turn) -> Messages:
        """What an agent had read when it wrote a turn."""
        return self.requests[turn.request].messages

    def before(self, follows: int | None) -> list[int]:
        """Indices of the joint answers before a turn that follows ``follows``, in order."""
        chain: list[int] = []
        while follows is not None:
            chain.insert(0, follows)
            follows = self.joints[follows].follows
        return chain


def item_name(item: Any) -> str:
    """Name of an item in error messages: its ``task_id``, or the item itself as text if it has none."""
    return str(getattr(item, "task_id", item))


def collect_feedback(feedback: Feedback, answers: Sequence[Answer]) -> list[dict[str, str]]:
    """Call the feedback on judged answers; returns {agent: text} for each answer, in order.

    Raises the feedback's own error if it is the user's or names an item. Otherwise it raises RuntimeError
    with the items of the call (UserCodeError for a function of the user's), and UserError unless there is a
    text for every agent of every answer.
    """
    names = list(dict.fromkeys(item_name(answer.item) for answer in answers))
    try:
        given = feedback(answers)
        results = dotted.listed(given)
    except (UserError, UserCodeError):
        raise
    except dotted.RAISED as error:
        if any(names_item(str(error), name) for name in names):
            raise
        kind = UserCodeError if dotted.raised_by_user(error) else RuntimeError
        raise kind(f"the feedback raised on {', '.join(names)} ({dotted.reason(error)})") from error
    if results is None:
        wanted = "expected a list with {agent: text} for each answer"
        raise UserError(f"the feedback on {', '.join(names)} is {given!r:.80}; {wanted}")
    if len(results) != len(answers):
        raise UserError(f"the feedback said {len(results)} things about {len(answers)} answers to {names}")
    for answer, texts in zip(answers, results, strict=True):
        if not isinstance(texts, Mapping):
            what = f"the feedback on {item_name(answer.item)} is {texts!r:.80}"
            raise UserError(f"{what}; expected {{agent: text}}")
        missing = [agent for agent in answer.completions if not isinstance(texts.get(agent), str)]
        if missing:
            raise UserError(f"the feedback on {item_name(answer.item)} has no text for {', '.join(missing)}")
    return results


def names_item(text: str, name: str) -> bool:
    """Whether a text names an item. A name that is only a number counts only in quotes."""
    match = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
    return repr(name) in text or (match is not None and not name.isdigit())


def first_requests(state: Episode, prompts: Prompts, samples: int, extra: int = 0) -> list[SpeakRequest]:
    """Requests of a first round: all agents on all items, ``samples`` + ``extra`` completions each."""
    return [
        SpeakRequest(agent, i, tuple(messages), samples + extra, extra=extra)
        for i, item in enumerate(state.items)
        for agent, messages in prompts(item).items()
    ]


def remarks(requests: Iterable[SpeakRequest]) -> list[SpeakRequest]:
    """The requests with the kind `REMARK`: their completions lead to answers and are not judged."""
    return [dataclasses.replace(request, kind=REMARK) for request in requests]


def apart(requests: Iterable[SpeakRequest]) -> list[SpeakRequest]:
    """The requests, split into one per sample, so that all have equally many samples."""
    return [dataclasses.replace(request, samples=1) for request in requests for _ in range(request.samples)]


class Protocol(Interface):
    """The methods of a protocol that the rollout calls."""

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to answer next; an empty list ends the episode."""

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """Return the nodes that the last answers, ``turns``, complete; these nodes are judged next.

        ``state`` holds these answers already.
        """
