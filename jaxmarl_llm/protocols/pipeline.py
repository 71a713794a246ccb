"""One agent after the other, each sees what those before it wrote (a baseline of MAGRPO's paper).

In many turns each turn is a pipeline: the agents go on in the same order from their own earlier prompts and
replies and the feedback, and each sees what those before it wrote in this turn.
"""

import dataclasses

from jaxmarl_llm.forest import Node, SpeakRequest
from jaxmarl_llm.protocols.hearing import with_heard
from jaxmarl_llm.protocols.turns import InTurns, by_node, history, own_turns
from jaxmarl_llm.protocols.types import Episode


@dataclasses.dataclass(frozen=True)
class Pipeline(InTurns):
    """The agents speak in the order of the prompts, each once per node and sample.

    Sample g of an agent has seen sample g of every agent before it, so joint answers are aligned.
    """

    def step(self, state: Episode) -> list[SpeakRequest]:
        """The next agent of the turn on all nodes: the first draws G samples, the others one after each."""
        agents = list(self.prompts(state.items[0])) if state.items else []
        if not state.turns:
            return [
                SpeakRequest(agents[0], i, tuple(self.prompts(item)[agents[0]]), self.samples)
                for i, item in enumerate(state.items)
            ]
        number = state.turns[-1].turn
        nodes = by_node(state, number)
        spoken = list(next(iter(nodes.values())))
        if len(spoken) < len(agents):
            return self._after(state, agents[len(spoken)], number, nodes)
        return [requests[0] for requests in self.next_turn(state, number + 1)]

    def _after(self, state: Episode, agent: str, number: int, nodes: dict) -> list[SpeakRequest]:
        """Ask an agent once after each sample of those before it."""
        requests = []
        for (item, j), before in nodes.items():
            own = None if j is None else next(turn for turn in own_turns(state, j) if turn.agent == agent)
            seen = self.prompts(state.items[item])[agent] if own is None else history(state, own, j)
            for earlier in zip(*before.values(), strict=True):
                messages = with_heard(seen, {turn.agent: turn.text for turn in earlier})
                parent = earlier[-1].id if own is None else own.id
                requests.append(SpeakRequest(agent, item, messages, 1, number, parent=parent, follows=j))
        return requests

    def observe(self, state: Episode, turns) -> list[Node]:
        """When the last agent of a turn has spoken, its nodes."""
        number, nodes = turns[0].turn, []
        for (item, j), given in by_node(state, number).items():
            agents = list(self.prompts(state.items[item]))
            if len(given) == len(agents):
                nodes.append(Node(item, {a: tuple(t.id for t in given[a]) for a in agents}, number, j))
        return nodes
