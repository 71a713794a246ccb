"""Best-first search in a tree that is built during the search.

The next node is the open node s with the greatest

    f(s) = g(s) + lambda h(s)

where g is the reward of the path to s, and h the expected reward of the best path from s on. Of equally good
nodes the oldest is next, so with constant f the search is breadth-first. A leaf is accepted when it is
selected, not when it is created: if h never underestimates, the first accepted leaf is the best (A*; Hart,
Nilsson and Raphael, 1968). Q* (arXiv 2406.14283) uses h(s) = max_a Q(s, a) over the k likeliest steps a of a
language model.
"""

import heapq
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from jaxmarl_llm.utils.errors import UserError


class Node(NamedTuple):
    """A node of the tree: any name, the two parts of its f, and whether it is a leaf."""

    name: Any
    g: float = 0.0
    h: float = 0.0
    leaf: bool = False


class Result(NamedTuple):
    """The leaf (None if the budget ended before one), the number of expansions, and the nodes in order."""

    leaf: Node | None
    expansions: int
    order: tuple[Node, ...]


class Frontier:
    """The open nodes of a search, and the remaining expansions.

    Args:
      budget: maximal number of expansions.
      weight: lambda.
      depth: known lower bound of the steps from the root to a leaf; 0: unknown.

    Raises:
      UserError: for a weight below 0, and for a budget too small to reach any leaf.
    """

    def __init__(self, budget: int, weight: float = 1.0, depth: int = 0):
        if not (math.isfinite(weight) and weight >= 0):
            raise UserError(f"weight={weight}: lambda of f = g + lambda h is 0 or more")
        if budget < max(depth, 1):
            raise UserError(
                f"budget={budget}: a leaf is {max(depth, 1)} expansions deep, allowed is that or more"
            )
        self._budget, self._weight, self._age, self.expansions = budget, weight, 0, 0
        self._heap: list[tuple[float, int, Node]] = []

    def push(self, node: Node) -> None:
        """Open a node. UserError for a non-finite f."""
        f = node.g + self._weight * node.h
        if not math.isfinite(f):
            raise UserError(f"f of {node.name!r} is {f} (g={node.g}, h={node.h}); it must be a finite number")
        heapq.heappush(self._heap, (-f, self._age, node))
        self._age += 1

    def pop(self) -> Node | None:
        """Close the best open node and return it; a node that is not a leaf counts as expanded.

        None if no node is open, or if the best one is not a leaf and no expansion is left.
        """
        best = self.best()
        if best is None or not (best.leaf or self.expansions < self._budget):
            return None
        heapq.heappop(self._heap)
        self.expansions += not best.leaf
        return best

    def best(self) -> Node | None:
        """The best open node, which stays open; None if there is none."""
        return self._heap[0][-1] if self._heap else None


def search(
    root: Node,
    expand: Callable[[Node], Iterable[Node]],
    budget: int,
    weight: float = 1.0,
    depth: int = 0,
) -> Result:
    """Search until a leaf is the next node, or the budget is spent.

    Args:
      root: start node.
      expand: node -> its children.
      budget, weight, depth: see `Frontier`.
    """
    frontier = Frontier(budget, weight, depth)
    order: list[Node] = []
    frontier.push(root)
    while (node := frontier.pop()) is not None:
        order.append(node)
        if node.leaf:
            break
        for child in expand(node):
            frontier.push(child)
    leaf = order[-1] if order and order[-1].leaf else None
    return Result(leaf, frontier.expansions, tuple(order))
