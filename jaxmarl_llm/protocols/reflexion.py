"""Reflexion: an agent reflects in words on its program's outcome, and tries again (arXiv 2303.11366).

Every agent works alone: program, outcome, reflection, and then the next program, with the agent's own last
program, that program's outcome, and its own reflection in the prompt.
"""

from jaxmarl_llm.forest import REMARK, SpeakRequest, Turn
from jaxmarl_llm.protocols import rounds
from jaxmarl_llm.protocols.types import Episode
from jaxmarl_llm.tasks.types import ProgramTask


class Reflexion(rounds.Rounds):
    """Programs and reflections on them alternate; reflections are not judged, and the last program has none.

    Where the task has no prompt to explain an outcome, the next program is written without a reflection.
    """

    task: ProgramTask

    def later(self, state: Episode, done: int, chains: list[int]) -> list[SpeakRequest]:
        """Requests for reflections on the last programs, then for the programs after these."""
        number = done - 1
        reflections = {turn.parent: turn for turn in state.turns if turn.stage == (number, REMARK)}
        return (not reflections and self._reflections(state, chains, number)) or self._programs(
            state, chains, reflections
        )

    def _reflections(self, state: Episode, chains: list[int], number: int) -> list[SpeakRequest]:
        def ask(turn: Turn):
            return self.task.explain(state.items[turn.item], rounds.outcome_of(state, turn.id))

        return rounds.requests_after(state, chains, ask, number, kind=REMARK)

    def _programs(
        self, state: Episode, chains: list[int], reflections: dict[int, Turn]
    ) -> list[SpeakRequest]:
        """Requests for the next programs; ``reflections`` are by the id of the program they are about."""

        def ask(turn: Turn):
            reflection = reflections[turn.id].text if turn.id in reflections else ""
            outcome = rounds.outcome_of(state, turn.id)
            return self.task.improve(state.items[turn.item], outcome, reflection)

        last = {program: reflection.id for program, reflection in reflections.items()}
        return rounds.requests_after(state, chains, ask, rounds.rounds_done(state), last)
