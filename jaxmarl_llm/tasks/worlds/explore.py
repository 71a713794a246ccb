"""What can be seen and done in a world, by walking through it at random."""

import random
from collections.abc import Iterator

from jaxmarl_llm.tasks.worlds.types import World

EPISODES, STEPS = 200, 20


def walk(world: World, episodes: int = EPISODES) -> Iterator[tuple]:
    """States of some episodes of at most `STEPS` steps, in which every agent takes any legal action."""
    chance, starts = random.Random(0), list(world.starts())
    for n in range(episodes):
        state = world.reset(starts[n % len(starts)])
        yield state
        for _ in range(STEPS):
            joint = {agent: chance.choice(list(world.legal(state, agent))) for agent in world.agents}
            step = world.step(state, joint)
            state = step.state
            yield state
            if step.done:
                break


def vocabulary(world: World) -> tuple[list[str], list[str]]:
    """Texts that agents read, and actions that were legal, on such walks; different ones, in order."""
    texts = dict.fromkeys(world.rules(agent) for agent in world.agents)
    actions: dict[str, None] = {}
    for state in walk(world):
        for agent in world.agents:
            texts[world.show(state, agent)] = None
            actions |= dict.fromkeys(world.legal(state, agent))
    return [*texts, "\n\n"], list(actions)  # what stands between the rules and what is seen
