"""Agents answer one after the other, and each sees the earlier answers (baseline of MAGRPO's paper).

With several turns each turn is a pipeline: the agents continue in the same order from their own earlier
prompts and replies and the feedback, and each sees the earlier answers of this turn.

`leader`, `review`, `teams` and `retrieve` are pipelines too, with steps in which several agents answer at the
same time, or with another way to show the earlier answers.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmarl_llm.forest import Node, SpeakRequest
from jaxmarl_llm.protocols.hearing import with_quotes
from jaxmarl_llm.protocols.turns import MultiTurn, by_node, own_turns
from jaxmarl_llm.protocols.types import Episode
from jaxmarl_llm.utils.errors import UserError

Messages = Sequence[dict[str, str]]


def one_by_one(agents: Sequence[str]) -> list[tuple[str, ...]]:
    """Steps of one agent each."""
    return [(agent,) for agent in agents]


def quote_all(messages: Messages, agent: str, texts: Mapping[str, str]) -> Messages:
    """The prompt of an agent with all earlier answers quoted."""
    return with_quotes(messages, texts)


def nothing_given(item: Any, agent: str) -> None:
    """No stored answer for any agent."""


@dataclasses.dataclass(frozen=True)
class Pipeline(MultiTurn):
    """The agents answer in steps, each once per node and sample.

    Sample g of an agent reads sample g of the earlier agents, so joint answers are aligned.

    Attributes:
      steps: maps the names of all agents, in the order of the prompts, to those of each step, in the same
        order.
      show: maps the prompt of an agent after the first step, its name, and the texts of all agents of earlier
        steps by name, to the messages that it sees.
      fan_out: in the only turn, the agents of the last step answer ``samples`` times after the same single
        answers of the earlier agents, which are part of all joint answers of the node.
      given: maps an item and the name of an agent of the first step to a stored answer that is used instead
        of a new one; None: the agent answers. Only with ``fan_out``.
    """

    steps: Callable[[Sequence[str]], list[tuple[str, ...]]] = one_by_one
    show: Callable[[Messages, str, Mapping[str, str]], Messages] = quote_all
    fan_out: bool = False
    given: Callable[[Any, str], str | None] = nothing_given

    def __post_init__(self):
        super().__post_init__()
        if self.given is not nothing_given and not self.fan_out:
            raise UserError(
                "answers that were given before need fan_out: one answer of each agent before the last"
            )
        if self.fan_out and self.turns > 1:
            raise UserError(f"turns={self.turns}: with fan_out there is one turn")

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to the next agents on all nodes: first G samples, then one after each sample."""
        if not state.turns:
            prompts = [self.prompts(item) for item in state.items]
            first = self.steps(list(prompts[0]))[0] if prompts else ()
            samples = 1 if self.fan_out else self.samples
            return [
                SpeakRequest(
                    agent, i, tuple(by_agent[agent]), samples, given=self.given(state.items[i], agent)
                )
                for i, by_agent in enumerate(prompts)
                for agent in first
            ]
        steps, number = self.steps(list(self.prompts(state.items[0]))), state.turns[-1].turn
        nodes = by_node(state, number)
        answered = next(iter(nodes.values()))
        waiting = [agents for agents in steps if agents[0] not in answered]
        if waiting:
            return self._after(state, waiting[0], number, nodes)
        later = self.next_turn(state, number + 1)
        return [request for requests in later for request in requests if request.agent in steps[0]]

    def _after(self, state: Episode, agents: tuple[str, ...], number: int, nodes: dict) -> list[SpeakRequest]:
        """Requests to the agents of a step, one after each sample of the agents before it."""
        requests, last_step = [], agents == self.steps(list(self.prompts(state.items[0])))[-1]
        samples = self.samples if self.fan_out and last_step else 1
        for (item, j), by_agent in nodes.items():
            last_of = {} if j is None else {turn.agent: turn for turn in own_turns(state, j)}
            for earlier in zip(*by_agent.values(), strict=True):
                texts = {turn.agent: turn.message for turn in earlier}
                for agent in agents:
                    last = last_of.get(agent)
                    prompt = (
                        self.prompts(state.items[item])[agent] if last is None else self.later(state, last, j)
                    )
                    messages = tuple(self.show(prompt, agent, texts))
                    parent = earlier[-1].id if last is None else last.id
                    requests.append(
                        SpeakRequest(agent, item, messages, samples, number, parent=parent, follows=j)
                    )
        return requests

    def observe(self, state: Episode, turns) -> list[Node]:
        """The nodes of a turn once its last agent has answered; none before that."""
        number, nodes = turns[0].turn, []
        for (item, j), by_agent in by_node(state, number).items():
            agents = list(self.prompts(state.items[item]))
            if len(by_agent) == len(agents):
                most = max(map(len, by_agent.values()))  # with fan_out the others have one answer
                ids = {a: tuple(t.id for t in by_agent[a]) * (most // len(by_agent[a])) for a in agents}
                nodes.append(Node(item, ids, number, j))
        return nodes
