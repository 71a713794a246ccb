"""The interface of worlds. Your own world need not inherit from it, see docs/worlds.md.

A world is a set of pure functions of states, like JAX environments: it keeps no state of an episode, so an
episode can be replayed from the agents' texts.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

State = Any  # never changed after it is created


@dataclasses.dataclass(frozen=True)
class Start:
    """An item of a world: how an episode begins.

    Attributes:
      task_id: its name.
      start: input of `World.reset`, such as a seed.
    """

    task_id: str
    start: Any = None


@dataclasses.dataclass(frozen=True)
class Step:
    """The result of a joint action.

    Attributes:
      state: the next state.
      reward: the team's reward for this step only.
      done: the episode has ended.
      local: agents' own rewards, by name; not included in the reward.
    """

    state: State
    reward: float = 0.0
    done: bool = False
    local: Mapping[str, float] = dataclasses.field(default_factory=dict)


@runtime_checkable
class World(Protocol):
    """An environment for several agents that act at the same time.

    It may also have ``advisers``: the agents whose actions change nothing, see `advisers_of`.

    Attributes:
      agents: names; all act in every turn.
      best: the largest return of an episode; it is 100 in metrics.
      wait: the action taken if a text names no legal one.
    """

    agents: tuple[str, ...]
    best: float
    wait: str

    def starts(self) -> Sequence[Start]:
        """The starts of episodes, with different names."""

    def reset(self, start: Start) -> State:
        """The first state; every call returns the same one."""

    def rules(self, agent: str) -> str:
        """What an agent reads once: the world, its aim and its actions."""

    def show(self, state: State, agent: str) -> str:
        """What an agent sees in a state."""

    def legal(self, state: State, agent: str) -> Sequence[str]:
        """The actions that it may take, words or short phrases; ``wait`` is always among them."""

    def step(self, state: State, actions: Mapping[str, str]) -> Step:
        """The result of one legal action per agent. Randomness must follow from the state and the actions."""


def advisers_of(world: World) -> tuple[str, ...]:
    """The agents of a world that only advise the others, who must read them; () in most worlds."""
    return tuple(getattr(world, "advisers", ()))
