"""All agents answer at the same time, blind to each other, in one turn or in many (MAGRPO, arXiv 2508.04652).

In many turns every joint answer that is handed on begins a node of its own: each agent sees its own earlier
prompts and replies and what the feedback says to it, and tries again. With ``hand_on="all"`` the nodes form a
tree, otherwise a chain.
"""

import dataclasses

from jaxmarl_llm.forest import Node, SpeakRequest
from jaxmarl_llm.protocols.turns import InTurns
from jaxmarl_llm.protocols.types import Episode, everybody


@dataclasses.dataclass(frozen=True)
class Simultaneous(InTurns):
    """Every agent answers every item at the same time, ``turns`` times.

    Attributes:
      extra: K further samples of every agent, for the partners' sake alone (`Turn.extra`); in one turn only.
    """

    extra: int = 0

    def __post_init__(self):
        super().__post_init__()
        if self.extra and self.turns > 1:
            raise ValueError(f"extra={self.extra}: with turns={self.turns} their answers would be handed on")

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Ask all agents about all items; then, turn by turn, about every joint answer that is handed on."""
        if not state.turns:
            return everybody(state, self.prompts, self.samples, self.extra)
        done = state.turns[-1].turn + 1
        return [request for requests in self.next_turn(state, done) for request in requests]

    def observe(self, state: Episode, turns) -> list[Node]:
        """Return one node for each item, or joint answer, that everybody has spoken on."""
        found: dict[tuple, dict[str, list[int]]] = {}
        for turn in turns:
            place = (turn.item, state.requests[turn.request].follows)
            found.setdefault(place, {}).setdefault(turn.agent, []).append(turn.id)
        return [
            Node(item, {agent: tuple(ids) for agent, ids in said.items()}, turns[0].turn, follows)
            for (item, follows), said in found.items()
        ]
