"""Mixture of agents: all propose, then all answer anew from what all wrote (arXiv 2406.04692).

Every layer's programs are executed and the best one counts, as for all other methods; results are never
shown. (The original hands in the last aggregate, without executing any.)
"""

from jaxmarl_llm.forest import SpeakRequest, Turn
from jaxmarl_llm.protocols import rounds
from jaxmarl_llm.protocols.types import Episode


class Mixture(rounds.Rounds):
    """A layer per round: everybody sees what all agents of its chain wrote in the round before."""

    def later(self, state: Episode, done: int, chains: list[int]) -> list[SpeakRequest]:
        """All again, each with everybody's last programs."""
        joint_of = {i: state.joints[j] for j in chains for i in state.joints[j].turns}

        def ask(turn: Turn):
            outcomes = [rounds.outcome_of(state, i) for i in joint_of[turn.id].turns]
            return self.task.aggregate(state.items[turn.item], outcomes)

        return rounds.after(state, chains, ask, 2 * done)
