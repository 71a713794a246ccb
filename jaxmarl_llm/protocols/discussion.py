"""One round of discussion: all answer, hear each other, and answer again (a baseline of MAGRPO's paper)."""

import dataclasses

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.hearing import quoted
from jaxmarl_llm.protocols.types import Episode, Prompts, everybody

AGAIN = "Answer the question again, in the same form, so that your answers fit together."


@dataclasses.dataclass(frozen=True)
class Discussion:
    """Every agent answers blind, then sees the others' answers and gives its final one, which is judged.

    Sample g of the second round has seen sample g of the first, so joint answers are aligned. The first
    round's answers earn what the final ones do.

    Attributes:
      prompts: item -> {agent: chat messages}.
      samples: G, completions of every agent per item and round.
    """

    prompts: Prompts
    samples: int

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Ask all agents about all items, then all again after each sample."""
        if not state.turns:
            return everybody(state, self.prompts, self.samples)
        if any(turn.turn for turn in state.turns):
            return []
        return [
            self._again(state, own, {t.agent: t.text for t in together if t is not own})
            for together in self._first_round(state)
            for own in together
        ]

    def observe(self, state: Episode, turns) -> list[Node]:
        """After the second round, a node per item."""
        if not turns[0].turn:
            return []

        def ids(item, agent, index):
            place = (item, agent, index)
            return tuple(t.id for t in state.turns if (t.item, t.agent, t.turn) == place)

        nodes = []
        for i, item in enumerate(state.items):
            agents = list(self.prompts(item))
            final = {agent: ids(i, agent, 1) for agent in agents}
            nodes.append(Node(i, final, turn=1, heard=tuple(ids(i, agent, 0) for agent in agents)))
        return nodes

    def _first_round(self, state: Episode) -> list[tuple[Turn, ...]]:
        """Return what was said together: sample g of every agent, item by item."""
        together = []
        for i, item in enumerate(state.items):
            said = [[t for t in state.turns if (t.item, t.agent) == (i, a)] for a in self.prompts(item)]
            together += list(zip(*said, strict=True))
        return together

    def _again(self, state: Episode, own: Turn, others: dict[str, str]) -> SpeakRequest:
        reply = {"role": "assistant", "content": own.text}
        told = {"role": "user", "content": f"{quoted(others)}\n\n{AGAIN}" if others else AGAIN}
        messages = (*state.requests[own.request].messages, reply, told)
        return SpeakRequest(own.agent, own.item, messages, 1, turn=1, parent=own.id)
