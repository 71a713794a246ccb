"""The worlds by name."""

from collections.abc import Callable, Sequence

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.worlds.ball import Ball
from jaxmarl_llm.tasks.worlds.corridor import Corridor
from jaxmarl_llm.tasks.worlds.explore import called
from jaxmarl_llm.tasks.worlds.kitchen import Kitchen
from jaxmarl_llm.tasks.worlds.philosophers import Philosophers
from jaxmarl_llm.tasks.worlds.task import WorldTask
from jaxmarl_llm.tasks.worlds.types import Start, World
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

FIELD = "task.source"
WORLDS: dict[str, Callable[[Sequence[str]], World]] = {
    "ball": Ball,
    "corridor": Corridor,
    "kitchen": Kitchen,
    "philosophers": Philosophers,
}
NEEDED = ("agents", "best", "wait", "starts", "reset", "rules", "show", "legal", "step")


def load_world(name: str, agents: Sequence[str]) -> World:
    """A world by its name, or by a dotted name that is called with the agents' names.

    Raises:
      ValueError: for an unknown name, an object that is not a `World`, and wrong agents.
    """
    return WORLDS[name](agents) if name in WORLDS else _own(name, tuple(agents))


def load_task(
    source: str, split: str, agents: Sequence[str], remember: bool = False, share_views: bool = False
) -> WorldTask:
    """The task of a world; a slice of its starts may follow the name.

    Raises:
      ValueError: as `load_world`, and for an unknown split, starts with equal names, and no start.
    """
    sources.check_split(split)
    name, part = sources.parse(source)
    world = load_world(name, agents)
    where = f"{FIELD} {name!r}"
    starts, again = (called(world, "starts", where, "the beginning") for _ in range(2))
    if others := [one for one in (*starts, *again) if not isinstance(one, Start)]:
        raise UserError(f"{where}: starts gave {others[0]!r:.80}; expected each to be a Start")
    names = [start.task_id for start in starts]
    if names != (others := [start.task_id for start in again]):
        raise UserError(
            f"{where}: starts gave {names!r:.80} and then {others!r:.80}; expected the same in every call"
        )
    if twice := [one for one in names if names.count(one) > 1]:
        raise UserError(f"{where}: two starts have the task_id {twice[0]!r}")
    items = sources.of_split(starts, split)[part]
    return WorldTask(world, items, remember, where, share_views)


def _own(name: str, agents: tuple[str, ...]) -> World:
    """A user's own world."""
    if ":" not in name and "." not in name:
        raise UserError(
            f"no world is named {name!r}; known are {', '.join(WORLDS)}, or a dotted name of your own"
        )
    make = dotted.resolve(name, FIELD)
    try:
        world = make(agents)
    except dotted.RAISED as error:
        raise dotted.UserCodeRefused(
            f"{FIELD} {name!r} raised when called with {agents!r} ({type(error).__name__}: {error})"
        ) from error
    if missing := [part for part in NEEDED if not hasattr(world, part)]:
        raise UserError(f"{FIELD} {name!r} gave a {type(world).__name__} without {', '.join(missing)}")
    if (own := tuple(dotted.listed(world.agents) or (world.agents,))) != agents:
        raise UserError(f"team.agents={agents!r}: {FIELD} {name!r} has {own!r}")
    return world
