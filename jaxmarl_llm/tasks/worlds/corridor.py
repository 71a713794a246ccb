"""A corridor: every agent walks from one end to the other, and all must arrive.

It is as small as a world can be: with five cells, one agent that acts at random among its three actions needs
45 turns on average (by first-step analysis), and one that always goes forward needs 5.
"""

from collections.abc import Mapping, Sequence

from jaxmarl_llm.tasks.worlds.types import Start, Step

ACTIONS = ("forward", "back", "wait")


class Corridor:
    """Cells 0 to ``cells``; a state is the cell of each agent. The team earns 1 when all are at the end."""

    wait, best = "wait", 1.0

    def __init__(self, agents: Sequence[str] = ("walker",), cells: int = 5):
        self.agents, self.cells = tuple(agents), cells

    def starts(self) -> list[Start]:
        """A single start: all agents at cell 0."""
        return [Start("corridor")]

    def reset(self, start: Start) -> tuple[int, ...]:
        """All agents at cell 0."""
        return (0,) * len(self.agents)

    def rules(self, agent: str) -> str:
        """The aim and the actions."""
        return f"Walk to cell {self.cells}. Say forward, back or wait."

    def show(self, state: tuple[int, ...], agent: str) -> str:
        """The agent's own cell."""
        return f"You are at cell {state[self.agents.index(agent)]}."

    def legal(self, state: tuple[int, ...], agent: str) -> tuple[str, ...]:
        """All actions, everywhere: at an end some of them have no effect."""
        return ACTIONS

    def step(self, state: tuple[int, ...], actions: Mapping[str, str]) -> Step:
        """Each agent moves by one cell; done once all are at the end."""
        moves = {"forward": 1, "back": -1, "wait": 0}
        places = zip(state, self.agents, strict=True)
        cells = tuple(min(max(cell + moves[actions[agent]], 0), self.cells) for cell, agent in places)
        done = all(cell == self.cells for cell in cells)
        local = {agent: float(cell == self.cells) for cell, agent in zip(cells, self.agents, strict=True)}
        return Step(cells, float(done), done, local)
