"""A planner decides in words what is next: a caller calls a tool, or a summarizer answers (arXiv 2401.07324).

The planner reads the question and the calls so far, and writes what is needed and, in its last line, a route:
"Next: caller", "Next: conclusion" or "Next: give up". Any other last line is not a route: like giving up, it
ends the conversation without an answer, and is counted separately (`tasks.planned`). Results of tools are
part of prompts, and are never trained on.

In the released code a planner without a route is sent to the caller, and prompts name the planner's role
differently in training than afterwards. Here demonstrations have the prompts of this protocol (`worked`).
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from jaxmarl_llm.forest import CALL, Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.types import Episode, Messages, Prompts, apart
from jaxmarl_llm.protocols.with_tools import in_front
from jaxmarl_llm.tasks.planned import CALLER, CONCLUSION, GIVE_UP, last_line, route_of
from jaxmarl_llm.tasks.tools import Call, Toolbox

# Texts of the planner after which another agent writes.
GOES_ON, CONCLUDES = last_line(CALLER, CONCLUSION), last_line(CONCLUSION)
ANYTHING = r"\A"  # any call leads to another request
PLAN = (
    f'Say in a sentence what is needed now, and end with a line that is "Next: {CALLER}" if a tool must be called, '
    f'"Next: {CONCLUSION}" if all that is needed is known, or "Next: {GIVE_UP}".'
)
CALL_NOW = "Write the one call of a tool that the plan needs, and nothing else."
ANSWER_NOW = "Answer the question from these results."


class Done(NamedTuple):
    """A finished call: what the planner wrote before it, and what others read of the call and its result."""

    plan: str
    shown: str


def done(plan: str, call: str, result: str) -> Done:
    """The record of a finished call."""
    return Done(plan, f"The call was:\n{call}\nThe tool gives back:\n{result}")


def planner_reads(question: Messages, toolbox: Toolbox, calls: Sequence[Done]) -> Messages:
    """Messages of the planner: the tools and the question, then each of its plans and the plan's outcome."""
    tools = "\n".join(["There are these tools:", *toolbox.lines()])
    messages = with_text(in_front(question, tools), PLAN)
    for one in calls:
        messages += ({"role": "assistant", "content": one.plan}, {"role": "user", "content": one.shown})
    return messages


def caller_reads(question: Messages, toolbox: Toolbox, calls: Sequence[Done], plan: str) -> Messages:
    """Messages of the caller: the tools, the question, the calls so far, and the plan."""
    before = *(one.shown for one in calls), f"The plan is:\n{plan}"
    return with_text(in_front(question, toolbox.describe()), *before, CALL_NOW)


def summarizer_reads(question: Messages, calls: Sequence[Done]) -> Messages:
    """Messages of the summarizer: the question and the calls."""
    return with_text(question, *(one.shown for one in calls), ANSWER_NOW)


def with_text(messages: Messages, *texts: str) -> Messages:
    """Messages with texts appended to the last one."""
    *before, last = messages
    return (*before, {**last, "content": "\n\n".join([last["content"], *texts])})


@dataclasses.dataclass(frozen=True)
class Planner:
    """Conversations of three agents, the planner, the caller and the summarizer, in this order.

    Attributes:
      prompts: item -> {agent: chat messages}.
      toolbox: the tools.
      samples: conversations about every item.
      calls: largest number of calls of a conversation; a planner that then wants another one ends it.
      apart: every conversation has its own first request, so that all requests have equally many samples;
        False in evaluations.
    """

    prompts: Prompts
    toolbox: Toolbox
    samples: int
    calls: int
    apart: bool = True

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to the next agent in each running conversation."""
        if not state.turns:
            requests = [self._plan(state, item, (), self.samples) for item in range(len(state.items))]
            return apart(requests) if self.apart else requests
        last = [turn for turn in state.turns if turn.step == state.turns[-1].step and turn.kind == CALL]
        caller = list(self.prompts(state.items[0]))[1]
        made = [turn for turn in last if turn.agent == caller]
        results = self.toolbox.results([Call(state.items[turn.item], turn.text) for turn in made])
        result_of = {turn.id: text for turn, text in zip(made, results, strict=True)}
        return [self._after(state, turn, result_of.get(turn.id, "")) for turn in last]

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """A node for each conversation, in the order in which they began, once all have ended."""
        if any(turn.kind == CALL for turn in turns):
            return []
        parents = {turn.parent for turn in state.turns}
        chains = [_chain(state, turn) for turn in state.turns if turn.id not in parents]
        chains.sort(key=lambda chain: chain[0].id)
        return [
            Node(end.item, {end.agent: (end.id,)}, heard=tuple((turn.id,) for turn in before))
            for *before, end in chains
        ]

    def _after(self, state: Episode, turn: Turn, result: str) -> SpeakRequest:
        """The request after a turn that does not end the conversation; ``result`` of a call."""
        item = state.items[turn.item]
        questions = {agent: tuple(own) for agent, own in self.prompts(item).items()}
        planner, caller, summarizer = questions
        plan = turn if turn.agent == planner else state.turns[turn.parent]
        calls = _calls_before(state, plan, len(questions[planner]))
        if turn.agent == caller:
            calls.append(done(plan.text, turn.text, result))
            return self._plan(state, turn.item, calls, 1, turn.id)
        if route_of(turn.text) == CONCLUSION:
            messages = summarizer_reads(questions[summarizer], calls)
            return SpeakRequest(summarizer, turn.item, messages, 1, parent=turn.id)
        messages = caller_reads(questions[caller], self.toolbox, calls, turn.text)
        return SpeakRequest(caller, turn.item, messages, 1, parent=turn.id, call_mark=ANYTHING)

    def _plan(
        self, state: Episode, item: int, calls: Sequence[Done], samples: int, parent: int | None = None
    ) -> SpeakRequest:
        """The request for a plan after some calls."""
        planner, question = next(iter(self.prompts(state.items[item]).items()))
        messages = planner_reads(tuple(question), self.toolbox, calls)
        mark = GOES_ON if len(calls) < self.calls else CONCLUDES
        return SpeakRequest(planner, item, messages, samples, parent=parent, call_mark=mark)


def _calls_before(state: Episode, plan: Turn, question: int) -> list[Done]:
    """The calls before a plan, as in its prompt after the ``question`` first messages."""
    texts = [message["content"] for message in state.requests[plan.request].messages[question:]]
    return [Done(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)]


def _chain(state: Episode, turn: Turn) -> list[Turn]:
    """The turns of a conversation up to a given one, in order."""
    chain = [turn]
    while chain[0].parent is not None:
        chain.insert(0, state.turns[chain[0].parent])
    return chain
