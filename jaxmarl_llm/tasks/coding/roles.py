"""Which function each agent of a coding team writes.

Agents are named in the order (helpers .., main); a single name is an agent that works alone. A single
helper's function is called ``aux``; those of several helpers are ``aux1``, ``aux2``, .. in the agents' order.
"""

from __future__ import annotations

from collections.abc import Sequence

TEAM = ("aux", "main")
HELPER = "aux"


def helper_functions(agents: Sequence[str]) -> dict[str, str]:
    """{agent: name of its helper function}, in order; empty for an agent that works alone."""
    helpers = agents[:-1]
    names = [HELPER] if len(helpers) == 1 else [f"{HELPER}{n}" for n in range(1, len(helpers) + 1)]
    return dict(zip(helpers, names, strict=True))


def functions(agents: Sequence[str], entry_point: str) -> dict[str, str]:
    """{agent: name of the function that it writes}, in order."""
    return {**helper_functions(agents), agents[-1]: entry_point}
