"""Reflexion: an agent reflects on what became of its program in words, and tries again (arXiv 2303.11366).

Every agent is by itself: program, outcome, reflection, and the next program with its own last program, what
came of that, and its own reflection in the prompt. The outcome is that of the very program it stands beside.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols import rounds
from jaxmarl_llm.protocols.types import Episode


@dataclasses.dataclass(frozen=True)
class Reflexion:
    """Programs in turn with reflections on them, which are not judged; none after the last program.

    Where the task asks for no explanation of an outcome, the next program comes without a reflection.

    Attributes:
      task: a task of programs.
      samples: G, independent chains per item.
      rounds: programs of every agent and chain.
      stop_when_solved: see `repeated.Repeated`.
    """

    task: Any
    samples: int
    rounds: int
    stop_when_solved: bool = False

    def __post_init__(self):
        rounds.check(samples=self.samples, rounds=self.rounds)

    def step(self, state: Episode) -> list[SpeakRequest]:
        """First programs; then reflections on them, and the programs after these."""
        if not state.turns:
            return rounds.first_round(state, self.task, self.samples)
        done = rounds.rounds_done(state)
        if done == self.rounds:
            return []
        chains = rounds.going_on(state, self.task, self.stop_when_solved)
        number = 2 * done - 1
        said = {turn.parent: turn for turn in state.turns if turn.turn == number}
        return (not said and self._reflections(state, chains, number)) or self._programs(state, chains, said)

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """Programs are judged, reflections are not."""
        return [] if turns[0].turn % 2 else rounds.programs_of_round(state, turns)

    def _reflections(self, state: Episode, chains: list[int], number: int) -> list[SpeakRequest]:
        def ask(turn: Turn):
            return self.task.explain(state.items[turn.item], rounds.outcome_of(state, turn.id))

        return rounds.after(state, chains, ask, number)

    def _programs(self, state: Episode, chains: list[int], said: dict[int, Turn]) -> list[SpeakRequest]:
        """said: reflections, by the id of the program they are about."""

        def ask(turn: Turn):
            reflection = said[turn.id].text if turn.id in said else ""
            outcome = rounds.outcome_of(state, turn.id)
            return self.task.improve(state.items[turn.item], outcome, reflection)

        last = {program: reflection.id for program, reflection in said.items()}
        return rounds.after(state, chains, ask, 2 * rounds.rounds_done(state), last)
