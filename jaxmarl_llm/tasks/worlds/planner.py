"""A planner of known skill for small worlds: with a given probability it acts right, else at random.

As a script it acts as an agent of a team (`experts.scripted.Scripted`); as a policy its episodes are the data
for learning values of actions.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from jaxmarl_llm.tasks.custom_reward import finite_number
from jaxmarl_llm.tasks.worlds import views
from jaxmarl_llm.tasks.worlds.explore import called
from jaxmarl_llm.tasks.worlds.tabular import Joint, Table
from jaxmarl_llm.tasks.worlds.types import State, World

LEFT_OUT = 0.01  # rewards discounted below this are left out of returns


class Planner:
    """A script that writes actions in a world whose agents all read the same (`views.shared`).

    If several states look the same to all agents, the first one is used.

    Args:
      table: the table of the world.
      right: the right joint action of each state, by its number.
      share: probability of the right action.
      seed: for random legal actions, which otherwise depend only on the request and the draw number.
    """

    def __init__(self, table: Table, right: Sequence[Joint], share: float, seed: int = 0):
        self._world, self._share, self._seed = table.world, share, seed
        self._known: dict[str, tuple[State, Joint]] = {}
        for state, number in table.states.items():
            self._known.setdefault(views.of_state(table.world, state), (state, right[number]))

    def __call__(self, request: Any, draw: int) -> str:
        """An action of the agent whose prompt is the request's last message."""
        text, agents = request.messages[-1]["content"], self._world.agents
        seen, agent = views.read(text, agents[0]) or ("", "")
        if seen not in self._known:
            return self._world.wait
        state, right = self._known[seen]
        what = repr((self._seed, text, "" if request.temperature == 0 else request.stream, draw))
        chance = random.Random(hashlib.sha256(what.encode()).digest())
        if chance.random() < self._share:
            return right[agents.index(agent)]
        return chance.choice(called(self._world, "legal", "the world", "a state", state, agent))


def episodes(
    world: World,
    right: Callable[[State], Joint] | None,
    share: float,
    waits: float,
    discount: float,
    number: int,
    seed: int = 0,
    name: str = "the world",
) -> list[tuple[State, Joint, float]]:
    """States, joint actions and discounted returns of a planner's episodes, which use the starts in turn.

    Each agent decides independently, and then waits with probability ``waits``, so that the data include
    actions beside which others wait. Episodes that do not end are cut off. Their late steps are left out of
    the data if more than `LEFT_OUT` of a reward after the cut could be missing.

    Args:
      right: state -> the right joint action, taken by each agent with probability ``share``; None: unknown.
      number: number of episodes.
      name: name of the world in errors.

    UserError (UserCodeError if the world raises) names the start and the step.
    """
    chance = random.Random(f"episodes {seed}")
    starts = called(world, "starts", name, "the beginning")
    far = max(math.ceil(math.log(LEFT_OUT) / math.log(discount)), 1)
    rows = []
    for n in range(number):
        start, steps, done = starts[n % len(starts)], list[tuple[State, Joint, float]](), False
        state = called(world, "reset", name, start.task_id, start)
        while not done and len(steps) < 2 * far:
            where, best = f"{start.task_id}, step {len(steps) + 1}", right(state) if right else None
            joint = tuple(
                world.wait
                if chance.random() < waits
                else best[i]
                if best and chance.random() < share
                else chance.choice(called(world, "legal", name, where, state, agent))
                for i, agent in enumerate(world.agents)
            )
            step = called(world, "step", name, where, state, dict(zip(world.agents, joint, strict=True)))
            steps.append((state, joint, finite_number(step.reward, f"{name}: the reward at {where}")))
            state, done = step.state, step.done
        later, own = 0.0, []
        for place, joint, reward in reversed(steps):
            later = reward + discount * later
            own.append((place, joint, later))
        rows += own[::-1] if done else own[::-1][: len(steps) - far]
    return rows
