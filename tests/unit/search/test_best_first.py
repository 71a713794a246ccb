"""Best-first search: the order of nodes in trees that are known, and what is refused."""

import itertools
import math
import random

import pytest

from jaxmarl_llm.search.best_first import Frontier, Node, search

DEPTH, LEAVES = 3, {"".join(way): n for n, way in enumerate(itertools.product("01", repeat=3))}
EARNED = {leaf: float(leaf == "101") for leaf in LEAVES}


def exact(way: str) -> float:
    """What the best leaf below a node earns."""
    return max(reward for leaf, reward in EARNED.items() if leaf.startswith(way))


def tree(h, g=lambda way: 0.0):
    def expand(node):
        return [Node(way, g(way), h(way), len(way) == DEPTH) for way in (node.name + "0", node.name + "1")]

    return expand


def test_with_exact_values_only_the_way_to_the_best_leaf_is_expanded():
    result = search(Node(""), tree(exact), budget=7, depth=DEPTH)
    assert (result.leaf.name, result.expansions) == ("101", 3)
    assert [node.name for node in result.order] == ["", "1", "10", "101"]


def test_without_values_all_is_expanded_and_the_oldest_leaf_is_next():
    result = search(Node(""), tree(lambda way: 0.0), budget=100)
    assert (result.leaf.name, result.expansions) == ("000", 7)


def test_a_weight_of_0_is_breadth_first_where_g_is_equal():
    result = search(Node(""), tree(exact), budget=100, weight=0.0)
    assert [node.name for node in result.order] == ["", "0", "1", "00", "01", "10", "11", "000"]
    # g still counts: the two ways into "1" before the other half.
    first = search(Node(""), tree(exact, g=lambda way: float(way.startswith("1"))), budget=100, weight=0.0)
    assert [node.name for node in first.order] == ["", "1", "10", "11", "100"]


@pytest.mark.parametrize("seed", range(20))
def test_an_h_that_is_never_too_small_finds_the_best_leaf(seed):
    """Compared with all leaves of a random tree, whose g are sums of rewards on the way."""
    chance = random.Random(seed)
    earned, over = {}, {}

    def g(way):
        return sum(earned.setdefault(way[:n], chance.random()) for n in range(1, len(way) + 1))

    best = max(g("".join(way)) for way in itertools.product("01", repeat=DEPTH))

    def h(way):
        left = max(g(leaf) for leaf in LEAVES if leaf.startswith(way)) - g(way)
        return left + over.setdefault(way, chance.random() if len(way) < DEPTH else 0.0)

    assert search(Node(""), tree(h, g), budget=7).leaf.g == pytest.approx(best)


def test_the_budget_ends_the_search_before_the_next_expansion():
    for budget, leaf in ((3, None), (6, None), (7, "000")):
        result = search(Node(""), tree(lambda way: 0.0), budget=budget)
        assert (result.leaf and result.leaf.name, result.expansions) == (leaf, budget)
    assert search(Node(""), lambda node: [], budget=5) == (None, 1, (Node(""),))


def test_what_is_open_when_the_budget_is_spent_can_still_be_taken():
    frontier = Frontier(1)
    frontier.push(Node("root"))
    assert frontier.pop().name == "root" and frontier.pop() is None
    frontier.push(Node("a", h=0.1))
    frontier.push(Node("b", h=0.2))
    assert frontier.pop() is None and frontier.best().name == "b"
    frontier.push(Node("leaf", h=0.3, leaf=True))
    assert frontier.pop().name == "leaf" and frontier.expansions == 1


@pytest.mark.parametrize("options, message", [
    (dict(budget=2, depth=3), "budget=2: a leaf is 3 expansions deep, allowed is that or more"),
    (dict(budget=0), "budget=0: a leaf is 1 expansions deep"),
    (dict(budget=3, weight=-0.5), "weight=-0.5: lambda of f = g .* lambda h is 0 or more"),
    (dict(budget=3, weight=math.nan), "weight=nan"),
])  # fmt: skip
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        search(Node(""), tree(exact), **options)


def test_a_value_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="f of '0' is nan .*it must be a finite number"):
        search(Node(""), tree(lambda way: math.nan), budget=3)
