"""What can be seen and done in a world, by walking through it at random."""

import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxmarl_llm.tasks.worlds.checks import ended
from jaxmarl_llm.tasks.worlds.types import Start, State, Step, World
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

EPISODES, STEPS = 200, 20


# Types that these methods of a world return.
GIVEN = {"rules": str, "show": str, "step": Step}
LISTS = ("starts", "legal")


def called(world: World, method: str, name: str, where: str, *arguments):
    """The result of a method of a world.

    UserCodeError with the world's name and the place if it raises; UserError if it returns anything else.
    """
    try:
        given = getattr(world, method)(*arguments)
        given = _values(method, given) if method in LISTS else given
    except dotted.RAISED as error:
        raise dotted.UserCodeError(f"{name}: {method} raised at {where} ({dotted.reason(error)})") from error
    if method == "legal":
        fits, wanted = isinstance(given, tuple) and all(isinstance(each, str) for each in given), "texts"
    elif method == "starts":
        fits, wanted = isinstance(given, tuple), "a list of Starts"
    else:
        kind = GIVEN.get(method, object)
        fits, wanted = isinstance(given, kind), "a text" if kind is str else f"a {kind.__name__}"
    if not fits:
        raise UserError(f"{name}: {method} gave {given!r:.80} at {where}; expected {wanted}")
    return given


def _values(method: str, given: Any) -> Any:
    """A world's list as a tuple, and any other value as it is; a set of actions in a fixed order."""
    if method == "legal" and isinstance(given, set | frozenset | Mapping):
        return tuple(given if isinstance(given, Mapping) else sorted(given))
    values = dotted.listed(given)
    return given if values is None else tuple(values)


def legal_actions(world: World, name: str, where: str, state: State, agent: str) -> tuple[str, ...]:
    """The actions that an agent may take; UserError if it may not wait; also raises as `called`."""
    legal = called(world, "legal", name, where, state, agent)
    if world.wait not in legal:
        raise UserError(
            f"{name}: the legal actions of {agent!r} in {where}, are {legal!r}; {world.wait!r} must be among them"
        )
    return legal


class Episode(NamedTuple):
    """A walk through a world: the joint actions, {agent: action}, and all states from first to last."""

    start: Start
    joints: list[dict[str, str]]
    states: list[State]


def episodes_of(world: World, number: int, name: str = "the world") -> Iterator[Episode]:
    """Episodes of at most `STEPS` steps, in which every agent takes any legal action.

    UserCodeError, with the start and the step, if the world raises; errors call it ``name``.
    """
    chance, starts = random.Random(0), called(world, "starts", name, "the beginning")
    for n in range(number):
        start = starts[n % len(starts)]
        episode = Episode(start, [], [called(world, "reset", name, start.task_id, start)])
        for step_number in range(1, STEPS + 1):
            where, state = f"{start.task_id}, step {step_number}", episode.states[-1]
            legal = {agent: legal_actions(world, name, where, state, agent) for agent in world.agents}
            joint = {agent: chance.choice(allowed) for agent, allowed in legal.items()}
            step = called(world, "step", name, where, state, joint)
            episode.joints.append(joint)
            episode.states.append(step.state)
            if ended(step, name, where):
                break
        yield episode


def walk(world: World, episodes: int = EPISODES, name: str = "the world") -> Iterator[State]:
    """The states of `episodes_of` a world, in order."""
    for episode in episodes_of(world, episodes, name):
        yield from episode.states


def vocabulary(world: World) -> tuple[list[str], list[str]]:
    """The distinct texts that agents read and the distinct legal actions on such walks, in order."""
    name, where = "the world", "a random walk"
    texts = {called(world, "rules", name, where, agent): None for agent in world.agents}
    actions: dict[str, None] = {}
    for state in walk(world):
        for agent in world.agents:
            texts[called(world, "show", name, where, state, agent)] = None
            actions |= dict.fromkeys(called(world, "legal", name, where, state, agent))
    return [*texts, "\n\n"], list(actions)  # the text between the rules and a view
