"""Dining philosophers: each needs both forks beside it, and two neighbours share each fork.

All act at the same time. If two reach for one fork in the same turn, both miss it. A philosopher that has
eaten puts its forks down, is full, and takes no fork again. If everyone holds one fork, no one can eat until
someone puts its fork down.

The team earns an equal share of 1 for each hungry philosopher that has eaten, and nothing else. So an episode
in which nothing happens earns 0, the minimum, and one in which all have eaten earns 1. (Rewards for avoiding
a deadlock are largest if no one ever takes a fork; arXiv 2606.07845 reports such a maximum.)
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxmarl_llm.tasks.worlds.types import Start, Step
from jaxmarl_llm.utils.errors import UserError

ACTIONS = ("left", "right", "eat", "drop", "wait")
FREE = -1


class Table(NamedTuple):
    """Who holds each fork (or `FREE`), who is hungry, and how many were hungry at the start.

    Fork n lies to the left of philosopher n.
    """

    holders: tuple[int, ...]
    hungry: tuple[bool, ...]
    guests: int


class Philosophers:
    """N philosophers around a table; two philosophers share two forks."""

    wait, best = "wait", 1.0

    def __init__(self, agents: Sequence[str]):
        self.agents = tuple(agents)
        if len(self.agents) < 2:
            raise UserError(f"philosophers: agents is {self.agents!r}; allowed are two or more")

    def starts(self) -> list[Start]:
        """One for every non-empty set of hungry philosophers; the full set comes first."""
        masks = itertools.product((True, False), repeat=len(self.agents))
        return [Start(f"philosophers/{_letters(mask)}", mask) for mask in masks if any(mask)]

    def reset(self, start: Start) -> Table:
        """All forks on the table."""
        return Table((FREE,) * len(self.agents), tuple(start.start), sum(start.start))

    def rules(self, agent: str) -> str:
        """The aim and the actions."""
        return (
            "You eat with two forks, one to your left and one to your right, which your neighbours need too. "
            "Say left or right to take a fork, eat, drop to put your forks down, or wait."
        )

    def show(self, state: Table, agent: str) -> str:
        """The two forks, itself, and its neighbours."""
        n, number = self.agents.index(agent), len(self.agents)
        left, right = (self._fork(state, fork, n) for fork in (n, (n + 1) % number))
        hungry = ["hungry" if state.hungry[k % number] else "full" for k in (n - 1, n, n + 1)]
        return (
            f"Left fork {left}. Right fork {right}. You are {hungry[1]}. "
            f"Left neighbour {hungry[0]}. Right neighbour {hungry[2]}."
        )

    def legal(self, state: Table, agent: str) -> tuple[str, ...]:
        """A hungry one may take a free fork and eat with both; anyone may drop its forks, or wait."""
        n = self.agents.index(agent)
        left, right = state.holders[n], state.holders[(n + 1) % len(self.agents)]
        allowed = {
            "left": left == FREE and state.hungry[n],
            "right": right == FREE and state.hungry[n],
            "eat": left == right == n and state.hungry[n],
            "drop": n in (left, right),
            "wait": True,
        }
        return tuple(action for action in ACTIONS if allowed[action])

    def step(self, state: Table, actions: Mapping[str, str]) -> Step:
        """All act at once; each one that eats earns the team 1 / guests."""
        number, holders, hungry = len(self.agents), list(state.holders), list(state.hungry)
        reaching: dict[int, list[int]] = {}
        eaten = []
        for n, agent in enumerate(self.agents):
            action = actions[agent]
            if action in ("left", "right"):
                reaching.setdefault(n if action == "left" else (n + 1) % number, []).append(n)
            elif action in ("eat", "drop"):
                holders = [FREE if holder == n else holder for holder in holders]
            if action == "eat":
                hungry[n] = False
                eaten.append(n)
        for fork, hands in reaching.items():
            if len(hands) == 1:
                holders[fork] = hands[0]
        local = {agent: float(n in eaten) for n, agent in enumerate(self.agents)}
        table = Table(tuple(holders), tuple(hungry), state.guests)
        return Step(table, len(eaten) / state.guests, not any(hungry), local)

    def _fork(self, state: Table, fork: int, n: int) -> str:
        holder = state.holders[fork]
        return "free" if holder == FREE else "yours" if holder == n else "taken"


def _letters(mask: Sequence[bool]) -> str:
    """H for hungry, f for full."""
    return "".join("H" if hungry else "f" for hungry in mask)
