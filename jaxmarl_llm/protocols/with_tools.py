"""Any protocol, with agents that call tools before they answer.

A text with a call is no answer: its agent reads what the call gave back, and goes on, until it writes a text without
one. What tools give back is part of prompts, and is never learned; the calls are, by what the answer earned that they
led to. The protocol inside sees the answers alone.
"""

import dataclasses
from collections.abc import Sequence

from jaxmarl_llm.forest import CALL, Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.turns import origin
from jaxmarl_llm.protocols.types import Episode, Protocol, apart
from jaxmarl_llm.tasks.tools import MARK, Call, Toolbox


@dataclasses.dataclass(frozen=True)
class WithTools:
    """``inner`` with tools.

    Attributes:
      inner: whose requests are answered.
      toolbox: the tools.
      calls: most calls before an answer; whatever comes after the last one is the answer.
      agents: who may call them.
      apart: every sample has a request of its own, so that all requests are for equally many; False in evaluations.
    """

    inner: Protocol
    toolbox: Toolbox
    calls: int
    agents: tuple[str, ...]
    apart: bool = True

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to those who called a tool; if nobody did, those of the protocol inside."""
        if waiting := self._waiting(state):
            calls = [
                Call(state.items[turn.item], turn.text, state.requests[turn.request].turn) for turn in waiting
            ]
            results = self.toolbox.results(calls)
            return [self._go_on(state, turn, text) for turn, text in zip(waiting, results, strict=True)]
        requests = [self._offering(request) for request in self.inner.step(state)]
        return apart(requests) if self.apart else requests

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """The nodes of the protocol inside once all its requests are answered; none before that."""
        if self._waiting(state):
            return []
        answers = [turn for turn in self._batch(state) if turn.kind != CALL]
        nodes = self.inner.observe(state, sorted(answers, key=lambda turn: origin(state, turn)))
        return [self._with_calls(state, node) for node in nodes]

    def _offering(self, request: SpeakRequest) -> SpeakRequest:
        """A request with the tools in its prompt, unless they are there already, and calls allowed."""
        if request.agent not in self.agents:
            return request
        return dataclasses.replace(request, messages=offered(request.messages, self.toolbox), call_mark=MARK)

    def _waiting(self, state: Episode) -> list[Turn]:
        """The calls of the last step, which have no result yet."""
        last = state.turns[-1].step if state.turns else 0
        return [turn for turn in state.turns if turn.step == last and turn.kind == CALL]

    def _batch(self, state: Episode) -> list[Turn]:
        """All turns since the protocol inside was asked last."""
        last = [turn for turn in state.turns if turn.step == state.turns[-1].step]
        first = min(state.turns[origin(state, turn)].step for turn in last)
        return [turn for turn in state.turns if turn.step >= first]

    def _go_on(self, state: Episode, turn: Turn, result: str) -> SpeakRequest:
        """The request that follows a call, with what it gave back."""
        request, made = state.requests[turn.request], 0
        at: Turn | None = turn
        while at is not None and at.kind == CALL:
            made, at = made + 1, None if at.parent is None else state.turns[at.parent]
        messages = after_call(request.messages, turn.text, result)
        mark = MARK if made < self.calls else ""
        return dataclasses.replace(
            request, messages=messages, samples=1, extra=0, parent=turn.id, call_mark=mark
        )

    def _with_calls(self, state: Episode, node: Node) -> Node:
        """A node with the calls that led to its answers, -1 where a sample has fewer than another."""
        chains = [[_calls_before(state, i) for i in ids] for ids in node.turns.values()]
        rows = []
        for of_agent in chains:
            for k in range(max(map(len, of_agent))):
                rows.append(tuple(calls[k] if k < len(calls) else -1 for calls in of_agent))
        return dataclasses.replace(node, heard=(*node.heard, *rows))


def offered(messages: Sequence[dict[str, str]], toolbox: Toolbox) -> tuple[dict[str, str], ...]:
    """Messages with the tools behind the last one, unless they are there already."""
    text = toolbox.describe()
    if any(text in message["content"] for message in messages):
        return tuple(messages)
    *before, question = messages
    return (*before, {**question, "content": f"{question['content']}\n\n{text}"})


def after_call(messages: Sequence[dict[str, str]], text: str, result: str) -> tuple[dict[str, str], ...]:
    """Messages that go on from a text with a call, and what the call gave back."""
    reply = {"role": "assistant", "content": text}
    return (*messages, reply, {"role": "user", "content": f"The tool gives back:\n{result}"})


def _calls_before(state: Episode, turn: int) -> list[int]:
    """Ids of the calls that a turn goes on from, the first one first."""
    calls: list[int] = []
    parent = state.turns[turn].parent
    while parent is not None and state.turns[parent].kind == CALL:
        calls.insert(0, parent)
        parent = state.turns[parent].parent
    return calls
