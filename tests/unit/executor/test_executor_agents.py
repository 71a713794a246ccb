"""Several agents in one program: each in its own process, every call between them observed."""

import pytest

from jaxmarl_llm.executor import Executor, Interaction, Limits, Program

# f(x) = x + 1, judged by two asserts.
TESTS = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(5) == 6\n"
AUX = "def aux(x):\n    return x + 1\n"


@pytest.fixture(scope="module")
def executor(level):
    with Executor(workers=1, limits=Limits(cpu_seconds=1), min_level=1, level=level) as running:
        yield running


def run(executor, aux, main, tests=TESTS, **more):
    (report,) = executor.run([Program({"aux": aux, "main": main, **more}, "f", tests)])
    return report


def seen(report):
    """The one row of a report that has one."""
    (row,) = report.interactions
    assert (row.caller, row.callee, row.function) == ("main", "aux", "aux")
    return (row.calls, row.returned, row.raised, row.used)


@pytest.mark.parametrize(
    "used, main",
    [
        (True, "def f(x):\n    return aux(x)\n"),
        (True, "def f(x):\n    y = aux(x)\n    return x + 1 if y > 0 else 0\n"),
        (True, "def f(x):\n    return max(aux(x), 0) if aux else 0\n"),
        (False, "def f(x):\n    aux(x)\n    return x + 1\n"),
        (False, "def f(x):\n    y = aux(x)\n    return x + 1 + 0 * y\n"),  # read, and without effect
        (False, "def f(x):\n    y = [aux(x)]\n    return x + len(y)\n"),
        # What a second call asks says nothing; nor does a lookup that only fails where there is nothing.
        (False, "def f(x):\n    aux(aux(x))\n    return x + 1\n"),
        (False, "def f(x):\n    y = aux(x)\n    y = aux(y)\n    return x + 1\n"),
        (True, "def f(x):\n    return aux(aux(x)) - 1\n"),
        (True, "def f(x):\n    return x + 1 if aux(x) - aux(x) == 0 else 0\n"),  # both are changed alike
        (None, "n = 0\ndef f(x):\n    global n\n    n += 1\n    return aux(x) + n - n + (n > 2)\n"),
    ],
)
def test_use_of_a_result_is_judged_by_its_effect(executor, used, main):
    report = run(executor, AUX, main)
    assert report.verdict == "pass", report
    assert seen(report) in {(2, 2, 0, used), (4, 4, 0, used)}


@pytest.mark.parametrize(
    "used, aux, main",
    [
        (False, "return [x, x]", "y = aux(x)\n    first = y[0]\n    return x + 1"),
        (False, "return [x, x]", "first, *rest = aux(x)\n    return x + 1"),
        (True, "return [x, x]", "y = aux(x)\n    return y[0] + 1"),
        (True, "return str(x)", "return int(aux(x)[0]) + 1"),
        (True, "return str(x)", "return len(aux(x)) + x"),
        (True, "if x > 3: raise ValueError('no')", "try: aux(x)\n    except: return 6\n    return 2"),
        (False, "return None", "aux(x)\n    return x + 1"),
        # Values that no change goes with: nothing is changed, and the run goes on.
        (True, "return {(), (x,)}", "return x + len(aux(x)) - 1"),
        (True, "return {frozenset()}", "return x + len(aux(x))"),
        (True, "return deep(60)", "return x + len(aux(x))"),
    ],
)
def test_what_a_result_is_changed_into(executor, used, aux, main):
    deep = "def deep(n):\n    return [deep(n - 1)] if n else []\n"
    report = run(executor, f"{deep}def aux(x):\n    {aux}\n", f"def f(x):\n    {main}\n")
    assert report.verdict == "pass", report
    (row,) = [row for row in report.interactions if row.function == "aux"]
    assert row.used is used


def test_a_result_that_goes_to_another_helper_is_used_if_that_ones_is(executor):
    other = "def other(x):\n    return x\n"
    for used, main in ((True, "return other(aux(x))"), (False, "other(aux(x))\n    return x + 1")):
        program = {"other": other, "aux": AUX, "main": f"def f(x):\n    {main}\n"}
        (report,) = executor.run([Program(program, "f", TESTS)])
        assert {row.function: row.used for row in report.interactions} == {"aux": used, "other": used}


