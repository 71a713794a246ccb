"""A relay: different agents answer in each turn, each after what the agent at its place in the last turn saw.

So a team has separate parameters for every turn (like MAPoRL's released code, arXiv 2502.18439), or other
models.
"""

import dataclasses
from collections.abc import Sequence

from jaxmarl_llm.forest import SpeakRequest
from jaxmarl_llm.protocols.simultaneous import Simultaneous
from jaxmarl_llm.protocols.types import Episode


def turns_of(agents: Sequence[str], turns: int) -> list[tuple[str, ...]]:
    """The agents of each turn: the same number of ``agents`` in each, in their order.

    >>> turns_of(["a", "b", "c", "d"], 2)
    [('a', 'b'), ('c', 'd')]
    """
    size = len(agents) // turns
    return [tuple(agents[turn * size : (turn + 1) * size]) for turn in range(turns)]


@dataclasses.dataclass(frozen=True)
class Relay(Simultaneous):
    """The agents of a turn answer at the same time; those of the next turn continue from their answers.

    Attributes:
      agents: names of all agents (``prompts`` has a chat of each), see `turns_of`.
    """

    agents: tuple[str, ...] = ()

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to the agents of the next turn."""
        requests, groups = super().step(state), turns_of(self.agents, self.turns)
        if not state.turns:
            return [request for request in requests if request.agent in groups[0]]
        places = range(len(groups[0]))
        after = {now[k]: later[k] for now, later in zip(groups, groups[1:], strict=False) for k in places}
        return [dataclasses.replace(request, agent=after[request.agent]) for request in requests]
