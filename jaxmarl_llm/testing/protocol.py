"""Check of a protocol: its requests, the answers it passes to the judge, and that it keeps no own state."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.forest import (
    ANSWER,
    CALL,
    REFUSED,
    REMARK,
    Joint,
    Node,
    SpeakRequest,
    Turn,
    joint_samples,
    refused,
)
from jaxmarl_llm.protocols import Episode, Protocol
from jaxmarl_llm.tasks.judgement import judge
from jaxmarl_llm.testing.rules import call, require, require_messages, text_of

Texts = Callable[[SpeakRequest, int], str]


def check_protocol(
    protocol: Protocol,
    task: Any,
    *,
    items: int = 2,
    joint_mode: str = "aligned",
    conversations: int | None = None,
    texts: Texts | None = None,
    most_steps: int = 100,
    partners: Sequence[str] = (),
) -> None:
    """Check a protocol against `protocols.types.Protocol`, in three episodes without a model.

    Rules: it asks agents of the team, about items of the episode, with chat messages; a request continues,
    follows or shows only things that exist already and are about the same item; all requests of a step have
    the same number of samples, and so have all requests to an agent in one turn; a node holds answers of one
    item and turn, the same number from each agent; every answer becomes part of a joint answer, remarks do
    not, and every item is answered; everything refused led to an answer or is part of one; it ends; it does
    not change the episode; repeating an episode after another one gives the same result, so the protocol
    keeps no state.

    Args:
      protocol: one that is judged, as a training or an evaluation takes it.
      task: gives the items, the agents and the judge.
      items: number of the task's first items that an episode is about.
      joint_mode: how samples become joint answers, see `forest.joint_samples`.
      conversations: number of joint answers to each item that nothing follows, as an evaluation needs them;
        None: any.
      texts: (request, number of texts by its agent so far) -> the next text; None: 'a0', 'a1', .. of 'a'.
      most_steps: number of steps after which it should have ended.
      partners: names outside the task's agents that may still be asked for remarks.

    Raises:
      AssertionError: with the rule that is broken, and the value.
    """
    first = _Player(protocol, task, joint_mode, texts, most_steps, tuple(partners))
    chosen = tuple(task.items[:items])
    state = first.play(chosen, 0)
    _check_end(state, conversations)
    first.play(chosen[::-1], 1)
    again = first.play(chosen, 0)
    rule = "the same episode is the same again: what belongs to an episode is in its state"
    number = len(again.requests), len(state.requests)
    require(number[0] == number[1], rule, f"{number[0]} requests, not {number[1]}")
    for now, before in zip(again.requests, state.requests, strict=True):
        require(now == before, rule, f"{now}, not {before}")
    require([j.turns for j in again.joints] == [j.turns for j in state.joints], rule, again.joints)


def _check_end(state: Episode, conversations: int | None) -> None:
    """The rules of a whole episode."""
    judged = {i for joint in state.joints for i in joint.turns}
    answers = [turn for turn in state.turns if turn.kind == ANSWER and not turn.extra]
    left = [turn.id for turn in answers if turn.id not in judged]
    require(not left, "every answer becomes part of a joint answer, other texts are remarks; turns", left)
    followed = {joint.follows for joint in state.joints}
    for i, item in enumerate(state.items):
        ends = [j for j, joint in enumerate(state.joints) if joint.item == i and j not in followed]
        require(ends, "every item gets a joint answer", getattr(item, "task_id", item))
        if conversations is not None:
            rule = f"every item has {conversations} conversations"
            require(len(ends) == conversations, rule, f"{len(ends)} about item {i}")
    sizes: dict[tuple, int] = {}
    for request in state.requests:
        if request.parent is not None and _goes_on(state.turns[request.parent]):
            continue  # one goes on after each call, and after each answer that is refused
        place, size = (request.agent, request.turn, request.kind), request.samples - request.extra
        rule = f"requests to {request.agent} in turn {request.turn} are for equally many samples"
        require(sizes.setdefault(place, size) == size, rule, (sizes[place], size))


def _goes_on(turn: Turn) -> bool:
    return turn.kind in (CALL, REFUSED) or turn.fallback


class _Player:
    """Plays episodes with texts that are given, and checks every step."""

    def __init__(
        self,
        protocol: Protocol,
        task: Any,
        joint_mode: str,
        texts: Texts | None,
        most_steps: int,
        partners: tuple[str, ...],
    ):
        self._protocol, self._task, self._mode, self._most = protocol, task, joint_mode, most_steps
        self._partners = partners
        self._texts = texts or (lambda request, number: f"{request.agent}{number}")

    def play(self, items: tuple, seed: int) -> Episode:
        """A whole episode about some items."""
        state, nodes, unjudged = Episode(items, np.random.default_rng(seed)), 0, set[int]()
        for step in range(self._most + 1):
            requests = self._unchanged(state, "step", state)
            require(isinstance(requests, list), "step: a list of requests", requests)
            if not requests:
                return state
            for request in requests:
                self._check_request(state, request)
            sizes = sorted({request.samples for request in requests})
            require(len(sizes) == 1, "all requests of a step are for equally many samples", sizes)
            new = self._turns(state, requests, step)
            state.requests += requests
            state.turns += new
            completed = self._unchanged(state, "observe", state, new)
            require(isinstance(completed, list), "observe: a list of nodes", completed)
            unjudged |= {turn.id for turn in new}
            for node in completed:
                self._check_node(state, node, unjudged)
            state.turns = refused(state.turns, completed)
            unjudged = set() if completed else unjudged
            per_node = sorted({len(ids) for node in completed for ids in node.turns.values()})
            require(len(per_node) < 2, "all nodes of a step hold equally many samples", per_node)
            state.joints += [
                j for n, node in enumerate(completed, nodes) for j in self._joints(state, node, n)
            ]
            nodes += len(completed)
        raise AssertionError(f"it ends, with an empty list: {self._most} steps and no end")

    def _unchanged(self, state: Episode, name: str, *args: Any) -> Any:
        """The result of a method, which must not change what has been asked, answered and judged."""
        before = [list(part) for part in (state.requests, state.turns, state.joints)]
        result = call(f"{name}: it does not raise", getattr(self._protocol, name), *args)
        after = [state.requests, state.turns, state.joints]
        same = all(
            len(x) == len(y) and all(a is b for a, b in zip(x, y, strict=True))
            for x, y in zip(before, after, strict=True)
        )
        require(same, f"{name}: requests, turns and joints of the episode stay as they are", after)
        return result

    def _check_request(self, state: Episode, request: Any) -> None:
        require(isinstance(request, SpeakRequest), "step: a SpeakRequest", request)
        agents = (*self._task.agents, *self._partners)
        require(request.agent in agents, f"a request is to one of {agents}", request.agent)
        remark = request.agent in self._task.agents or request.kind == REMARK
        require(remark, f"a request to one of {self._partners} is for a remark", request)
        require(0 <= request.item < len(state.items), "a request is about an item of the episode", request)
        require_messages(request.messages, f"request to {request.agent}")
        some = request.samples - request.extra >= 1 and request.extra >= 0
        require(some, "a request is for one sample or more, beside the extra ones", request)
        require(request.turn >= 0 and request.kind in (ANSWER, REMARK), "turn and kind of a request", request)
        _check_there(request.parent, state.turns, request.item, "a request continues an earlier turn")
        _check_there(request.follows, state.joints, request.item, "a request follows a joint answer")
        shown = [i for i in request.shown if i >= 0]  # others are of earlier episodes
        for i in shown:
            require(i < len(state.turns), "the turns that a request shows are there already", request)
            text = state.turns[i].text
            require(text in text_of(request.messages), "a request shows the texts that it names", text)

    def _turns(self, state: Episode, requests: Sequence[SpeakRequest], step: int) -> list[Turn]:
        """The answers to some requests."""
        new: list[Turn] = []
        for number, request in enumerate(requests, len(state.requests)):
            prompt = np.frombuffer(text_of(request.messages).encode(), np.uint8).astype(np.int32)
            for sample in range(request.samples):
                earlier = sum(turn.agent == request.agent for turn in (*state.turns, *new))
                text = self._texts(request, earlier)
                completion = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
                turn = Turn(
                    id=len(state.turns) + len(new),
                    request=number,
                    agent=request.agent,
                    item=request.item,
                    turn=request.turn,
                    sample=sample,
                    prompt=prompt,
                    completion=completion,
                    logprobs=np.zeros(len(completion), np.float32),
                    text=text,
                    finished=True,
                    parent=request.parent,
                    follows=request.follows,
                    shown=tuple(request.shown),
                    step=step,
                    extra=sample >= request.samples - request.extra,
                    kind=request.kind_of(text),
                    request_kind=request.kind,
                )
                new.append(turn)
        return new

    def _check_node(self, state: Episode, node: Any, new: set[int]) -> None:
        require(isinstance(node, Node), "observe: a Node", node)
        strangers = set(node.turns) - set(self._task.agents)
        require(node.turns and not strangers, "a node holds answers of the team", node)
        for agent, ids in node.turns.items():
            known = all(0 <= i < len(state.turns) for i in ids)
            require(ids and known, "a node is made of turns of the episode", node)
            for turn in (state.turns[i] for i in ids):
                require(turn.agent == agent, f"a node's answers of {agent} are its own", turn)
                require(turn.kind == ANSWER, "a node holds answers, no remarks", turn)
                place = turn.item, turn.turn, turn.follows
                rule = "a node's answers are of its item and turn, and follow what it follows"
                require(place == (node.item, node.turn, node.follows), rule, f"{place} in {node}")
        every = [i for ids in node.turns.values() for i in ids]
        require(new & {*every}, "a node is completed by answers since the last nodes", node)
        samples = {len(ids) for ids in (*node.turns.values(), *node.heard)}
        require(len(samples) == 1, "a node holds equally many samples of each agent", node)
        heard = [i for ids in node.heard for i in ids if i >= 0]
        require(not {*heard} & {*every}, "what led to an answer is no part of it", node)
        led = {*heard, *every} >= {*node.refused}
        require(led, "turns that are refused are part of an answer, or led to it", node)
        for i in heard:
            _check_there(i, state.turns, node.item, "what led to an answer is an earlier turn")

    def _joints(self, state: Episode, node: Node, number: int) -> list[Joint]:
        """The judged joint answers of a node; an agent that is not in it counts with an empty text."""
        agents, samples = tuple(self._task.agents), len(next(iter(node.turns.values())))
        extra = sum(state.turns[i].extra for i in next(iter(node.turns.values())))
        rows = [
            (c, {a: node.turns[a][g] for a, g in zip(agents, c, strict=True) if a in node.turns})
            for c in joint_samples(self._mode, len(agents), samples - extra, extra)
        ]
        completions = {
            a: [state.turns[ids[a]].message if a in ids else "" for _, ids in rows] for a in agents
        }
        before = tuple(state.answer(j).completions for j in state.before(node.follows))
        judgements = judge(
            self._task, [state.items[node.item]] * len(rows), completions, [before] * len(rows)
        )
        return [
            Joint(
                node.item,
                tuple(ids.values()),
                judgement,
                number,
                node.turn,
                node.follows,
                tuple(heard[c[0]] for heard in node.heard if heard[c[0]] >= 0),
            )
            for (c, ids), judgement in zip(rows, judgements, strict=True)
        ]


def _check_there(index: int | None, places: Sequence, item: int, rule: str) -> None:
    """None, or the index of a turn or joint answer that is there, about the same item."""
    if index is not None:
        require(0 <= index < len(places), f"{rule} that is there", index)
        require(places[index].item == item, f"{rule} about the same item", places[index])
