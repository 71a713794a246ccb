"""The interface of worlds. One of your own need not inherit from it, see docs/worlds.md.

A world is a set of pure functions of states, as JAX environments are: nothing of an episode is kept in it, so an
episode can be played again from what the agents wrote.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

State = Any  # never changed once it is made


@dataclasses.dataclass(frozen=True)
class Start:
    """An item of a world: how an episode begins.

    Attributes:
      task_id: its name.
      start: what `World.reset` needs to know, such as a seed.
    """

    task_id: str
    start: Any = None


@dataclasses.dataclass(frozen=True)
class Step:
    """What a joint action leads to.

    Attributes:
      state: the next state.
      reward: of the team, for this step alone.
      done: the episode has ended.
      local: what single agents earned by themselves, by name; no part of the reward.
    """

    state: State
    reward: float = 0.0
    done: bool = False
    local: Mapping[str, float] = dataclasses.field(default_factory=dict)


@runtime_checkable
class World(Protocol):
    """An environment for several agents that act at the same time.

    It may also have ``advisers``: those of the agents whose actions change nothing, see `advisers_of`.

    Attributes:
      agents: names; all act in every turn.
      best: the largest return of an episode; a return of that is 100 in metrics.
      wait: the action that counts where a text names no legal one.
    """

    agents: tuple[str, ...]
    best: float
    wait: str

    def starts(self) -> Sequence[Start]:
        """The starts of episodes, with different names."""

    def reset(self, start: Start) -> State:
        """The first state, the same whenever it is asked for."""

    def rules(self, agent: str) -> str:
        """What an agent is told once about the world, its aim and its actions."""

    def show(self, state: State, agent: str) -> str:
        """What an agent sees of a state."""

    def legal(self, state: State, agent: str) -> Sequence[str]:
        """The actions that it may take, words or short phrases; ``wait`` is always among them."""

    def step(self, state: State, actions: Mapping[str, str]) -> Step:
        """What a legal action of every agent leads to. Chance must follow from the state and the actions."""


def advisers_of(world: World) -> tuple[str, ...]:
    """The agents of a world that only advise the others, who must read them; () of most worlds."""
    return tuple(getattr(world, "advisers", ()))
