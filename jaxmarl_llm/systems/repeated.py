"""Repeated sampling: programs are drawn from the first prompt again and again, and the best one counts.

With one agent and one round it is the single model; with as many programs as another method executes, what
that method has to beat.
"""

import dataclasses
from typing import Any

from jaxmarl_llm.forest import Node, SpeakRequest
from jaxmarl_llm.protocols import rounds
from jaxmarl_llm.protocols.types import Episode


@dataclasses.dataclass(frozen=True)
class Repeated:
    """Every agent writes a program in every round, from the first prompt alone.

    Attributes:
      task: a task of programs.
      samples: G, independent chains per item.
      rounds: programs of every agent and chain.
      stop_when_solved: a chain ends with the round in which a program solves the item. Chains then differ in
        length; an evaluation needs all of them to the end.
    """

    task: Any
    samples: int
    rounds: int
    stop_when_solved: bool = False

    def __post_init__(self):
        rounds.check(samples=self.samples, rounds=self.rounds)

    def step(self, state: Episode) -> list[SpeakRequest]:
        """All agents on all items, then the same again."""
        if not state.turns:
            return rounds.first_round(state, self.task, self.samples)
        done = rounds.rounds_done(state)
        if done == self.rounds:
            return []
        prompts = [self.task.prompts(item) for item in state.items]
        chains = rounds.going_on(state, self.task, self.stop_when_solved)
        return rounds.after(state, chains, lambda turn: prompts[turn.item][turn.agent], 2 * done)

    def observe(self, state: Episode, turns) -> list[Node]:
        """Every answer is a program."""
        return rounds.programs_of_round(state, turns)
