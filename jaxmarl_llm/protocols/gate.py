"""The gate of ReAd (arXiv 2405.14314): an action passes if its advantage over waiting is large enough.

The gate reads values of joint actions, Q, in which agents that have not acted yet wait; where they come from (exact, or
learned) is not its business.
"""

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any
from typing import Protocol as Interface

import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.tasks.judgement import History
from jaxmarl_llm.tasks.worlds import World
from jaxmarl_llm.tasks.worlds.types import State

TIE = 1e-6  # advantages closer than this are equal: they are differences of float32 numbers
Joint = tuple[str, ...]
Values = Callable[[State, Joint], float]


class InAWorld(Interface):
    """What a gate needs of a task, see `tasks.worlds.task.WorldTask`."""

    world: World

    def state_after(self, item: Any, history: History) -> State:
        """The state that a conversation has come to."""

    def action(self, state: State, agent: str, text: str) -> str:
        """The legal action that a text is."""


@dataclasses.dataclass(frozen=True)
class Gate:
    """Decides which actions are refused.

    Attributes:
      task: reads actions in texts, and knows the state.
      values: Q of joint actions of all agents, in the order of ``task.world.agents``.
      discount: gamma of these values.
      eps: an action passes if its advantage is greater; in units of the return.
      retries: how often a refused action is asked again; after that the best one counts.
      joint: the agents plan together, and their joint action passes or not; False: one after the other.
      elsewhere: question -> another state and joint action that is judged in its place, for a control; None: none is.
      question: is called with every state and joint action that is in question.
    """

    task: InAWorld
    values: Values
    discount: float
    eps: float = 0.0
    retries: int = 10
    joint: bool = False
    elsewhere: Callable[[Hashable], tuple[State, Joint]] | None = None
    question: Callable[[State, Joint], object] = lambda state, joint: None

    def advantage(self, state: State, before: Joint, own: Joint, question: Hashable = None) -> float:
        """The advantage of the actions ``own`` after those of the agents before, while all others wait.

        Of one agent it is `credit.ordered_advantages`, of all at once `credit.joint_advantages`. ``question`` tells
        questions apart, see ``elsewhere``.
        """
        self.question(state, self._filled((*before, *own)))
        if self.elsewhere is not None:
            state, other = self.elsewhere(question)
            before, own = other[: len(before)], other[len(before) : len(before) + len(own)]
        wait = [self.values(state, self._filled(()))]
        if self.joint:
            q_X = [self.values(state, own)]
            return float(credit.on_host(credit.joint_advantages, q_X, wait, discount=self.discount)[0])
        chosen = (*before, *own)
        q_1N = [[self.values(state, self._filled(chosen[: n + 1])) for n in range(len(chosen))]]
        ordered = credit.on_host(credit.ordered_advantages, q_1N, wait, discount=self.discount)
        return float(ordered[0, len(chosen) - 1])

    def passes(self, state: State, agents: tuple[str, ...], advantage: float) -> bool:
        """Whether actions of these agents pass: by their advantage, or because they may do nothing but wait."""
        choices = [len(self.task.world.legal(state, agent)) for agent in agents]
        return max(choices) == 1 or advantage > self.eps + TIE

    def _filled(self, joint: Joint) -> Joint:
        """A joint action of the first agents, with WAIT for the others."""
        world = self.task.world
        return (*joint, *(world.wait,) * (len(world.agents) - len(joint)))


def best_of(advantages: list[float]) -> int:
    """The place of the greatest advantage, of equal ones the first."""
    return int(np.argmax(np.array(advantages)))
