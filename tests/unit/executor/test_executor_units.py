"""Which statements of check() count as units, and that only a pass has passed them all."""

import pytest

from jaxmarl_llm.executor import Executor, Limits, Program
from jaxmarl_llm.executor.judging import units


@pytest.fixture(scope="module")
def executor():
    with Executor(workers=1, limits=Limits(cpu_seconds=1.0), min_level=1) as running:
        yield running


def run(executor, source, tests):
    """The report of one program of one agent."""
    (report,) = executor.run([Program({"main": source}, "f", tests)])
    return report


def test_units_of_check():
    tests = """
def check(candidate):
    assert True, "always"
    assert candidate(1) == 1
    assert candidate(1) == 1, "the same again"
    x = candidate(2)
    assert x == 2
    for i in range(3):
        assert candidate(i) == i
    for i in range(3):
        pass
    y = 3
    assert y == 3
"""
    suite = units.build(tests, "f")
    assert [suite.describe(i) for i in sorted(suite.units)] == [
        "assert candidate(1) == 1",
        "assert x == 2",
        "for i in range(3):",
    ]
    assert units.build("def check(c):\n    helper(c)\n", "f").total == 1


HELPERS = """
def same(a, b):
    assert a == b
    return True
GOT = []
def record(x):
    GOT.append(x)
"""


@pytest.mark.parametrize("body", [
    "xs = [3, 1]\n    candidate(xs)\n    assert xs == [1, 3]",  # the argument changed in place
    "got = []\n    for x in (1, 2):\n        got.append(candidate([x]))\n    assert got == [[1], [2]]",
    "got = []\n    got.append(candidate([1]))\n    assert got == [[1]]",
    "ok = [same(candidate([x]), [x]) for x in (1, 2)]",  # an assignment that asserts
    "ok: bool = same(candidate([1]), [1])",
    "ok = 0\n    ok += same(candidate([1]), [1])",
    "match candidate([1]):\n        case [1]: pass\n        case _: raise AssertionError",
    "match candidate([1]):\n        case x: pass\n    assert x == [1]",
    "try:\n        assert candidate([1]) == [1]\n    except* KeyError: pass",
    "candidate([1], record)\n    assert GOT == [1]",  # a list that a function of the tests fills
    "class Mine:\n        got = candidate([1])\n    assert Mine().got == [1]",
])  # fmt: skip
def test_asserts_on_what_candidates_change_are_units(executor, body):
    """One call that a function which does nothing survives, and one thing that it does not do."""
    tests = f"{HELPERS}\ndef check(candidate):\n    assert candidate([]) in (None, [])\n    {body}\n"
    report = run(executor, "def f(xs, note=None):\n    pass\n", tests)
    assert (report.verdict, report.passed, report.total) == ("fail", 1, 2), report
    source = "def f(xs, note=None):\n    xs.sort()\n    if note is not None: note(xs[0])\n    return xs\n"
    report = run(executor, source, tests)
    assert (report.verdict, report.passed, report.total) == ("pass", 2, 2), report


@pytest.mark.parametrize("body, source", [
    ("candidate(2)", "def f(x):\n    if x == 2: raise KeyError\n    return x\n"),
    ("return same(candidate(2), 2)", "def f(x):\n    return 1\n"),
    ("candidate(2)", "import os\ndef f(x):\n    return os._exit(0) if x == 2 else x\n"),
])  # fmt: skip
def test_who_has_not_passed_has_not_passed_all(executor, body, source):
    """What fails is no unit here."""
    tests = f"{HELPERS}\ndef check(candidate):\n    assert candidate(1) == 1\n    {body}\n"
    report = run(executor, source, tests)
    assert report.verdict != "pass" and (report.passed, report.total) == (1, 2), report
    assert run(executor, "def f(x):\n    return x\n", tests).total == 1
