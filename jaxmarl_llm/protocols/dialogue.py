"""Dialogue: an agent asks a partner, who has hidden knowledge, turn by turn, until it answers (SWEET-RL).

In every turn the agent writes a text. If the text is its answer, the dialogue ends; the text of the last turn
always counts as the answer. Otherwise the partner replies, and the agent continues with the reply in its
prompt. The partner is a script, a model behind an endpoint or one that does not learn. It has read the item's
hidden text; it is not judged, and no gradient reaches it.

Each sample of the first turn begins its own dialogue, which is its own node in every turn, so that the last
text of each counts (`credit.backed_up_returns` with ``last``). With ``candidates`` C > 1, C - 1 alternatives
are drawn for each text, which are not judged and get no reply (`Turn.extra`), for systems that compare them.

Source: ColBench of arXiv 2503.15478, where dialogues have at most ten turns.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

from jaxmarl_llm.forest import REMARK, Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.types import Answer, Episode, Messages, Prompts, item_name
from jaxmarl_llm.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class Dialogue:
    """An agent and a partner take turns.

    Attributes:
      prompts: item -> {agent: chat messages}, of one agent.
      partner: name of the partner.
      privileged: item -> the hidden text, which must not be in any prompt of the agent.
      briefing: item -> what the partner reads before the first question.
      ends: maps an answer without a judgement to whether its text ends the dialogue.
      samples: G, dialogues about each item.
      turns: largest number of the agent's texts in a dialogue.
      candidates: C, texts drawn from the agent for each one that continues.
    """

    prompts: Prompts
    partner: str
    privileged: Callable[[Any], str]
    briefing: Callable[[Any], str]
    ends: Callable[[Answer], bool]
    samples: int
    turns: int
    candidates: int = 1

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to the agent about all items; then alternately to partner and agent, while any runs."""
        if not state.turns:
            return [self._first(state, i) for i in range(len(state.items))]
        latest = state.turns[-1]
        level = [turn for turn in state.turns if turn.stage == latest.stage and not turn.extra]
        if latest.kind == REMARK:
            return [self._next(state, turn) for turn in level]
        if latest.turn + 1 == self.turns:
            return []
        place = {i: j for j, joint in enumerate(state.joints) for i in joint.turns}
        return [self._reply(state, turn, place[turn.id]) for turn in level if not self._ended(state, turn)]

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """A node for every text of the agent that counts; none for the partner's."""
        if turns[0].kind == REMARK:
            return []
        nodes = []
        for turn in (turn for turn in turns if not turn.extra):
            replies = () if turn.parent is None else ((turn.parent,),)
            nodes.append(Node(turn.item, {turn.agent: (turn.id,)}, turn.turn, turn.follows, replies))
        return nodes

    def _first(self, state: Episode, i: int) -> SpeakRequest:
        ((agent, messages),) = self.prompts(state.items[i]).items()
        extra = self.samples * (self.candidates - 1)
        return self._to_agent(state, agent, i, tuple(messages), samples=self.samples + extra, extra=extra)

    def _next(self, state: Episode, reply: Turn) -> SpeakRequest:
        """The request to the agent after a reply."""
        before = state.turns[reply.parent]
        texts = ({"role": "assistant", "content": before.text}, {"role": "user", "content": reply.text})
        messages = (*state.messages(before), *texts)
        place = dict(turn=before.turn + 1, parent=reply.id, follows=reply.follows)
        number = dict(samples=self.candidates, extra=self.candidates - 1)
        return self._to_agent(state, before.agent, before.item, messages, **place, **number)

    def _to_agent(self, state: Episode, agent: str, i: int, messages: Messages, **options) -> SpeakRequest:
        """A request to the agent. UserError if it contains the hidden text outside the agent's own texts."""
        item = state.items[i]
        read = [message["content"] for message in messages if message["role"] != "assistant"]
        if any(holds(text, self.privileged(item)) for text in read):
            raise UserError(
                f"the prompt of agent {agent!r} for item {item_name(item)} holds the hidden text, which only the "
                f"partner {self.partner!r} and critics may read"
            )
        return SpeakRequest(agent, i, messages, **options)

    def _reply(self, state: Episode, turn: Turn, j: int) -> SpeakRequest:
        """The request to the partner after a text of the agent, which is joint answer ``j``."""
        question = {"role": "user", "content": turn.text}
        if turn.parent is None:
            content = f"{self.briefing(state.items[turn.item])}\n\n{turn.text}"
            messages: Messages = ({"role": "user", "content": content},)
        else:
            reply = state.turns[turn.parent]
            before = state.messages(reply)
            messages = (*before, {"role": "assistant", "content": reply.text}, question)
        return SpeakRequest(
            self.partner, turn.item, messages, 1, turn.turn, parent=turn.id, follows=j, kind=REMARK
        )

    def _ended(self, state: Episode, turn: Turn) -> bool:
        return self.ends(Answer(state.items[turn.item], {turn.agent: turn.text}, None))


def holds(text: str, hidden: str) -> bool:
    """Whether a text contains a hidden one word for word, ignoring spacing; an empty one is never contained.

    >>> holds("I know:  the pair is\\nleft.", "the pair is left"), holds("The key is 123.", "12")
    (True, False)
    """
    text, hidden = (" ".join(part.split()) for part in (text, hidden))
    return bool(hidden) and re.search(rf"(?<!\w){re.escape(hidden)}(?!\w)", text) is not None
