"""Shortcuts between versions of a program, worked out by hand."""

import pytest

from jaxmarl_llm.memory import shortcuts
from jaxmarl_llm.memory.shortcuts import Shortcut, Version, graph, is_placeholder, shortest_path


def chain(*versions):
    """('a', 0.0), ('b', 0.5), ..: the instruction to b is 'to b'."""
    return [Version(text, value, f"to {text}" if n else "") for n, (text, value) in enumerate(versions)]


def pairs(*chains, **options):
    return [(each.before, each.after, each.gain) for each in shortcuts.shortcuts(chains, **options)]


def test_a_chain_of_three_has_one_shortcut():
    actual = shortcuts.shortcuts([chain(("a", 0.0), ("b", 0.5), ("c", 1.0))])
    assert actual == [Shortcut("a", "c", 1.0, 1.0, ("to b", "to c"))]
    assert pairs(chain(("a", 0.0), ("b", 1.0))) == pairs(chain(("a", 0.0))) == shortcuts.shortcuts([]) == []


def test_the_longest_gain_comes_first_and_the_rest_is_left():
    # Of five versions six pairs are not neighbours: 0-2 .25, 0-3 .5, 0-4 1, 1-3 .75, 1-4 1.25, 2-4 .75.
    own = chain(("a", 0.0), ("b", -0.25), ("c", 0.25), ("d", 0.5), ("e", 1.0))
    expected = [
        ("b", "e", 1.25),
        ("a", "e", 1.0),
        ("b", "d", 0.75),
        ("c", "e", 0.75),
        ("a", "d", 0.5),
        ("a", "c", 0.25),
    ]
    assert pairs(own) == expected
    assert pairs(own, most=2) == expected[:2]
    assert pairs(own, threshold=0.75) == expected[:2]  # greater, not equal


def test_a_step_that_is_worth_nothing_is_no_shortcut():
    flat = chain(("a", 1.0), ("b", 0.0), ("c", 1.0))
    assert pairs(flat, end="last") == []
    assert pairs(flat, end="last", threshold=-0.5) == [("a", "c", 0.0)]


def test_cycles_are_cut_off():
    # a b a c d: from a it is one step to c, so b is on no shortest path.
    own = chain(("a", 0.0), ("b", 0.2), ("a", 0.0), ("c", 0.4), ("d", 1.0))
    assert pairs(own) == [("a", "d", 1.0)]
    assert shortcuts.shortcuts([own])[0].instructions == ("to c", "to d")


def test_equal_programs_are_one_version():
    # The second version is the first one again but for white space, and d is one step from there.
    own = [Version("a", 0.0), Version(" a\n", 0.2, "again"), Version("d", 1.0, "to d")]
    whole = graph([own])
    assert whole.values == {"a": 0.1, "d": 1.0}  # the mean of what was measured
    assert whole.steps == {"a": {"d": "to d"}, "d": {}}
    assert pairs(own) == []


def test_branches_meet():
    # a b c d, and a x d, which is shorter.
    one, other = (
        chain(("a", 0.0), ("b", 0.3), ("c", 0.6), ("d", 1.0)),
        chain(("a", 0.0), ("x", 0.1), ("d", 1.0), ("y", 0.9)),
    )
    assert pairs(one) == [("a", "d", 1.0), ("b", "d", 0.7), ("a", "c", 0.6)]
    assert pairs(one, other) == [("a", "d", 1.0)]
    assert shortcuts.shortcuts([one, other])[0].instructions == ("to x", "to d")
    # To the last version of the last chain it is a x d y, and to that of the first a x d.
    assert pairs(one, other, end="last") == [("a", "d", 1.0), ("a", "y", 0.9), ("x", "y", 0.8)]
    assert shortest_path(graph([one, other]), "d", "a") == []


def test_the_best_version_ends_the_path():
    own = chain(("a", 0.0), ("b", 0.5), ("c", 1.0), ("d", 1.0), ("e", 0.25))
    assert pairs(own) == [("a", "c", 1.0)]  # c is as good as d, and earlier
    assert pairs(own, end="last") == [("a", "c", 1.0), ("a", "d", 1.0), ("b", "d", 0.5), ("a", "e", 0.25)]
    assert pairs(chain(("a", 2.0), ("b", 0.5), ("c", 1.0))) == []  # the first is the best
    with pytest.raises(ValueError, match="end='first'; allowed: best, last"):
        shortcuts.shortcuts([own], end="first")


STAND_INS = ("", "  \n", "def f():\n    pass", "def f(): ...", "def f():\n    raise NotImplementedError",
             "int f() {\n  // TODO: all of it\n}", "def f():\n    # your code here\n    return 1")  # fmt: skip


@pytest.mark.parametrize("text", STAND_INS)
def test_programs_that_are_not_written_yet(text):
    assert is_placeholder(text)
    assert pairs(chain((text, 0.0), ("b", 0.5), ("c", 1.0))) == []
    assert pairs(chain(("a", 0.0), ("b", 0.5), (text, 1.0))) == []
    assert len(pairs(chain(("a", 0.0), (text, 0.5), ("c", 1.0)))) == 1  # on the way it may stand


def test_programs_that_only_look_so():
    for text in (
        "def bypass(x):\n    return x",
        "x = y[..., 0]",
        "def f(passed):\n    return passed",
        "return 'todos'",
    ):
        assert not is_placeholder(text)
