"""MapCoder: recall a technique, plan, write the program, and repair it (after arXiv 2405.11403).

Every agent works alone. The prompt of a repair holds the plan, the program to repair, and its outcome. Each
plan gets a fixed number of programs, so that all methods execute equally many. Once a program is right (and
faster, where that counts), the next ones follow the same plan again.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.forest import ANSWER, REMARK, Node, SpeakRequest, Turn
from jaxmarl_llm.protocols import rounds
from jaxmarl_llm.protocols.types import Episode, first_requests, remarks


@dataclasses.dataclass(frozen=True)
class MapCoder:
    """Every chain has ``plans`` plans one after the other, and ``tries`` programs for each plan.

    A plan comes before its first program, in the same round; plans are of kind `REMARK`.

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
            return remarks(first_requests(state, self._recall, self.samples))
        done = rounds.rounds_done(state)
        if state.turns[-1].kind == REMARK:
            return self._follow(state, done)
        if done == self.plans * self.tries:
            return []
        chains = rounds.continuing_chains(state, self.task, self.stop_when_solved)
        if done % self.tries == 0:
            prompts = [self._recall(item) for item in state.items]
            return rounds.requests_after(
                state, chains, lambda turn: prompts[turn.item][turn.agent], done, kind=REMARK
            )
        return rounds.requests_after(state, chains, lambda turn: self._repair(state, turn), done)

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """The nodes of a round's programs; none for plans, which are not judged."""
        return rounds.programs_of_round(state, turns) if turns[0].kind == ANSWER else []

    def _recall(self, item: Any) -> dict[str, list[dict[str, str]]]:
        return dict.fromkeys(self.task.agents, self.task.recall(item))

    def _follow(self, state: Episode, round_: int) -> list[SpeakRequest]:
        """Requests for a program after each plan of a round."""
        return [
            SpeakRequest(
                plan.agent,
                plan.item,
                tuple(self.task.follow(state.items[plan.item], plan.text)),
                samples=1,
                turn=round_,
                parent=plan.id,
                follows=plan.follows,
            )
            for plan in state.turns
            if plan.stage == (round_, REMARK)
        ]

    def _repair(self, state: Episode, program: Turn) -> Sequence[dict[str, str]]:
        item, outcome = state.items[program.item], rounds.outcome_of(state, program.id)
        plan = program
        while plan.kind == ANSWER:
            plan = state.turns[plan.parent]
        if self.task.good(outcome):
            return self.task.follow(item, plan.text)
        return self.task.repair(item, plan.text, outcome)
