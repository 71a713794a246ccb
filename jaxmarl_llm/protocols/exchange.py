"""Checks of what a protocol gives to a rollout: one of the user's own may give anything, or raise.

Without them, a request about another item, or a node with another agent's turns, would be answered and
trained on.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.forest import ANSWER, REMARK, STEP, Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.types import Episode, Protocol, item_name
from jaxmarl_llm.tasks.types import is_chat
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

FIELD = "train.protocol"
KINDS = (ANSWER, REMARK, STEP)


def next_requests(
    protocol: Protocol, state: Episode, agents: Collection[str] | None = None
) -> list[SpeakRequest]:
    """The next requests of a protocol; ``agents``: those that can be requested, None: any.

    UserError unless it is a list of requests that can be answered.
    """
    requests = _list("step", protocol.step, state)
    if not requests and state.items and not state.turns:
        raise UserError(
            f"{FIELD}: step gave no request about {item_name(state.items[0])}, with which it begins"
        )
    for request in requests:
        if complaint := _of_request(request, state, agents):
            raise UserError(f"{FIELD}: step gave {complaint}")
    return requests


def completed_nodes(
    protocol: Protocol, state: Episode, turns: Sequence[Turn], agents: Collection[str] | None = None
) -> list[Node]:
    """The nodes that ``turns`` complete, by the protocol; ``agents``: who can be in one, None: any.

    UserError unless it is a list of nodes of this episode.
    """
    nodes = _list("observe", protocol.observe, state, turns)
    for node in nodes:
        if complaint := _of_node(node, state, agents):
            raise UserError(f"{FIELD}: observe gave {complaint}")
    return nodes


def check_combinable(nodes: Sequence[Any], state: Episode) -> None:
    """UserError for an agent whose samples at a node continue different turns: each reads another text.

    Such a sample was written for the partners' sample that it reads, so it is judged with no other. Nodes
    with faults that `completed_nodes` reports are left to it.
    """
    for node in nodes:
        if not isinstance(node, Node) or _of_node(node, state, None):
            continue
        for agent, ids in node.turns.items():
            if len({state.turns[i].parent for i in ids}) > 1:
                raise UserError(
                    f"train.joint_mode='cross': the samples of {agent!r} about {item_name(state.items[node.item])} "
                    f"continue different turns, so {FIELD} lets agents read each other; allowed is 'aligned'"
                )


def _list(name: str, method: Callable, state: Episode, *more: Any) -> list:
    """The result of a method of a protocol, as a list."""
    given = method(state, *more)
    values = dotted.listed(given)
    if values is None:
        kind = "SpeakRequest" if name == "step" else "Node"
        raise UserError(
            f"{FIELD}: {name} gave {given!r:.80}; expected a list, empty or with a {kind} in each place"
        )
    return values


def _of_request(request: Any, state: Episode, agents: Collection[str] | None) -> str:
    """The fault of a request; '' if there is none."""
    if wrong := _of_kind(request, SpeakRequest, "request about", state):
        return wrong
    what = f"a request to {request.agent!r} about {item_name(state.items[request.item])}"
    if agents is not None and request.agent not in agents:
        return f"{what}; the team is {', '.join(agents)}"
    if not request.messages or not is_chat(request.messages):
        wanted = "expected chat messages, {'role': text, 'content': text}"
        return f"{what} with messages {request.messages!r:.80}; {wanted}"
    if (
        not _is_whole(request.samples, 1)
        or not _is_whole(request.extra, 0)
        or request.extra > request.samples
    ):
        return f"{what} with samples={request.samples!r}, extra={request.extra!r}; expected whole numbers from 1 and 0"
    if not _is_whole(request.turn, 0) or request.kind not in KINDS:
        wanted = f"turns are whole numbers from 0, kinds {', '.join(KINDS)}"
        return f"{what} with turn={request.turn!r}, kind={request.kind!r}; {wanted}"
    return _elsewhere(what, request.item, state, parent=request.parent, follows=request.follows)


def _of_node(node: Any, state: Episode, agents: Collection[str] | None) -> str:
    """The fault of a node; '' if there is none."""
    if wrong := _of_kind(node, Node, "node of", state):
        return wrong
    what = f"a node of {item_name(state.items[node.item])}"
    if not isinstance(node.turns, Mapping) or not node.turns:
        return f"{what} with turns {node.turns!r:.80}; expected ids of turns by agent"
    for agent, ids in node.turns.items():
        if not isinstance(ids, Sequence) or isinstance(ids, str):
            return f"{what} with turns {node.turns!r:.80}; expected ids of turns by agent"
        if agents is not None and agent not in agents:
            return f"{what} with turns of {agent!r}; the agents that are judged are {', '.join(agents)}"
        for i in ids:
            if not _is_place(i, state.turns):
                return f"{what} with the turn {i!r}; there are {len(state.turns)}, counted from 0"
            if state.turns[i].agent != agent:
                return f"{what} with the turn {i} as one of {agent!r}; it is of {state.turns[i].agent!r}"
            if wrong := _elsewhere(what, node.item, state, turn=i):
                return wrong
    return _elsewhere(what, node.item, state, follows=node.follows)


def _of_kind(one: Any, kind: type[SpeakRequest] | type[Node], what: str, state: Episode) -> str:
    """The fault of what is no ``kind``, or is about no item of the episode; '' if there is none."""
    if not isinstance(one, kind):
        return f"{one!r:.80} in its list; expected a {kind.__name__}"
    if not _is_place(one.item, state.items):
        return f"a {what} item {one.item!r}; allowed are 0 to {len(state.items) - 1}"
    return ""


def _elsewhere(what: str, item: int, state: Episode, **places: int | None) -> str:
    """The fault of the turns and joint answers that a request or node names, by field; '' if none."""
    for field, i in places.items():
        known: Sequence = state.joints if field == "follows" else state.turns
        if i is None:
            continue
        if not _is_place(i, known):
            return f"{what} with {field}={i!r}; there are {len(known)}, counted from 0"
        if known[i].item != item:
            return f"{what} with {field}={i}, which is about {item_name(state.items[known[i].item])}"
    return ""


def _is_place(i: Any, places: Sequence) -> bool:
    """Whether it is an index of one of these, and not negative."""
    return isinstance(i, int | np.integer) and 0 <= int(i) < len(places)


def _is_whole(number: Any, least: int) -> bool:
    return isinstance(number, int | np.integer) and int(number) >= least
