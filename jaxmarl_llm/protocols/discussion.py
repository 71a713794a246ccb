"""One round of discussion: all answer, hear each other, and answer again (a baseline of MAGRPO's paper).

``Turn.turn`` counts both rounds, those of turn t are 2 t and 2 t + 1; ``Node.turn`` and ``Joint.turn`` are t.
In many turns each turn is a discussion: the agents go on from their own earlier prompts and replies, final
ones included, and the feedback.
"""

import dataclasses

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.hearing import quoted
from jaxmarl_llm.protocols.turns import InTurns, by_node
from jaxmarl_llm.protocols.types import Episode, everybody

AGAIN = "Answer the question again, in the same form, so that your answers fit together."


@dataclasses.dataclass(frozen=True)
class Discussion(InTurns):
    """Every agent answers blind, then sees the others' answers and gives its final one, which is judged.

    Sample g of the second round has seen sample g of the first, so joint answers are aligned. The first
    round's answers earn what the final ones do.
    """

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Ask all agents on all nodes of the turn, then all again after each sample."""
        if not state.turns:
            return everybody(state, self.prompts, self.samples)
        number = state.turns[-1].turn
        if number % 2 == 0:
            return [
                self._again(state, own, {t.agent: t.text for t in together if t is not own})
                for given in by_node(state, number).values()
                for together in zip(*given.values(), strict=True)
                for own in together
            ]
        done = number // 2 + 1
        return [request for requests in self.next_turn(state, done) for request in requests]

    def observe(self, state: Episode, turns) -> list[Node]:
        """After the second round of a turn, its nodes."""
        number = turns[0].turn
        if number % 2 == 0:
            return []
        blind, nodes = by_node(state, number - 1), []
        for (item, j), given in by_node(state, number).items():
            agents = list(self.prompts(state.items[item]))
            final = {agent: tuple(turn.id for turn in given[agent]) for agent in agents}
            heard = tuple(tuple(turn.id for turn in blind[item, j][agent]) for agent in agents)
            nodes.append(Node(item, final, number // 2, j, heard))
        return nodes

    def _again(self, state: Episode, own: Turn, others: dict[str, str]) -> SpeakRequest:
        reply = {"role": "assistant", "content": own.text}
        now = {"role": "user", "content": f"{quoted(others)}\n\n{AGAIN}" if others else AGAIN}
        messages = (*state.requests[own.request].messages, reply, now)
        return SpeakRequest(
            own.agent, own.item, messages, 1, own.turn + 1, parent=own.id, follows=own.follows
        )
