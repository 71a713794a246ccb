"""A tree of conversations: agents answer in order, and each path so far is continued several times (C3)."""

import dataclasses

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.hearing import with_quotes
from jaxmarl_llm.protocols.types import Episode, Prompts
from jaxmarl_llm.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class Tree:
    """The agents answer in the order of the prompts; each continues every path of earlier answers.

    Joint answers are the paths to the leaves, so an answer of the first agent is part of many. The answers to
    one path make a node.

    Attributes:
      prompts: item -> {agent: chat messages}.
      fan_out: completions of each agent per path, in the order of the prompts.
    """

    prompts: Prompts
    fan_out: tuple[int, ...]

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to the next agent on all paths of all items.

        ValueError unless there is a number of completions for every agent.
        """
        prompts = [self.prompts(item) for item in state.items]
        for by_agent in prompts:
            if len(by_agent) != len(self.fan_out):
                raise UserError(
                    f"fan_out={self.fan_out}; allowed: one number per agent, {', '.join(by_agent)}"
                )
        answered = list(dict.fromkeys(turn.agent for turn in state.turns))
        waiting = [agent for agent in prompts[0] if agent not in answered] if prompts else []
        if not waiting:
            return []
        agent, samples = waiting[0], self.fan_out[len(answered)]
        if not answered:
            return [
                SpeakRequest(agent, i, tuple(by_agent[agent]), samples) for i, by_agent in enumerate(prompts)
            ]
        requests = []
        for last in (turn for turn in state.turns if turn.agent == answered[-1]):
            heard = {turn.agent: turn.message for turn in path(state, last)}
            messages = with_quotes(prompts[last.item][agent], heard)
            requests.append(SpeakRequest(agent, last.item, messages, samples, parent=last.id))
        return requests

    def observe(self, state: Episode, turns) -> list[Node]:
        """A node per path that the last agent has answered; none before that."""
        if len({turn.agent for turn in state.turns}) < len(self.fan_out):
            return []
        answers: dict[int, list[Turn]] = {}
        for turn in turns:
            answers.setdefault(turn.request, []).append(turn)
        nodes = []
        for leaves in answers.values():
            paths = [path(state, leaf) for leaf in leaves]
            ids = {step[0].agent: tuple(turn.id for turn in step) for step in zip(*paths, strict=True)}
            nodes.append(Node(leaves[0].item, ids))
        return nodes


def path(state: Episode, turn: Turn) -> list[Turn]:
    """The turns from the start of the conversation to ``turn``, in order."""
    turns = [turn]
    while turns[0].parent is not None:
        turns.insert(0, state.turns[turns[0].parent])
    return turns
