"""The gate of ReAd (arXiv 2405.14314): an action passes if its advantage over waiting is large enough.

The gate uses Q of joint actions in which agents that have not acted yet wait; it does not matter whether Q is
exact or learned.
"""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple
from typing import Protocol as Interface

from jaxmarl_llm import credit
from jaxmarl_llm.protocols.types import item_name
from jaxmarl_llm.tasks.judgement import History
from jaxmarl_llm.tasks.worlds import World
from jaxmarl_llm.tasks.worlds.types import State

TIE = 1e-6  # advantages closer than this are equal: they are differences of float32 numbers
KEPT = 1 << 16  # plans, and advantages, kept so that they are not computed again
Joint = tuple[str, ...]
Values = Callable[[State, Joint], float]
Texts = tuple[tuple[str, str], ...]  # (agent, text)


class InAWorld(Interface):
    """What a gate needs from a task, see `tasks.worlds.task.WorldTask`."""

    world: World

    def state_after(self, item: Any, history: History) -> State:
        """The current state of a conversation."""

    def legal(self, state: State, agent: str) -> Sequence[str]:
        """The actions that an agent may take in a state."""

    def action(self, state: State, agent: str, text: str) -> str:
        """The legal action that a text means."""


class Attempt(NamedTuple):
    """What one agent, or all at once, wrote; ``ids`` are those of the turns, in the order of the texts."""

    ids: tuple[int, ...]
    texts: Texts


class Try(NamedTuple):
    """An attempt that was refused, with the actions that it named and their advantage."""

    attempt: Attempt
    actions: Joint
    advantage: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """The current joint action of a step.

    Attributes:
      place: the state.
      actions: of the agents that have acted, in order.
      counted: ids of their turns.
      refused: ids of the turns refused before these, including refused turns that count nevertheless.
      tries: attempts refused since then.
    """

    place: State
    actions: Joint = ()
    counted: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    tries: tuple[Try, ...] = ()


@dataclasses.dataclass(frozen=True)
class Gate:
    """Decides which actions are refused.

    Attributes:
      task: reads actions in texts, and knows the state.
      values: Q of joint actions of all agents, in the order of ``task.world.agents``.
      discount: gamma of these values.
      eps: an action passes if its advantage is greater; in units of the return.
      retries: how often a new action is requested after a refusal; after that the best refused one counts.
      joint: the agents plan together, and their joint action passes or not; False: one after the other.
      elsewhere: maps a question to another state and joint action that is judged in its place, for a control;
        None: no replacement.
      note: called with every considered state and joint action.
    """

    task: InAWorld
    values: Values
    discount: float
    eps: float = 0.0
    retries: int = 10
    joint: bool = False
    elsewhere: Callable[[Hashable], tuple[State, Joint]] | None = None
    note: Callable[[State, Joint], object] = lambda state, joint: None
    # Results of these methods: they are pure functions, and protocols call them again with the same
    # arguments.
    _advantages: dict[Hashable, float] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    _plans: dict[Hashable, Plan] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def plan(self, item: Any, history: tuple[Texts, ...], attempts: tuple[Attempt, ...]) -> Plan:
        """The plan of a step after attempts, in their order; ``history`` has the joint answers before it."""
        key = item_name(item), history, attempts
        if key in self._plans:
            return self._plans[key]
        if attempts:
            plan = self._after(self.plan(item, history, attempts[:-1]), attempts[-1], item_name(item))
        else:
            plan = Plan(self.task.state_after(item, tuple(dict(texts) for texts in history)))
        return _keep(self._plans, key, plan)

    def advantage(self, state: State, before: Joint, own: Joint, question: Hashable = None) -> float:
        """The advantage of the actions ``own`` after the earlier agents' actions, while all others wait.

        For one agent it is `credit.ordered_advantages`, for all at once `credit.joint_advantages`.
        ``question`` identifies the question, see ``elsewhere``.
        """
        self.note(state, self._filled((*before, *own)))
        if self.elsewhere is not None:
            state, other = self.elsewhere(question)
            before, own = other[: len(before)], other[len(before) : len(before) + len(own)]
        key = state, before, own
        try:
            if key in self._advantages:
                return self._advantages[key]
        except TypeError:  # a state without a hash cannot be used as a key
            return self._advantage(state, before, own)
        return _keep(self._advantages, key, self._advantage(state, before, own))

    def passes(self, state: State, agents: tuple[str, ...], advantage: float) -> bool:
        """Whether actions of these agents pass: by their advantage, or because they can only wait."""
        choices = [len(self.task.legal(state, agent)) for agent in agents]
        return max(choices) == 1 or advantage > self.eps + TIE

    def _after(self, plan: Plan, attempt: Attempt, name: str) -> Plan:
        """A plan after one more attempt."""
        own = tuple(self.task.action(plan.place, agent, text) for agent, text in attempt.texts)
        advantage = self.advantage(plan.place, plan.actions, own, (name, attempt.ids, own))
        tries = (*plan.tries, Try(attempt, own, advantage))
        passed = self.passes(plan.place, tuple(agent for agent, _ in attempt.texts), advantage)
        if not passed and len(tries) <= self.retries:
            return dataclasses.replace(plan, tries=tries)
        best = tries[-1] if passed else max(tries, key=lambda one: one.advantage)  # of equal ones the first
        refused = [i for one in (tries[:-1] if passed else tries) for i in one.attempt.ids]
        return Plan(
            plan.place,
            (*plan.actions, *best.actions),
            (*plan.counted, *best.attempt.ids),
            (*plan.refused, *refused),
        )

    def _advantage(self, state: State, before: Joint, own: Joint) -> float:
        wait = [self.values(state, self._filled(()))]
        if self.joint:
            q_X = [self.values(state, own)]
            return float(credit.on_host(credit.joint_advantages, q_X, wait, discount=self.discount)[0])
        chosen = (*before, *own)
        q_1N = [[self.values(state, self._filled(chosen[: n + 1])) for n in range(len(chosen))]]
        ordered = credit.on_host(credit.ordered_advantages, q_1N, wait, discount=self.discount)
        return float(ordered[0, len(chosen) - 1])

    def _filled(self, joint: Joint) -> Joint:
        """A joint action of the first agents, with WAIT for the others."""
        world = self.task.world
        return (*joint, *(world.wait,) * (len(world.agents) - len(joint)))


def _keep(known: dict, key: Hashable, value):
    """Store a value in the cache and return it; a full cache is emptied first."""
    if len(known) >= KEPT:
        known.clear()
    known[key] = value
    return value
