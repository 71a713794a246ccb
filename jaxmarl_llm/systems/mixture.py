"""Mixture of agents: all propose, then all answer anew from what all wrote (arXiv 2406.04692).

Every layer's programs are executed and the best one counts, as for all other methods; results are never
shown. (The original hands in the last aggregate, without executing any.)
"""

import dataclasses
from typing import Any

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols import rounds
from jaxmarl_llm.protocols.types import Episode


@dataclasses.dataclass(frozen=True)
class Mixture:
    """A layer per round: everybody sees what all agents of its chain wrote in the round before.

    Attributes:
      task: a task of programs.
      samples: G, independent chains per item.
      rounds: layers; the first one proposes.
      stop_when_solved: see `repeated.Repeated`.
    """

    task: Any
    samples: int
    rounds: int
    stop_when_solved: bool = False

    def __post_init__(self):
        rounds.check(samples=self.samples, rounds=self.rounds)

    def step(self, state: Episode) -> list[SpeakRequest]:
        """First programs; then all again, each with everybody's last ones."""
        if not state.turns:
            return rounds.first_round(state, self.task, self.samples)
        done = rounds.rounds_done(state)
        if done == self.rounds:
            return []
        chains = rounds.going_on(state, self.task, self.stop_when_solved)
        joint_of = {i: state.joints[j] for j in chains for i in state.joints[j].turns}

        def ask(turn: Turn):
            outcomes = [rounds.outcome_of(state, i) for i in joint_of[turn.id].turns]
            return self.task.aggregate(state.items[turn.item], outcomes)

        return rounds.after(state, chains, ask, 2 * done)

    def observe(self, state: Episode, turns) -> list[Node]:
        """Every answer is a program."""
        return rounds.programs_of_round(state, turns)
