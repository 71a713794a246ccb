"""What all agents of a world see, as one text, for agents that share their views, and for scripts."""

import re
from collections.abc import Mapping

from jaxmarl_llm.tasks.worlds.explore import called
from jaxmarl_llm.tasks.worlds.types import State, World

_WHO = re.compile(r"^You are (\S+)\.$", re.MULTILINE)


def joined(shown: Mapping[str, str]) -> str:
    """What each agent sees, by name, as a text."""
    return "\n".join(f"{agent} sees: {text}" for agent, text in shown.items())


def shared(shown: Mapping[str, str], agent: str) -> str:
    """The same text for one agent, with its own name.

    >>> shared({"a": "A door.", "b": "A key."}, "b")
    'a sees: A door.\\nb sees: A key.\\nYou are b.'
    """
    return f"{joined(shown)}\nYou are {agent}."


def of_state(world: World, state: State) -> str:
    """What all agents see of a state: all that a fully informed agent could know it by."""
    seen = {agent: called(world, "show", "the world", "a state", state, agent) for agent in world.agents}
    return joined(seen)


def read(text: str, first: str) -> tuple[str, str] | None:
    """The views and the agent's name in the last `shared` text of a prompt; None if there is none.

    ``first`` is the first agent's name.

    >>> read("Rules.\\n\\na sees: A door.\\nb sees: A key.\\nYou are b.\\n\\nRefused: wait.", "a")
    ('a sees: A door.\\nb sees: A key.', 'b')
    """
    named = list(_WHO.finditer(text))
    if not named:
        return None
    before = text[: named[-1].start() - 1]
    begin = before.rfind(f"{first} sees: ")
    return (before[begin:], named[-1].group(1)) if begin >= 0 else None
