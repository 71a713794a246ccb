"""Mixture of agents: all write a program, then all write a new one from all programs (arXiv 2406.04692).

Every layer's programs are executed and the best one counts, as for all other methods; agents never see the
results. (The original returns the last aggregate and executes no program.)
"""

from jaxmarl_llm.forest import SpeakRequest, Turn
from jaxmarl_llm.protocols import rounds
from jaxmarl_llm.protocols.types import Episode
from jaxmarl_llm.tasks.types import ProgramTask


class Mixture(rounds.Rounds):
    """A layer per round: every agent sees the programs of its whole chain from the round before."""

    task: ProgramTask

    def later(self, state: Episode, done: int, chains: list[int]) -> list[SpeakRequest]:
        """Requests to all agents, each with the last programs of all agents of its chain."""
        joint_of = {i: state.joints[j] for j in chains for i in state.joints[j].turns}

        def ask(turn: Turn):
            outcomes = [rounds.outcome_of(state, i) for i in joint_of[turn.id].turns]
            return self.task.aggregate(state.items[turn.item], outcomes)

        return rounds.requests_after(state, chains, ask, done)
