"""Discussion: all agents answer, read each other's answers, and answer again (baseline of MAGRPO's paper).

The first answers are of kind `REMARK`: they lead to the answers that are judged. With several turns each turn
is such a discussion: the agents continue from their own earlier prompts and replies, final ones included, and
the feedback.
"""

import dataclasses

from jaxmarl_llm.forest import REMARK, Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.hearing import quoted
from jaxmarl_llm.protocols.turns import MultiTurn, by_node
from jaxmarl_llm.protocols.types import Episode, first_requests, remarks

AGAIN = "Answer the question again, in the same form, so that your answers fit together."


@dataclasses.dataclass(frozen=True)
class Discussion(MultiTurn):
    """Every agent answers alone, then reads the others' answers and gives a final one, which is judged.

    Sample g of the second round reads sample g of the first, so joint answers are aligned. The first round's
    answers get the reward of the final ones.
    """

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to all agents on all nodes of the turn, then to all again after each sample."""
        if not state.turns:
            return remarks(first_requests(state, self.prompts, self.samples))
        number = state.turns[-1].turn
        if state.turns[-1].kind == REMARK:
            return [
                self._again(state, turn, {t.agent: t.message for t in sample if t is not turn})
                for by_agent in by_node(state, number, REMARK).values()
                for sample in zip(*by_agent.values(), strict=True)
                for turn in sample
            ]
        return remarks(request for requests in self.next_turn(state, number + 1) for request in requests)

    def observe(self, state: Episode, turns) -> list[Node]:
        """The nodes of a turn after its second round; none after the first."""
        if turns[0].kind == REMARK:
            return []
        number = turns[0].turn
        first_round, nodes = by_node(state, number, REMARK), []
        for (item, j), by_agent in by_node(state, number).items():
            agents = list(self.prompts(state.items[item]))
            final = {agent: tuple(turn.id for turn in by_agent[agent]) for agent in agents}
            heard = tuple(tuple(turn.id for turn in first_round[item, j][agent]) for agent in agents)
            nodes.append(Node(item, final, number, j, heard))
        return nodes

    def _again(self, state: Episode, turn: Turn, others: dict[str, str]) -> SpeakRequest:
        reply = {"role": "assistant", "content": turn.message}
        question = {"role": "user", "content": f"{quoted(others)}\n\n{AGAIN}" if others else AGAIN}
        messages = (*state.messages(turn), reply, question)
        return SpeakRequest(
            turn.agent, turn.item, messages, 1, turn.turn, parent=turn.id, follows=turn.follows
        )
