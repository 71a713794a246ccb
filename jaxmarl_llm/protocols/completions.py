"""Completions: one agent answers, and another one continues from steps of its answers.

The return of a completion shows how good a step is for the best continuation: the third kind of target of Q*
(arXiv 2406.14283), where the second agent is a stronger model.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.rounds import Rounds
from jaxmarl_llm.protocols.types import Episode
from jaxmarl_llm.search import steps


@dataclasses.dataclass(frozen=True)
class Completions:
    """The protocol.

    Attributes:
      answers: a protocol of one round, of the agent that answers.
      agent: the agent that continues, after the same chat.
      number: completions per item, each from another step, chosen at random; fewer where there are fewer
        steps.
      seed: of the choice.
      strings: see `steps.ends`.
    """

    answers: Rounds
    agent: str
    number: int
    seed: Sequence[int]
    strings: bool = False

    def step(self, state: Episode) -> list[SpeakRequest]:
        """The requests of the answers; then those of the completions."""
        if not state.joints or any(turn.agent == self.agent for turn in state.turns):
            return [] if state.joints else self.answers.step(state)
        requests = []
        for i in range(len(state.items)):
            turns = [turn for turn in state.turns if turn.item == i]
            chat = state.requests[turns[0].request].messages
            begun = sorted({text for turn in turns for text in beginnings(turn.text, self.strings)})
            random = np.random.default_rng((*self.seed, i))
            for place in random.permutation(len(begun))[: self.number]:
                requests.append(SpeakRequest(self.agent, i, chat, 1, 1, prefix=begun[place]))
        return requests

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """All answers of an item as one node; every completion as its own node."""
        if turns[0].agent != self.agent:
            return self.answers.observe(state, turns)
        return [Node(turn.item, {self.agent: (turn.id,)}, 1) for turn in turns]


def beginnings(text: str, strings: bool) -> list[str]:
    """The texts up to the end of each step except the last."""
    parts = steps.split(text, strings)
    return ["".join(parts[:n]) for n in range(1, len(parts))]
