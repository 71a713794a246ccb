"""All agents answer at once, without seeing each other, in one turn or several (MAGRPO, arXiv 2508.04652).

With several turns, every joint answer that is handed on begins its own node: each agent sees its own earlier
prompts and replies and its feedback, and tries again. With ``hand_on="all"`` the nodes form a tree, otherwise
a chain.
"""

import dataclasses

from jaxmarl_llm.forest import Node, SpeakRequest
from jaxmarl_llm.protocols.turns import MultiTurn
from jaxmarl_llm.protocols.types import Episode, first_requests
from jaxmarl_llm.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class Simultaneous(MultiTurn):
    """Every agent answers every item at the same time, ``turns`` times.

    Attributes:
      extra: K further samples of every agent, for the partners' returns only (`Turn.extra`); with one turn.
    """

    extra: int = 0

    def __post_init__(self):
        super().__post_init__()
        if self.extra and self.turns > 1:
            raise UserError(f"extra={self.extra}: with turns={self.turns} their answers would be handed on")

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to all agents on all items; then, turn by turn, after each joint answer handed on."""
        if not state.turns:
            return first_requests(state, self.prompts, self.samples, self.extra)
        done = state.turns[-1].turn + 1
        return [request for requests in self.next_turn(state, done) for request in requests]

    def observe(self, state: Episode, turns) -> list[Node]:
        """Return one node for each item, or joint answer before, that all agents have answered."""
        ids_by_place: dict[tuple, dict[str, list[int]]] = {}
        for turn in turns:
            place = (turn.item, state.requests[turn.request].follows)
            ids_by_place.setdefault(place, {}).setdefault(turn.agent, []).append(turn.id)
        return [
            Node(item, {agent: tuple(ids) for agent, ids in ids_by_agent.items()}, turns[0].turn, follows)
            for (item, follows), ids_by_agent in ids_by_place.items()
        ]
