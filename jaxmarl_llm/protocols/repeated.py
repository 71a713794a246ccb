"""Repeated sampling: programs are drawn from the first prompt again and again, and the best one counts.

With one agent and one round it is the single model; with as many programs as another method executes, it
is the baseline for that method.
"""

from jaxmarl_llm.forest import SpeakRequest
from jaxmarl_llm.protocols import rounds
from jaxmarl_llm.protocols.types import Episode


class Repeated(rounds.Rounds):
    """Every agent writes a program in every round, from the first prompt alone."""

    def later(self, state: Episode, done: int, chains: list[int]) -> list[SpeakRequest]:
        """Requests to all agents with the first prompt again."""
        prompts = [self.task.prompts(item) for item in state.items]
        return rounds.requests_after(state, chains, lambda turn: prompts[turn.item][turn.agent], done)
