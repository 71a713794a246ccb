"""Routes decided in words: an agent reads the question and the last answer, and names the agent that answers
next.

"stop", or an unknown name, ends the route; before the first answer it then has no answer. Routes without an
answer and unknown names are counted (`tasks.routed`). The named agent reads the question and the previous
answer, as in `protocols.routed`.
"""

import dataclasses
from collections.abc import Sequence

from jaxmarl_llm.forest import CALL, REMARK, Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.hearing import with_quotes
from jaxmarl_llm.protocols.types import Episode, Prompts, apart
from jaxmarl_llm.tasks.routed import STOP, last_line, named


def question(agents: Sequence[str], answered: bool) -> str:
    """What the deciding agent reads after the question: which agents it may name."""
    names = ", ".join(agents)
    if answered:
        return (
            f"Who is to answer next? End with a line that is one of: {names}, or {STOP} to take this answer."
        )
    return f"Who is to answer this? End with a line that is one of: {names}."


@dataclasses.dataclass(frozen=True)
class Prompted:
    """``samples`` routes for every item, of at most ``turns`` answers.

    Attributes:
      prompts: item -> {agent: chat messages}, of all agents.
      decides: the agent that decides, and does not answer.
      samples, turns: see above.
      apart: every route has its own first request; False in evaluations.
    """

    prompts: Prompts
    decides: str
    samples: int
    turns: int
    apart: bool = True

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to the agent that decides, then to the agents that it has named."""
        if not state.turns:
            requests = [self._decide(state, item, self.samples) for item in range(len(state.items))]
            return apart(requests) if self.apart else requests
        last = [turn for turn in state.turns if turn.step == state.turns[-1].step]
        if any(turn.agent == self.decides for turn in last):
            return [self._answer(state, turn) for turn in last if turn.kind == CALL]
        if last[0].turn + 1 == self.turns:
            return []
        joints = {joint.turns[0]: j for j, joint in enumerate(state.joints)}
        return [self._decide(state, turn.item, 1, turn, joints[turn.id]) for turn in last]

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """A node for every answer, and for routes without an answer, in the order in which they began."""
        number = turns[0].turn
        if any(turn.kind == CALL for turn in turns) or number and turns[0].agent == self.decides:
            return []
        own = [turn for turn in state.turns if turn.turn == number and turn.kind not in (CALL, REMARK)]
        own.sort(key=lambda turn: turn.id if turn.agent == self.decides else turn.parent)
        return [self._node(turn) for turn in own]

    def _others(self, state: Episode, item: int) -> dict[str, list]:
        """The prompts of the agents that answer."""
        prompts = self.prompts(state.items[item])
        return {agent: own for agent, own in prompts.items() if agent != self.decides}

    def _decide(
        self, state: Episode, item: int, samples: int, after: Turn | None = None, follows: int | None = None
    ) -> SpeakRequest:
        """The request for a decision: at the start, or after an answer."""
        agents = tuple(self._others(state, item))
        *before, last = self.prompts(state.items[item])[self.decides]
        messages = (
            (*before, last) if after is None else with_quotes((*before, last), {after.agent: after.text})
        )
        *before, last = messages
        text = f"{last['content']}\n\n{question(agents, after is not None)}"
        first = dict(turn=0) if after is None else dict(turn=after.turn + 1, parent=after.id, kind=REMARK)
        return SpeakRequest(
            self.decides, item, (*before, {**last, "content": text}), samples, follows=follows,
            call_mark=last_line(agents), **first,
        )  # fmt: skip

    def _answer(self, state: Episode, turn: Turn) -> SpeakRequest:
        """The request to the agent that a decision has named."""
        others = self._others(state, turn.item)
        agent = named(turn.text, tuple(others))
        messages = tuple(others[agent])
        if turn.parent is not None:
            before = state.turns[turn.parent]
            messages = with_quotes(messages, {before.agent: before.text})
        return SpeakRequest(agent, turn.item, messages, 1, turn.turn, parent=turn.id, follows=turn.follows)

    def _node(self, turn: Turn) -> Node:
        heard = () if turn.agent == self.decides else ((turn.parent,),)
        return Node(turn.item, {turn.agent: (turn.id,)}, turn.turn, turn.follows, heard)
