"""Best-first search in a tree that is made while it is searched.

The open node s with the greatest

    f(s) = g(s) + lambda h(s)

is next: g is what the way to s has earned, h what is expected of the best way on from it. Of equally good nodes the
oldest is next, so that with f the same everywhere the search is breadth first. A leaf is an answer when its turn comes,
not when it is made: with an h that is never too small the first leaf then is the best one (A*; Hart, Nilsson and
Raphael, 1968). Q* (arXiv 2406.14283) has h(s) = max_a Q(s, a) over the k likeliest steps a of a language model.
"""

import heapq
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from jaxmarl_llm.utils.errors import UserError


class Node(NamedTuple):
    """A node of the tree: any name, the two parts of its f, and whether nothing can follow it."""

    name: Any
    g: float = 0.0
    h: float = 0.0
    leaf: bool = False


class Result(NamedTuple):
    """A leaf, None where the budget ended before one; the number of expansions; and the nodes in their order."""

    leaf: Node | None
    expansions: int
    order: tuple[Node, ...]


class Frontier:
    """The open nodes of a search, and the expansions that are left.

    Args:
      budget: most expansions.
      weight: lambda.
      depth: steps from the root to a leaf, at least or as far as is known; 0: not known.

    Raises:
      UserError: for a weight below 0, and for a budget with which no leaf can be reached.
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
        """Open a node. UserError for an f that is not finite."""
        f = node.g + self._weight * node.h
        if not math.isfinite(f):
            raise UserError(f"f of {node.name!r} is {f} (g={node.g}, h={node.h}); it must be a finite number")
        heapq.heappush(self._heap, (-f, self._age, node))
        self._age += 1

    def pop(self) -> Node | None:
        """Close the best open node and return it; one that is no leaf counts as expanded.

        None where no node is open, and where the best one is no leaf and no expansion is left.
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
    """Search until the first leaf is next, or the budget is spent.

    Args:
      root: where the search begins.
      expand: node -> the nodes after it.
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
