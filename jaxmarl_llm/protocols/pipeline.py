"""One agent after the other, each sees what those before it said (a baseline of MAGRPO's paper)."""

import dataclasses

from jaxmarl_llm.forest import Node, SpeakRequest
from jaxmarl_llm.protocols.hearing import with_heard
from jaxmarl_llm.protocols.types import Episode, Prompts


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """The agents speak in the order of the prompts, each once per item and sample.

    Sample g of an agent has seen sample g of every agent before it, so joint answers are aligned.

    Attributes:
      prompts: item -> {agent: chat messages}.
      samples: G, completions of every agent per item.
    """

    prompts: Prompts
    samples: int

    def step(self, state: Episode) -> list[SpeakRequest]:
        """The next agent on all items: the first draws G samples, the others one after each of those."""
        asked = [self.prompts(item) for item in state.items]
        spoken = list(dict.fromkeys(turn.agent for turn in state.turns))
        waiting = [agent for agent in asked[0] if agent not in spoken] if asked else []
        if not waiting:
            return []
        agent = waiting[0]
        if not spoken:
            return [SpeakRequest(agent, i, tuple(said[agent]), self.samples) for i, said in enumerate(asked)]
        requests = []
        for i, said in enumerate(asked):
            before = [[t for t in state.turns if (t.agent, t.item) == (name, i)] for name in spoken]
            for heard in zip(*before, strict=True):
                messages = with_heard(said[agent], {turn.agent: turn.text for turn in heard})
                requests.append(SpeakRequest(agent, i, messages, 1, parent=heard[-1].id))
        return requests

    def observe(self, state: Episode, turns) -> list[Node]:
        """When the last agent has spoken, a node per item."""
        nodes = []
        for i, item in enumerate(state.items):
            mine = [turn for turn in state.turns if turn.item == i]
            said = {name: tuple(t.id for t in mine if t.agent == name) for name in self.prompts(item)}
            if all(said.values()):
                nodes.append(Node(i, said))
        return nodes
