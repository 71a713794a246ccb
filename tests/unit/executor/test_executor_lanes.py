"""Values on either way between two agents, over the tests' side and directly: the callers see the same."""

import pytest
from crossing_values import IMPORTS, VALUES

from jaxmarl_llm.executor import Executor, Program
from jaxmarl_llm.executor.channel.conversation import OBSERVED

CALLS = OBSERVED + 20
AUX = """
class Own(ValueError):
    pass

class Rich(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.code = code

    def __str__(self):
        return f"code {self.code}"

class Node:
    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return "Node"

def deep(levels):
    return [deep(levels - 1)] if levels else []

def aux(text, *given):
    scope = {**globals(), "x": given[0] if given else None}
    try:
        code = compile(text, "", "eval")
    except SyntaxError:
        return exec(text, scope)
    return eval(code, scope)

def tick():
    return Fraction(1, 2)
"""
MAIN = """
import gc

def direct_calls():
    lanes = [lane for lane in gc.get_objects() if type(lane).__name__ == "Lane"]
    return sum(made[0] for lane in lanes for made in lane.made.values())

def outcome(text, make=None):
    given = [] if make is None else [eval(make)]
    try:
        value = aux(text, *given)
        seen = ["returned", type(value).__name__, repr(value), value in given]
    except BaseException as error:
        seen = ["raised", type(error).__name__, error.args, str(error), vars(error)]
    return repr([*seen, given])

def f(cases, calls):
    first = [outcome(*case) for case in cases]
    ticks = sum(tick() for _ in range(calls))
    before = direct_calls()
    second = [outcome(*case) for case in cases]
    return first, second, direct_calls() - before, ticks
"""
CHANGES = [
    ("x.appendleft(0)", "deque([1])"), ("x.extend(b'b')", "bytearray(b'a')"), ("x.update('ab')", "Counter('a')"),
    ("x[1].append(2)", "defaultdict(list)"), ("x.move_to_end('a')", "OrderedDict(a=1, b=2)"),
    ("x.items.append(3); x.count += 1", "Box()"), ("x[0].count = 5", "[Box()]"), ("x.x.append(1)", "Place([], 2)"),
    ("x.append(date(2024, 1, 1))", "[1]"), ("x.add(Fraction(1, 2))", "{1}"), ("x[1] = Colour.RED", "{}"),
    ("x.append(Decimal(1)); raise TooSmall(1, 2)", "deque([1])"),
]
RAISED = [
    "raise KeyError('a')", "{}[3]", "raise KeyError(('a', 1))", "raise ValueError(Decimal(1))", "1 / 0",
    "raise TooSmall(1, 2)", "raise TooSmall(date(2024, 1, 2), Colour.RED)", "raise OSError(2, 'no')",
    "b'\\xff'.decode()", "raise StopIteration(5)", "next(iter([]))", "raise StopAsyncIteration",
    "raise Exception('boom')", "raise ValueError('x' * 600)", "assert False, 'text'",
]


@pytest.fixture(scope="module")
def executor():
    with Executor(workers=1) as running:
        yield running


def both_ways(executor, cases, seen=None):
    """The report of a program that makes the calls first over the tests' side and then directly.

    seen: what the caller sees of them; None: what it sees where caller and callee are one process.
    """
    if seen is None:
        space = {"__name__": "candidate"}
        exec(IMPORTS + AUX + MAIN, space)
        seen, *_ = space["f"](cases, 0)
    tests = f"SEEN = {seen!r}\n\ndef check(candidate):\n"
    tests += f"    first, second, direct, ticks = candidate({cases!r}, {CALLS})\n"
    tests += "    assert first == SEEN, [pair for pair in zip(first, SEEN) if pair[0] != pair[1]]\n"
    tests += "    assert second == SEEN, [pair for pair in zip(second, SEEN) if pair[0] != pair[1]]\n"
    tests += f"    assert direct == {len(cases)} and ticks == Fraction({CALLS}, 2)\n"
    (report,) = executor.run([Program({"aux": AUX, "main": MAIN}, "f", tests, IMPORTS)])
    assert (report.verdict, report.failures) == ("pass", ())
    return report


def test_values_are_the_same_on_both_ways(executor):
    report = both_ways(executor, [(text,) for text in VALUES] + [("x", text) for text in VALUES])
    calls = {row.function: row[3:6] for row in report.interactions}
    assert calls == {"aux": (4 * len(VALUES), 4 * len(VALUES), 0), "tick": (CALLS, CALLS, 0)}


def test_changes_in_place_are_the_same_on_both_ways(executor):
    both_ways(executor, CHANGES)


def test_exceptions_are_the_same_on_both_ways(executor):
    report = both_ways(executor, [(text,) for text in RAISED])
    calls = {row.function: row[3:6] for row in report.interactions}
    assert calls["aux"] == (2 * len(RAISED), 0, 2 * len(RAISED))


@pytest.mark.slow
@pytest.mark.parametrize("text, seen", [
    ("raise Own('x', 1)", ["raised", "ValueError", ("x", 1), "('x', 1)", {}, []]),
    ("raise Own(Node(1))", ["raised", "ValueError", ("Node",), "Node", {}, []]),
    ("raise Rich(3)", ["raised", "Exception", ("code 3",), "code 3", {}, []]),
    ("raise Rich(Node(1))", ["raised", "Exception", ("code Node",), "code Node", {}, []]),
    ("raise KeyError(Node(1))", ["raised", "KeyError", ("Node",), "'Node'", {}, []]),
    ("raise SystemExit(3)", ["raised", "Exception", ("SystemExit: 3",), "SystemExit: 3", {}, []]),
    ("raise StopIteration(Node(1))", ["raised", "StopIteration", ("Node",), "Node", {}, []]),
    ("'x' * (9 << 20)", ["raised", "Unsupported", ("value too large",), "value too large", {}, []]),
])
def test_failures_of_which_an_agent_knows_the_type_alone_are_the_same_on_both_ways(executor, text, seen):
    both_ways(executor, [(text,)], [repr(seen)])


@pytest.mark.parametrize("case", [
    ("deque([Node(1)])[0].value",), ("x.append(deep(70)); raise ValueError(2)", "[1]"), ("deep(70)",),
    ("x.append(Node(1))", "[1]"), ("x.append(Node(1)); raise ValueError(1)", "[1]"), ("[Node(1)]",),
    ("x(Decimal(2))", "lambda y: y / 4"), ("next(x)", "iter([date(2024, 1, 2)])"),
])
def test_what_needs_the_tests_side_is_the_same_after_many_calls(executor, case):
    tests = f"def check(candidate):\n    first, second, direct, ticks = candidate([{case!r}], {OBSERVED})\n"
    tests += "    clean = lambda text: re.sub(' at 0x[0-9a-f]+', '', text)\n"
    tests += "    assert clean(first[0]) == clean(second[0]), (first, second)\n"
    (report,) = executor.run([Program({"aux": AUX, "main": MAIN}, "f", tests, IMPORTS + "\nimport re\n")])
    assert (report.verdict, report.failures) == ("pass", ())
