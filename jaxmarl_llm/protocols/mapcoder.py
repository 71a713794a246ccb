"""MapCoder: recall a technique, plan, write the program, and repair it (after arXiv 2405.11403).

Every agent works alone. The prompt of a repair holds the plan, the program to repair, and its outcome. A plan
gets a fixed number of programs, so that all methods execute equally many: once a program is right, and faster
where that counts, the next ones follow the same plan again.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols import rounds
from jaxmarl_llm.protocols.types import Episode, first_requests


@dataclasses.dataclass(frozen=True)
class MapCoder:
    """Every chain has ``plans`` plans one after the other, and ``tries`` programs for each plan.

    A plan comes before its first program: plans before the programs of round t are turn 2 t, the programs are
    turn 2 t + 1.

    Attributes:
      task: a task of programs.
      samples: G, independent chains per item.
      plans: plans of every agent and chain.
      tries: programs per plan, so plans * tries rounds in all.
      stop_when_solved: see `rounds.Rounds`.
    """

    task: Any
    samples: int
    plans: int
    tries: int
    stop_when_solved: bool = False

    def __post_init__(self):
        rounds.check(samples=self.samples, plans=self.plans, tries=self.tries)

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests for a plan, for the program that follows it, and for repairs; then for the next plan."""
        if not state.turns:
            return first_requests(state, self._recall, self.samples)
        done = rounds.rounds_done(state)
        if not _is_program(state.turns[-1]):
            return self._follow(state, 2 * done)
        if done == self.plans * self.tries:
            return []
        chains = rounds.continuing_chains(state, self.task, self.stop_when_solved)
        if done % self.tries == 0:
            prompts = [self._recall(item) for item in state.items]
            return rounds.requests_after(state, chains, lambda turn: prompts[turn.item][turn.agent], 2 * done)
        return rounds.requests_after(state, chains, lambda turn: self._repair(state, turn), 2 * done + 1)

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """The nodes of a round's programs; none for plans, which are not judged."""
        return rounds.programs_of_round(state, turns) if _is_program(turns[0]) else []

    def _recall(self, item: Any) -> dict[str, Sequence[dict[str, str]]]:
        return dict.fromkeys(self.task.agents, self.task.recall(item))

    def _follow(self, state: Episode, number: int) -> list[SpeakRequest]:
        """Requests for a program after each plan of turn ``number``."""
        return [
            SpeakRequest(
                plan.agent,
                plan.item,
                tuple(self.task.follow(state.items[plan.item], plan.text)),
                samples=1,
                turn=number + 1,
                parent=plan.id,
                follows=plan.follows,
            )
            for plan in state.turns
            if plan.turn == number
        ]

    def _repair(self, state: Episode, program: Turn) -> Sequence[dict[str, str]]:
        item, outcome = state.items[program.item], rounds.outcome_of(state, program.id)
        plan = program
        while _is_program(plan):
            plan = state.turns[plan.parent]
        if self.task.good(outcome):
            return self.task.follow(item, plan.text)
        return self.task.repair(item, plan.text, outcome)


def _is_program(turn: Turn) -> bool:
    return turn.turn % 2 == 1
