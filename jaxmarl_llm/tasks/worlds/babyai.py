"""BabyAI levels (package `minigrid`, arXiv 1810.08272) as a world for one agent, which sees what is ahead.

``task.source=jaxmarl_llm.tasks.worlds.babyai:go_to_red_ball`` and similar names. The package is imported when
a world is made: `pip install minigrid==3.2.0`, or the extra `babyai`. Its environments hold the state of
their episode, so each step plays the episode again from its seed (`parallel`).
"""

import functools
from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.tasks.worlds.parallel import ParallelWorld
from jaxmarl_llm.utils.errors import UserError

ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "wait")  # in the order of the environment
NOT_SHOWN = ("unseen", "empty", "wall", "floor")
RULES = (
    "You are in a room and see what is before you. left and right turn you, forward moves you by a cell, pickup takes "
    "what is right before you, drop puts it down, toggle opens what is before you, wait does nothing."
)


class _Alone:
    """An environment of one agent with the parallel interface of PettingZoo."""

    possible_agents = ("agent",)

    def __init__(self, make):
        self._env = make()

    def reset(self, seed: int):
        observation, info = self._env.reset(seed=seed)
        return {"agent": observation}, {"agent": info}

    def step(self, actions):
        observation, *rest = self._env.step(actions["agent"])
        rewards, terminated, truncated, infos = ({"agent": each} for each in rest)
        return {"agent": observation}, rewards, terminated, truncated, infos


def level(
    agents: Sequence[str], name: str = "BabyAI-GoToRedBallNoDists-v0", seeds: Sequence[int] = range(64)
):
    """A level by its name in the package. UserError if the package is missing or has no such level."""
    try:
        import gymnasium
        import minigrid  # noqa: F401  the import registers its levels
    except ImportError as error:
        raise UserError(
            f"babyai needs a package that is not installed ({error}): pip install minigrid==3.2.0"
        ) from error
    make = functools.partial(gymnasium.make, name, disable_env_checker=True)
    try:
        make()
    except gymnasium.error.Error as error:
        raise UserError(f"babyai: there is no level {name!r} ({error})") from error
    return ParallelWorld(
        agents,
        functools.partial(_Alone, make),
        ACTIONS,
        lambda seen, agent: seen_text(seen),
        rules=RULES,
        best=1.0,
        seeds=seeds,
        wait="wait",  # named `done` in the environment
    )


def seen_text(seen: Any) -> str:
    """An observation in words: the mission, and the distance of each thing ahead and to the side.

    The image (7, 7, 3) holds, by column from the left and by row from the farthest, the codes of object, color and
    state; the agent stands in the middle of the last row and looks along its column.
    """
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX

    image = seen["image"]
    width, depth, _ = image.shape
    states = {number: state for state, number in STATE_TO_IDX.items()}
    things = []
    for ahead in range(depth):
        for column in range(width):
            kind, color, state = (int(code) for code in image[column, depth - 1 - ahead])
            if IDX_TO_OBJECT[kind] in NOT_SHOWN or (ahead, column) == (0, width // 2):
                continue
            of_door = f"{states[state]} " if IDX_TO_OBJECT[kind] == "door" else ""
            thing = f"a {of_door}{IDX_TO_COLOR[color]} {IDX_TO_OBJECT[kind]}"
            things.append(f"{thing} {_where(ahead, column - width // 2)}")
    held = [int(code) for code in image[width // 2, depth - 1]]
    carried = IDX_TO_OBJECT[held[0]]
    own = "nothing" if carried in NOT_SHOWN else f"a {IDX_TO_COLOR[held[1]]} {carried}"
    front = IDX_TO_OBJECT[int(image[width // 2, depth - 2][0])]
    wall = " A wall is right before you." if front == "wall" else ""
    return f"Your mission: {seen['mission']}. You see {', '.join(things) or 'nothing'}.{wall} You hold {own}."


def _where(ahead: int, aside: int) -> str:
    """A position relative to the agent."""
    parts = [f"{ahead} ahead"] * (ahead > 0)
    if aside:
        parts.append(f"{abs(aside)} to the {'right' if aside > 0 else 'left'}")
    return " and ".join(parts)


go_to_red_ball = level
go_to_obj = functools.partial(level, name="BabyAI-GoToObj-v0")
pickup_loc = functools.partial(level, name="BabyAI-PickupLoc-v0")
open_door = functools.partial(level, name="BabyAI-OpenDoor-v0")
