"""A conversation without its calls of tools: what the inner protocol of `with_tools` sees.

There each answer is one turn, as if its agent had made no call; turns, requests and their samples are
numbered as in a conversation without tools.
"""

import dataclasses
from collections.abc import Sequence

from jaxmarl_llm.forest import CALL, Joint, Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.types import Episode, Messages


@dataclasses.dataclass
class Answers(Episode):
    """An episode of answers only. ``read`` has, by id of the turn, the messages with the calls that led to
    it.
    """

    read: Sequence[Messages] = ()

    def messages(self, turn: Turn) -> Messages:
        """What an agent had read when it wrote a turn, including its calls and their results."""
        return self.read[turn.id]


@dataclasses.dataclass(frozen=True)
class WithoutCalls:
    """An episode with and without its calls.

    Attributes:
      whole: the episode, in which no call waits for its result.
      mark: `SpeakRequest.call_mark` of tools; other marks name agents.
      answers: the episode without calls.
      ids: by id of a turn of ``answers``, its id in ``whole``.
    """

    whole: Episode
    mark: str
    answers: Answers
    ids: tuple[int, ...]

    def request(self, request: SpeakRequest) -> SpeakRequest:
        """A request of the inner protocol, with the ids of the whole episode."""
        parent = None if request.parent is None else self.ids[request.parent]
        # Ids below 0 are those of earlier episodes.
        shown = tuple(self.ids[i] if i >= 0 else i for i in request.shown)
        return dataclasses.replace(request, parent=parent, shown=shown)

    def node(self, node: Node) -> Node:
        """A node of the inner protocol with the ids of the whole episode, and the calls that led to its
        turns.

        A missing call is -1 where a sample has fewer calls than another.
        """
        turns = {agent: self._rows(ids) for agent, ids in node.turns.items()}
        heard = [self._rows(ids) for ids in node.heard]
        for ids in (*turns.values(), *heard):
            chains = [calls_before(self.whole, i, self.mark) if i >= 0 else [] for i in ids]
            for k in range(max(map(len, chains), default=0)):
                heard.append(tuple(calls[k] if k < len(calls) else -1 for calls in chains))
        return dataclasses.replace(node, turns=turns, heard=tuple(heard), refused=self._rows(node.refused))

    def _rows(self, ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.ids[i] if i >= 0 else i for i in ids)


def without_calls(state: Episode, mark: str) -> WithoutCalls:
    """An episode in which no call waits for its result, without calls."""
    answers = [turn for turn in state.turns if not is_call(state, turn, mark)]
    origin_of = {turn.id: next(iter(calls_before(state, turn.id, mark)), turn.id) for turn in answers}
    ids = sorted(origin_of, key=origin_of.__getitem__)
    place = {real: number for number, real in enumerate(ids)}
    requests, request_of = _requests(state, place, mark)
    steps = sorted({state.turns[first].step for first in origin_of.values()})
    turns, read = [], []
    for number, i in enumerate(ids):
        turn, first = state.turns[i], state.turns[origin_of[i]]
        before, own = state.requests[first.request], request_of[first.request]
        turns.append(
            dataclasses.replace(
                turn,
                id=number,
                request=own,
                sample=before.first_sample + first.sample,
                step=steps.index(first.step),
                parent=_at(place, first.parent),
                follows=first.follows,
                shown=requests[own].shown,
            )
        )
        read.append(state.requests[turn.request].messages)
    joints = [_joint(joint, place) for joint in state.joints]
    view = Answers(state.items, state.random, requests, turns, joints, state.feedback, read)
    return WithoutCalls(state, mark, view, tuple(ids))


def is_call(state: Episode, turn: Turn, mark: str) -> bool:
    """Whether a turn is a call of a tool, whose mark is given."""
    return turn.kind == CALL and state.requests[turn.request].call_mark == mark


def calls_before(state: Episode, turn: int, mark: str) -> list[int]:
    """Ids of the calls of tools before a turn, in order."""
    calls: list[int] = []
    parent = state.turns[turn].parent
    while parent is not None and is_call(state, state.turns[parent], mark):
        calls.insert(0, parent)
        parent = state.turns[parent].parent
    return calls


def _requests(state: Episode, place: dict[int, int], mark: str) -> tuple[list[SpeakRequest], dict[int, int]]:
    """The requests of the inner protocol, and for each request index the index of the inner request it
    belongs to.
    """
    requests: list[SpeakRequest] = []
    index_of: dict[int, int] = {}
    for i, request in enumerate(state.requests):
        if request.parent is not None and is_call(state, state.turns[request.parent], mark):
            continue
        if request.first_sample:  # another sample of the previous request
            last = requests[-1]
            requests[-1] = dataclasses.replace(last, samples=last.samples + request.samples)
        else:
            shown = tuple(place[j] if j >= 0 else j for j in request.shown)
            own_mark = "" if request.call_mark == mark else request.call_mark
            parent = _at(place, request.parent)
            requests.append(dataclasses.replace(request, parent=parent, shown=shown, call_mark=own_mark))
        index_of[i] = len(requests) - 1
    return requests, index_of


def _joint(joint: Joint, place: dict[int, int]) -> Joint:
    """A joint answer with the turn ids of an episode without calls."""
    heard = tuple(place[i] for i in joint.heard if i in place)
    return dataclasses.replace(joint, turns=tuple(place[i] for i in joint.turns), heard=heard)


def _at(place: dict[int, int], turn: int | None) -> int | None:
    return None if turn is None else place[turn]
