"""What can be seen and done in a world, by walking through it at random."""

import random
from collections.abc import Iterator

from jaxmarl_llm.tasks.worlds.types import World
from jaxmarl_llm.utils import dotted

EPISODES, STEPS = 200, 20


def called(world: World, method: str, name: str, where: str, *arguments):
    """What a method of a world gives; UserCodeError with the world's name and where it was, if it raises."""
    try:
        return getattr(world, method)(*arguments)
    except Exception as error:
        raise dotted.UserCodeError(f"{name}: {method} raised at {where} ({dotted.reason(error)})") from error


def walk(world: World, episodes: int = EPISODES, name: str = "the world") -> Iterator[tuple]:
    """States of some episodes of at most `STEPS` steps, in which every agent takes any legal action.

    UserCodeError, with the start and the step, if the world, which errors call ``name``, raises.
    """
    chance, starts = random.Random(0), list(world.starts())
    for n in range(episodes):
        start = starts[n % len(starts)]
        state = called(world, "reset", name, start.task_id, start)
        yield state
        for number in range(1, STEPS + 1):
            where = f"{start.task_id}, step {number}"
            legal = {agent: called(world, "legal", name, where, state, agent) for agent in world.agents}
            joint = {agent: chance.choice(list(allowed)) for agent, allowed in legal.items()}
            step = called(world, "step", name, where, state, joint)
            state = step.state
            yield state
            if step.done:
                break


def vocabulary(world: World) -> tuple[list[str], list[str]]:
    """Texts that agents read, and actions that were legal, on such walks; different ones, in order."""
    name, where = "the world", "a random walk"
    texts = {called(world, "rules", name, where, agent): None for agent in world.agents}
    actions: dict[str, None] = {}
    for state in walk(world):
        for agent in world.agents:
            texts[called(world, "show", name, where, state, agent)] = None
            actions |= dict.fromkeys(called(world, "legal", name, where, state, agent))
    return [*texts, "\n\n"], list(actions)  # what stands between the rules and what is seen