def test_a_change_of_an_argument_counts_as_a_result(executor):
    aux = "def aux(items):\n    items.append(1)\n"
    assert seen(run(executor, aux, "def f(x):\n    l = [x]\n    aux(l)\n    return sum(l)\n"))[3] is True
    assert seen(run(executor, aux, "def f(x):\n    l = [x]\n    aux(l)\n    return x + 1\n"))[3] is False


def test_outcomes_are_counted(executor):
    aux = "def aux(x):\n    if x > 2: raise ValueError('too large')\n    return x + 1\n"
    main = (
        "def f(x):\n    try:\n        return aux(x)\n"
        "    except ValueError as e:\n        return 6 * (str(e) > '')\n"
    )
    report = run(executor, aux, main)
    assert report.verdict == "pass"
    assert seen(report) == (2, 1, 1, True)


def test_no_call_no_row_and_a_definition_of_ones_own_comes_first(executor):
    own = run(executor, AUX, "def aux(x):\n    return x + 1\ndef f(x):\n    return aux(x)\n")
    assert (own.verdict, own.interactions) == ("pass", ())
    assert run(executor, AUX, "def f(x):\n    return x + 1\n").interactions == ()


def test_a_caller_cannot_forge_its_calls(executor):
    # It speaks the channel's language, patches what it finds and never calls aux.
    main = """
import sys, json
frame = sys._getframe()
while frame:
    for value in list(frame.f_globals.values()) + list(frame.f_locals.values()):
        if hasattr(value, 'counts'): value.counts[('main', 'aux', 'aux')] = {'calls': 9}
    frame = frame.f_back
def f(x):
    aux.calls = 9
    return x + 1
"""
    report = run(executor, AUX, main)
    assert (report.verdict, report.interactions) == ("pass", ())


def test_names_cross_in_both_directions(executor):
    aux = (
        "import math\nfrom collections import Counter\nfrom typing import List\nN = 1\n"
        "def aux(x: List[int]):\n    return twice(x) // 2\n"
    )
    main = (
        "def twice(x):\n    return 2 * x\n"
        "def f(x):\n    c = Counter([aux(x)])\n    return math.floor(max(c) + N)\n"
    )
    report = run(executor, aux, main)
    assert report.verdict == "pass", report
    rows = {(row.caller, row.callee, row.function): row.calls for row in report.interactions}
    assert rows == {("main", "aux", "aux"): 2, ("aux", "main", "twice"): 2}


def test_functions_and_objects_cross(executor):
    aux = (
        "class Node:\n    def __init__(self, value, next=None):\n"
        "        self.value, self.next = value, next\n"
        "def aux(x, map_):\n    return Node(map_(x), Node(x))\n"
    )
    main = (
        "def f(x):\n    node = aux(x, lambda v: v + 10)\n    total = 0\n"
        "    while node:\n        total += node.value\n        node = node.next\n    return total - x - 9\n"
    )
    report = run(executor, aux, main)
    assert report.verdict == "pass", report
    assert seen(report) == (2, 2, 0, None)  # objects of a process cannot be replaced


def test_arguments_changed_in_place_keep_their_inner_containers(executor):
    aux = "def aux(grid, key):\n    grid[0][key] = 1\n    grid.append({})\n"
    main = (
        "def f(x):\n    g = [{}]\n    row = g[0]\n    aux(g, key='k')\n"
        "    return x + row['k'] * (len(g) == 2)\n"
    )
    assert run(executor, aux, main).verdict == "pass"


@pytest.mark.parametrize(
    "verdict, aux",
    [
        ("protocol", "def aux(x):\n    import os; os._exit(0)\n"),
        ("timeout-cpu", "def aux(x):\n    while True: pass\n"),
        ("timeout-wall", "def aux(x):\n    import time; time.sleep(1000)\n"),
        ("killed", "def aux(x):\n    import ctypes; ctypes.string_at(0)\n"),
        ("memory", "def aux(x):\n    return len(bytearray(20 << 30))\n"),
        ("error", "def aux(x):\n    raise KeyError(x)\n"),
        ("error", "def aux(x):\n    import sys; sys.exit(0)\n"),
        ("error", "def aux(x):\n    return f(x)\n"),
        ("load-error", "def aux(x):\n"),
        ("load-error", "import os; os.abort\n1/0\n"),
        ("protocol", "import os; os._exit(0)\n"),
    ],
)
def test_the_partners_failure_is_the_programs(executor, verdict, aux):
    report = run(executor, aux, "def f(x):\n    return aux(x)\n")
    assert report.verdict == verdict, report
    assert report.passed == 0


