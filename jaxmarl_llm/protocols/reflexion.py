"""Reflexion: an agent reflects on what became of its program in words, and tries again (arXiv 2303.11366).

Every agent is by itself: program, outcome, reflection, and the next program with its own last program, what
came of that, and its own reflection in the prompt. The outcome is that of the very program it stands beside.
"""

from jaxmarl_llm.forest import SpeakRequest, Turn
from jaxmarl_llm.protocols import rounds
from jaxmarl_llm.protocols.types import Episode


class Reflexion(rounds.Rounds):
    """Programs in turn with reflections on them, which are not judged; none after the last program.

    Where the task asks for no explanation of an outcome, the next program comes without a reflection.
    """

    def later(self, state: Episode, done: int, chains: list[int]) -> list[SpeakRequest]:
        """Reflections on the last programs, then the programs after these."""
        number = 2 * done - 1
        said = {turn.parent: turn for turn in state.turns if turn.turn == number}
        return (not said and self._reflections(state, chains, number)) or self._programs(state, chains, said)

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
