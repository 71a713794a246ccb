"""A room with a red ball: the actor sees only what is next to it; an adviser sees where the ball is.

The room is empty and has five cells on each side. The actor earns 1 at the ball, where the episode ends, and nothing
before, so an episode's return is its success. The actor sees the nine cells around itself: walls, and the
ball if it is in one of them. An adviser reads how far the ball is and how the last step went. Its text
changes nothing unless an actor reads it (`protocols.advice`, `protocols.pipeline`). (After GoToRedBall of
BabyAI, arXiv 1810.08272, the case study of arXiv 2401.06603, which has a larger room and an agent that
turns.)
"""

import itertools
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxmarl_llm.tasks.worlds.types import Start, Step
from jaxmarl_llm.utils.errors import UserError

SIZE = 5
MOVES = {"north": (-1, 0), "south": (1, 0), "east": (0, 1), "west": (0, -1)}  # rows and columns
WORDS = (*MOVES, "wait")

Cell = tuple[int, int]


class Room(NamedTuple):
    """Cells (row, column) of actor and ball, the number of steps, and the last step ('' before the first)."""

    actor: Cell
    ball: Cell
    steps: int = 0
    last: str = ""
    nearer: bool = False


class Ball:
    """One actor, or an adviser and an actor, in this order. Shortest path: row plus column distance."""

    wait, best = "wait", 1.0

    def __init__(self, agents: Sequence[str]):
        self.agents = tuple(agents)
        if not 1 <= len(self.agents) <= 2:
            raise UserError(
                f"ball: agents is {self.agents!r}; allowed are an actor, or an adviser and an actor"
            )
        self.advisers = self.agents[:-1]

    def starts(self) -> list[Start]:
        """One for every pair of different cells, always in the same shuffled order."""
        cells = list(itertools.product(range(SIZE), repeat=2))
        pairs = [pair for pair in itertools.product(cells, repeat=2) if pair[0] != pair[1]]
        random.Random(0).shuffle(pairs)
        return [Start(f"ball/{a[0]}{a[1]}_{b[0]}{b[1]}", (a, b)) for a, b in pairs]

    def reset(self, start: Start) -> Room:
        """Actor and ball at the positions of the start."""
        actor, ball = start.start
        return Room(tuple(actor), tuple(ball))

    def rules(self, agent: str) -> str:
        """The aim and the legal words."""
        if agent in self.advisers:
            return (
                "The actor looks for a red ball and sees only what is next to it. Say north, south, east or west to "
                "tell it where to go."
            )
        return "Go to the red ball. Say north, south, east, west or wait."

    def show(self, state: Room, agent: str) -> str:
        """What is next to the actor; for the adviser how far the ball is, and how the last step went."""
        if agent not in self.advisers:
            return _around(state)
        report = ""
        if state.last:
            way = "nearer" if state.nearer else "no nearer"
            report = f" Step {state.steps}: {state.last}, {way}."
        return f"The ball is {_offset(state)} of the actor.{report}"

    def legal(self, state: Room, agent: str) -> tuple[str, ...]:
        """All words, everywhere: a step into a wall does not move the actor."""
        return WORDS

    def step(self, state: Room, actions: Mapping[str, str]) -> Step:
        """The actor moves by one cell; done at the ball."""
        move = actions[self.agents[-1]]
        rows, columns = MOVES.get(move, (0, 0))
        actor = (_inside(state.actor[0] + rows), _inside(state.actor[1] + columns))
        nearer = distance(actor, state.ball) < distance(state.actor, state.ball)
        done = actor == state.ball
        return Step(Room(actor, state.ball, state.steps + 1, move, nearer), float(done), done)


def distance(one: Cell, other: Cell) -> int:
    """Steps from one cell to another: no walls are between them."""
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


class Guide:
    """A script in place of the adviser, for `experts.scripted.Scripted`.

    It says the first step of a shortest way to the ball, the longer direction first.
    So one word can be followed for two steps: if both distances are at most one, the actor sees the ball.
    """

    def __call__(self, request: Any, draw: int) -> str:
        """The word; 'wait' if the prompt does not say how far the ball is."""
        ways = re.findall(r"(\d+) (north|south|east|west)", _last_offset(request.messages[-1]["content"]))
        return max(ways, key=lambda way: int(way[0]))[1] if ways else "wait"


def _last_offset(text: str) -> str:
    """The sentence that says how far the ball is."""
    return text.rpartition("The ball is ")[2].partition(" of the actor")[0]


def _inside(place: int) -> int:
    return min(max(place, 0), SIZE - 1)


def _offset(state: Room) -> str:
    rows, columns = state.ball[0] - state.actor[0], state.ball[1] - state.actor[1]
    ways = [(rows, "south", "north"), (columns, "east", "west")]
    return " and ".join(f"{abs(n)} {more if n > 0 else less}" for n, more, less in ways if n)


def _around(state: Room) -> str:
    """The nine cells around the actor in words."""
    row, column = state.actor
    walls = [name for name, (r, c) in MOVES.items() if not (0 <= row + r < SIZE and 0 <= column + c < SIZE)]
    near = max(abs(state.ball[0] - row), abs(state.ball[1] - column)) <= 1
    ball = f"You see the ball {_direction(state)}." if near else "You see no ball."
    return f"{ball} Walls: {' and '.join(walls) or 'none'}."


def _direction(state: Room) -> str:
    """Where a ball next to the actor is, such as 'north east'; 'here' if at the ball."""
    offset = re.sub(r"\d+ | and", "", _offset(state))
    return offset or "here"
