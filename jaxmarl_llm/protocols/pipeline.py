"""Agents answer one after the other, each sees the answers before its own (baseline of MAGRPO's paper).

With several turns each turn is a pipeline: the agents continue in the same order from their own earlier
prompts and replies and the feedback, and each sees the answers before its own in this turn.
"""

import dataclasses

from jaxmarl_llm.forest import Node, SpeakRequest
from jaxmarl_llm.protocols.hearing import with_quotes
from jaxmarl_llm.protocols.turns import MultiTurn, by_node, history, own_turns
from jaxmarl_llm.protocols.types import Episode


@dataclasses.dataclass(frozen=True)
class Pipeline(MultiTurn):
    """The agents answer in the order of the prompts, each once per node and sample.

    Sample g of an agent has read sample g of every agent before it, so joint answers are aligned.
    """

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to the next agent on all nodes: the first draws G samples, the others one after each."""
        agents = list(self.prompts(state.items[0])) if state.items else []
        if not state.turns:
            return [
                SpeakRequest(agents[0], i, tuple(self.prompts(item)[agents[0]]), self.samples)
                for i, item in enumerate(state.items)
            ]
        number = state.turns[-1].turn
        nodes = by_node(state, number)
        answered = list(next(iter(nodes.values())))
        if len(answered) < len(agents):
            return self._after(state, agents[len(answered)], number, nodes)
        return [requests[0] for requests in self.next_turn(state, number + 1)]

    def _after(self, state: Episode, agent: str, number: int, nodes: dict) -> list[SpeakRequest]:
        """Requests to an agent, one after each sample of the agents before it."""
        requests = []
        for (item, j), by_agent in nodes.items():
            last = None if j is None else next(turn for turn in own_turns(state, j) if turn.agent == agent)
            prompt = self.prompts(state.items[item])[agent] if last is None else history(state, last, j)
            for earlier in zip(*by_agent.values(), strict=True):
                messages = with_quotes(prompt, {turn.agent: turn.text for turn in earlier})
                parent = earlier[-1].id if last is None else last.id
                requests.append(SpeakRequest(agent, item, messages, 1, number, parent=parent, follows=j))
        return requests

    def observe(self, state: Episode, turns) -> list[Node]:
        """The nodes of a turn once its last agent has answered; none before that."""
        number, nodes = turns[0].turn, []
        for (item, j), by_agent in by_node(state, number).items():
            agents = list(self.prompts(state.items[item]))
            if len(by_agent) == len(agents):
                nodes.append(Node(item, {a: tuple(t.id for t in by_agent[a]) for a in agents}, number, j))
        return nodes
