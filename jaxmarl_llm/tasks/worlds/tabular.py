"""A small world as a table: its states, and exact values of actions by iteration over all of them.

Values are discounted sums of rewards, V(s) = sum_a pi(a | s) (r + gamma V(s')), of episodes that end only
where the world ends them, without a limit on steps.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from jaxmarl_llm.tasks.custom_reward import finite_number
from jaxmarl_llm.tasks.worlds.explore import called
from jaxmarl_llm.tasks.worlds.types import State, World
from jaxmarl_llm.utils.errors import UserError

MOST_STATES = 200_000
TIE = 1e-9  # closer values count as equal, since they differ this much by order of summation
_ENOUGH = 1e-13

Joint = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """Reachable states and the results of joint actions; S states, X pairs of state and joint action.

    Attributes:
      world: the world of the table.
      states: states in which an episode goes on, by number.
      joints: joint legal actions of each state, by the state's number.
      first_S: the number of the first pair of each state; its others follow.
      state_X: number of the state of each pair.
      next_X: number of the state after it; 0, without meaning, if the episode ends.
      reward_X, goes_on_X: what it earns, and whether the episode goes on.
    """

    world: World
    states: Mapping[State, int]
    joints: Sequence[Mapping[Joint, int]]
    first_S: np.ndarray
    state_X: np.ndarray
    next_X: np.ndarray
    reward_X: np.ndarray
    goes_on_X: np.ndarray

    def pair(self, state: State, joint: Joint) -> int:
        """The number of a pair."""
        number = self.states[state]
        return int(self.first_S[number]) + self.joints[number][joint]

    def backed_up(self, values_S: np.ndarray, discount: float) -> np.ndarray:
        """Q (X,) of pairs, given state values ``values_S``: r + gamma V(s')."""
        return self.reward_X + discount * self.goes_on_X * values_S[self.next_X]


def explore(world: World, name: str = "the world") -> Table:
    """The table of a world.

    Raises:
      UserError: for states that are not hashable, more than `MOST_STATES` states, a reward that is not
        finite.
      UserCodeError: if the world raises.
    """
    numbers: dict[State, int] = {}
    waiting: list[State] = []

    def number_of(state: State) -> int:
        try:
            if state not in numbers:
                if len(numbers) == MOST_STATES:
                    raise UserError(
                        f"{name}: has more than {MOST_STATES} states; gate.q='learned' with gate.planner=0 needs no "
                        "table of them"
                    )
                numbers[state] = len(numbers)
                waiting.append(state)
        except TypeError as error:
            kind = type(state).__name__
            raise UserError(f"{name}: a state is a {kind}, which cannot be told apart ({error})") from None
        return numbers[state]

    for start in called(world, "starts", name, "the beginning"):
        number_of(called(world, "reset", name, start.task_id, start))
    joints: list[Mapping[Joint, int]] = []
    first: list[int] = []
    rows: list[tuple[int, int, float, bool]] = []
    for state in waiting:  # the list grows in the loop
        where = f"the state {state!r:.60}"
        legal = [tuple(called(world, "legal", name, where, state, agent)) for agent in world.agents]
        options = itertools.product(*legal)
        own = {joint: n for n, joint in enumerate(options)}
        first.append(len(rows))
        for joint in own:
            step = called(world, "step", name, where, state, dict(zip(world.agents, joint, strict=True)))
            reward = finite_number(step.reward, f"{name}: the reward at {where}")
            after = 0 if step.done else number_of(step.state)
            rows.append((len(joints), after, reward, not step.done))
        joints.append(own)
    state_X, next_X, reward_X, goes_on_X = map(np.array, zip(*rows, strict=True))
    return Table(world, numbers, joints, np.array(first), state_X, next_X, reward_X, goes_on_X)


def best_values(table: Table, discount: float) -> np.ndarray:
    """Q (X,) of the best policy, by value iteration."""
    values_S = np.zeros(len(table.first_S))
    while True:
        q_X = table.backed_up(values_S, discount)
        better_S = np.maximum.reduceat(q_X, table.first_S)
        if np.abs(better_S - values_S).max() < _ENOUGH:
            return q_X
        values_S = better_S


def policy_values(table: Table, chances_X: np.ndarray, discount: float) -> np.ndarray:
    """Q (X,) of a policy with the given probability of each pair, by iterated evaluation."""
    values_S = np.zeros(len(table.first_S))
    while True:
        q_X = table.backed_up(values_S, discount)
        now_S = np.add.reduceat(chances_X * q_X, table.first_S)
        if np.abs(now_S - values_S).max() < _ENOUGH:
            return q_X
        values_S = now_S


def right_actions(table: Table, discount: float) -> list[Joint]:
    """A best joint action in every state: among equals the one in which most agents wait, then the first."""
    q_X, chosen = best_values(table, discount), []
    for own, first in zip(table.joints, table.first_S, strict=True):
        values = q_X[first : first + len(own)]
        best = [joint for joint, value in zip(own, values, strict=True) if value > values.max() - TIE]
        chosen.append(max(best, key=lambda joint: joint.count(table.world.wait)))
    return chosen


def planner_chances(table: Table, right: Sequence[Joint], share: float, waits: float = 0.0) -> np.ndarray:
    """Probabilities (X,) for a planner that takes right actions with probability ``share``, else any legal.

    Each agent decides independently, and then waits with probability ``waits``, whatever it has chosen.
    """
    chances = []
    for own, best in zip(table.joints, right, strict=True):
        legal = [tuple(dict.fromkeys(joint[n] for joint in own)) for n in range(len(best))]
        for joint in own:
            chance = 1.0
            for action, wanted, options in zip(joint, best, legal, strict=True):
                chosen = share * (action == wanted) + (1 - share) / len(options)
                chance *= waits * (action == table.world.wait) + (1 - waits) * chosen
            chances.append(chance)
    return np.array(chances)