@pytest.mark.slow
def test_one_budget_for_all_processes(executor):
    # Each half alone stays below the limit of one second.
    burn = "    import time\n    end = time.process_time() + 0.6\n    while time.process_time() < end: pass\n"
    aux, main = f"def aux(x):\n{burn}    return x + 1\n", f"def f(x):\n{burn}    return aux(x)\n"
    tests = "def check(candidate):\n    assert candidate(1) == 2\n"
    assert run(executor, aux, main, tests).verdict == "timeout-cpu"


def test_three_agents_in_a_row(executor):
    report = run(
        executor,
        "def first(x):\n    return x * 2\n",
        "def f(x):\n    return third(x) // 2\n",
        third="def third(x):\n    return first(x) + 2\n",
    )
    assert report.verdict == "pass", report
    assert report.interactions == (
        Interaction("main", "third", "third", 2, 2, 0, True),
        Interaction("third", "aux", "first", 2, 2, 0, None),
    )


def test_entry_point_of_the_last_agent_that_defines_it(executor):
    assert run(executor, "def f(x):\n    return 0\n", "def f(x):\n    return x + 1\n").verdict == "pass"
    assert run(executor, "def f(x):\n    return x + 1\n", "def g(x):\n    return 0\n").verdict == "pass"
    assert run(executor, AUX, "f = 3\n").verdict == "load-error"


def test_a_partner_is_in_another_process(executor):
    aux = "import os\nmark = []\ndef aux(x):\n    return [len(mark), os.getpid()]\n"
    main = (
        "import gc, os\ndef f(x):\n    mark.append(1)\n    length, pid = aux(x)\n"
        "    texts = [o for o in gc.get_objects() if 'getpid' in getattr(o, '__code__', f).__str__()]\n"
        "    return [length, pid != os.getpid(), texts]\n"
    )
    tests = "def check(candidate):\n    assert candidate(1) == [0, True, []], candidate(1)\n"
    report = run(executor, aux, main, tests)
    assert report.verdict == "pass", report


def test_too_many_agents_are_refused():
    with pytest.raises(ValueError, match="9 agents; allowed: 8"):
        Program({str(i): "" for i in range(9)}, "f", TESTS)


def test_agents_can_call_each_other_in_turn_but_not_for_ever(executor):
    aux = "def aux(n):\n    return True if n == 0 else not f(n - 1)\n"
    main = "def f(n):\n    return False if n == 0 else not aux(n - 1)\n"
    tests = "def check(candidate):\n    assert candidate(40) is {}\n"
    # f(n): False for 0, else not aux(n - 1); aux(n): True for 0, else not f(n - 1). f(40) asks down to f(0).
    value = False
    for _ in range(40):
        value = not value
    assert run(executor, aux, main, tests.format(value)).verdict == "pass"
    endless = (
        "def check(candidate):\n    try:\n        candidate(-1)\n    except RecursionError:\n        pass\n"
    )
    endless += "    else:\n        assert candidate is None\n"
    assert run(executor, aux, main, endless).verdict == "pass"


def test_functions_of_two_agents_call_each_other_60_deep(executor):
    """As docs/executor.md says; the factorial of n takes n - 1 calls between the two."""
    tests = "import math\ndef check(candidate):\n    assert candidate({0}) == math.factorial({0})\n"
    aux = "def aux(n):\n    return 1 if n < 2 else n * f(n - 1)\n"
    sources = {"aux": aux, "main": "def f(n):\n    return 1 if n < 2 else n * aux(n - 1)\n"}
    programs = [Program(sources, "f", tests.format(n)) for n in (2, 61, 62)]
    reports = executor.run(programs)
    assert [report.verdict for report in reports] == ["pass", "pass", "error"]
    assert "RecursionError: calls between processes too deep" in reports[2].failures[0]
    assert sum(row.calls for row in reports[1].interactions) == 60
