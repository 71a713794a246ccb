"""Checks of what a world says about its agents and steps: a user's own world may return anything."""

import dataclasses
from collections.abc import Mapping, Sequence

from jaxmarl_llm.tasks.custom_reward import finite_number
from jaxmarl_llm.tasks.worlds.types import State, Step, World
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError


def acting(world: World, name: str) -> list[bool]:
    """Whether each agent of a world acts, and does not only advise; errors call the world ``name``."""
    given, agents = getattr(world, "advisers", ()), tuple(world.agents)
    advisers = dotted.listed(given)
    if advisers is None or not set(advisers) < set(agents):
        raise UserError(
            f"{name}: advisers is {given!r:.80}; expected a list of some of {agents!r}, not of all"
        )
    return [agent not in advisers for agent in agents]


def is_constant(state: State) -> bool:
    """Whether nothing in a state can be changed: it has a hash that depends on its contents."""
    try:
        hash(state)
    except TypeError:
        return False
    return type(state).__hash__ is not object.__hash__


def ended(step: Step, name: str, where: str) -> bool:
    """Whether the episode has ended; UserError if a step does not say it."""
    try:
        if not isinstance(step.done, str):
            return bool(step.done)
    except ValueError:  # raised for an array
        pass
    raise UserError(f"{name}: done at {where} is {step.done!r:.80}; expected True or False")


def with_numbers(step: Step, agents: Sequence[str], name: str, where: str) -> Step:
    """A step with Python numbers as rewards; UserError with the world's name and ``where``."""
    reward = finite_number(step.reward, f"{name}: the reward at {where}")
    if not isinstance(step.local, Mapping):
        raise UserError(
            f"{name}: local of the step at {where} is {step.local!r:.80}; expected a dict of numbers by agent"
        )
    if others := [agent for agent in step.local if agent not in agents]:
        raise UserError(f"{name}: there is a reward of {others[0]!r} at {where}; its agents are {agents!r}")
    local = {
        agent: finite_number(own, f"{name}: the reward of {agent!r} at {where}")
        for agent, own in step.local.items()
    }
    return dataclasses.replace(step, reward=reward, done=ended(step, name, where), local=local)
