"""Any protocol, with agents that call tools before they answer.

A text with a call is not an answer: its agent reads the result of the call and continues, until it writes a
text without a call. Results of tools are part of prompts, and are never trained on; calls are trained by the
reward of the answer that they led to. The inner protocol sees only the answers.
"""

import dataclasses
from collections.abc import Sequence

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.exchange import completed_nodes, next_requests
from jaxmarl_llm.protocols.types import Episode, Protocol
from jaxmarl_llm.protocols.without_calls import calls_before, is_call, without_calls
from jaxmarl_llm.tasks.tools import MARK, Call, Toolbox


@dataclasses.dataclass(frozen=True)
class WithTools:
    """``inner`` with tools.

    Attributes:
      inner: the protocol whose requests are answered.
      toolbox: the tools.
      calls: largest number of calls before an answer; the text after the last one is always the answer.
      agents: those that may call tools.
      apart: every sample has its own request, so that all requests have equally many samples; False in
        evaluations.
    """

    inner: Protocol
    toolbox: Toolbox
    calls: int
    agents: tuple[str, ...]
    apart: bool = True

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to agents that called a tool; if there are none, those of the inner protocol."""
        if waiting := _waiting(state):
            calls = [
                Call(state.items[turn.item], turn.text, state.requests[turn.request].turn) for turn in waiting
            ]
            results = self.toolbox.results(calls)
            return [self._go_on(state, turn, text) for turn, text in zip(waiting, results, strict=True)]
        view = without_calls(state, MARK)
        requests = [
            self._offering(view.request(request)) for request in next_requests(self.inner, view.answers)
        ]
        return _split(requests) if self.apart else requests

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """The nodes of the inner protocol once all its requests are answered; none before that."""
        if _waiting(state):
            return []
        view = without_calls(state, MARK)
        last = view.answers.turns[-1].step
        new = [turn for turn in view.answers.turns if turn.step == last]
        return [view.node(node) for node in completed_nodes(self.inner, view.answers, new)]

    def _offering(self, request: SpeakRequest) -> SpeakRequest:
        """A request with the tools in its prompt, unless they are there already, and calls allowed.

        An agent that names other agents, or continues in the middle of a message, calls no tools.
        """
        bound = request.call_mark or request.prefix or request.until
        if request.agent not in self.agents or bound or request.given is not None:
            return request
        return dataclasses.replace(request, messages=offered(request.messages, self.toolbox), call_mark=MARK)

    def _go_on(self, state: Episode, turn: Turn, result: str) -> SpeakRequest:
        """The request that follows a call, with its result."""
        request = state.requests[turn.request]
        made = len(calls_before(state, turn.id, MARK)) + 1
        messages = after_call(request.messages, turn.text, result)
        mark = MARK if made < self.calls else ""
        return dataclasses.replace(
            request, messages=messages, samples=1, extra=0, parent=turn.id, call_mark=mark, first_sample=0
        )


def _waiting(state: Episode) -> list[Turn]:
    """The calls of the last step, which have no result yet."""
    last = state.turns[-1].step if state.turns else 0
    return [turn for turn in state.turns if turn.step == last and is_call(state, turn, MARK)]


def _split(requests: Sequence[SpeakRequest]) -> list[SpeakRequest]:
    """The requests, split into one per sample, so that all have equally many samples."""
    return [
        dataclasses.replace(request, samples=1, first_sample=sample)
        for request in requests
        for sample in range(request.samples)
    ]


def offered(messages: Sequence[dict[str, str]], toolbox: Toolbox) -> tuple[dict[str, str], ...]:
    """Messages with the tools in front (`in_front`), unless they are there already."""
    text = toolbox.describe()
    if any(text in message["content"] for message in messages):
        return tuple(messages)
    return in_front(messages, text)


def in_front(messages: Sequence[dict[str, str]], text: str) -> tuple[dict[str, str], ...]:
    """Messages with a text before the first one that is not the system's.

    The prompts of all problems then begin with it, so that it is read once for all of them
    (`padding.Shared`).
    """
    others = (n for n, message in enumerate(messages) if message["role"] != "system")
    place = next(others, len(messages) - 1)
    first = messages[place]
    first = {**first, "content": f"{text}\n\n{first['content']}"}
    return (*messages[:place], first, *messages[place + 1 :])


def after_call(messages: Sequence[dict[str, str]], text: str, result: str) -> tuple[dict[str, str], ...]:
    """Messages that continue from a text with a call, and the call's result."""
    reply = {"role": "assistant", "content": text}
    return (*messages, reply, {"role": "user", "content": f"The tool gives back:\n{result}"})
