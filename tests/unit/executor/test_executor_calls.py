"""Many calls between agents: they pass at the limits of a program that makes none, and nothing else changes.

After the first OBSERVED calls an agent calls straight into the other one's process. What is asked here makes
more calls than that.
"""

import pytest

from jaxmarl_llm.executor import Executor, Interaction, Limits, Program
from jaxmarl_llm.executor.channel.conversation import OBSERVED

N = OBSERVED + 500


@pytest.fixture(scope="module")
def executor(level):
    with Executor(workers=1, min_level=1, level=level) as running:
        yield running


@pytest.fixture(scope="module")
def short(level):
    with Executor(workers=1, limits=Limits(cpu_seconds=0.3), min_level=1, level=level) as running:
        yield running


def run(executor, aux, main, tests, **more):
    (report,) = executor.run([Program({"aux": aux, "main": main, **more}, "f", tests)])
    return report


def run_shared(executor, aux, main, tests):
    program = Program({"aux": aux, "main": main}, "f", tests, shared=("aux", "f"))
    (report,) = executor.run([program])
    return report


def equal(*pairs):
    lines = [f"    assert candidate({given}) == {wanted}, candidate({given})\n" for given, wanted in pairs]
    return "def check(candidate):\n" + "".join(lines)


@pytest.mark.slow
def test_a_hundred_thousand_calls_pass_at_the_default_limit(executor):
    main = "def f(n):\n    t = 0\n    for _ in range(n):\n        t = aux(t)\n    return t\n"
    report = run(executor, "def aux(x):\n    return x + 1\n", main, equal((100_000, 100_000)))
    assert report.verdict == "pass", report
    assert report.interactions == (Interaction("main", "aux", "aux", 100_000, 100_000, 0, None),)
    assert report.calls_cpu_seconds > 0.5


@pytest.mark.slow
def test_dividing_the_labour_changes_no_verdict(executor):
    aux = "def aux(n):\n    i = 2\n    while i * i <= n:\n        if n % i == 0: return False\n"
    aux += "        i += 1\n    return n > 1\n"
    main = "def f(n):\n    return sum(1 for i in range(n) if aux(i))\n"
    assert run(executor, aux, main, equal((50_000, 5133))).verdict == "pass"


@pytest.mark.parametrize(
    "aux, main",
    [
        # The result is the same for a helper in one's own process, whatever passes.
        ("return x[::-1]", "aux(f'text {i} äöü')"),
        ("return (x, x + 0.5)", "aux(i)"),
        ("x.append(len(x)); x[0][0] += 1", "(aux(l), l[-1], len(l), l[0])[1:]"),
        ("x[str(len(x) % 7)] = len(x)", "(aux(d), sorted(d.items()))[1]"),
        ("return sum(map(sum, x))", "aux([[i, j] for j in range(9)])"),
        ("return {x, -x}", "sorted(aux(i))"),
        ("return [x, 1 << 70, None, True, 'x', b'y', 1e300, -0.0, 2j, range(x), {x: (x,)}]", "repr(aux(i))"),
        ("if x % 2: raise KeyError(x)\n    return x", "tried(i)"),
        ("seen.append(x)\n    return len(seen)", "aux(x=i)"),
        ("return random.random()", "aux(i)"),
    ],
)
def test_what_passes_is_the_same_in_one_process(executor, aux, main):
    aux = f"import random\nrandom.seed(1)\nseen = []\ndef aux(x):\n    {aux}\n"
    main = (
        "import hashlib\ndef tried(i):\n    try: return aux(i)\n    except KeyError: return 'missing'\n"
        "def f(n):\n    l, d, h = [[0]], {}, hashlib.sha256()\n"
        f"    for i in range(n):\n        h.update(str({main}).encode())\n"
        "        if len(l) > 50: l = [[0]]\n    return h.hexdigest()\n"
    )
    space = {}
    exec(aux + main, space)
    report = run(executor, aux, main, equal((N, repr(space["f"](N)))))
    assert report.verdict == "pass", report
    assert report.interactions[0].calls == N


def test_calls_in_both_directions_and_of_three_agents(executor):
    report = run(
        executor,
        "def half(x):\n    return x // 2\n",
        "def one():\n    return 1\ndef f(n):\n    return sum(third(i) for i in range(n))\n",
        equal((N, sum(i // 2 + 1 for i in range(N)))),
        third="def third(x):\n    return half(x) + one()\n",
    )
    assert report.verdict == "pass", report
    calls = {(row.caller, row.callee, row.function): row.calls for row in report.interactions}
    assert calls == {("main", "third", "third"): N, ("third", "aux", "half"): N, ("third", "main", "one"): N}


def test_eight_agents_and_a_script(executor):
    sources = {"a0": "def a0(x):\n    return x + 1\n"}
    sources |= {f"a{i}": f"def a{i}(x):\n    return a{i - 1}(x) + 1\n" for i in range(1, 7)}
    sources["main"] = "t = 0\nfor _ in range(int(input())): t = a6(t)\nprint(t)\n"
    (report,) = executor.run([Program(sources, "solve", equal((f"'{N}'", repr(f"{7 * N}\n"))), stdio=True)])
    assert report.verdict == "pass", report
    assert [row.calls for row in report.interactions] == 7 * [N]


def test_objects_come_after_many_calls(executor):
    aux = (
        "class Node:\n    def __init__(self, value): self.value = value\n"
        "def made(i):\n    return Node(i) if i > 1200 else i\n"
        "def counted(i):\n    return iter(range(i))\n"
        "def value(node, function):\n    return function(node.value) if type(node) is Node else None\n"
    )
    main = (
        "def f(n):\n    nodes = [made(i) for i in range(n)]\n"
        "    return [sum(value(node, lambda v: v - 1200) or 0 for node in nodes), sum(counted(5)), made(7)]\n"
    )
    report = run(executor, aux, main, equal((1300, [sum(range(100)), 10, 7])))
    assert report.verdict == "pass", report
    calls = {row.function: row.calls for row in report.interactions}
    assert calls == {"made": 1301, "value": 1300, "counted": 1}


def test_objects_of_the_tests_can_be_used_within_such_calls(executor):
    aux = "def aux(i):\n    return i\ndef keep(function):\n    global kept\n    kept = function\n"
    aux += "def add(i):\n    return kept(i) + back(i)\n"
    main = "def back(i):\n    return i\ndef f(n, g):\n    keep(g)\n    return sum(add(i) for i in range(n))\n"
    tests = f"def check(candidate):\n    assert candidate({N}, lambda i: 2 * i) == {3 * sum(range(N))}\n"
    assert run(executor, aux, main, tests).verdict == "pass"


@pytest.mark.parametrize("order", [((N, N), (3, 3)), ((3, 3), (N, N), (4, 4))])
@pytest.mark.parametrize("used, main", [(True, "t = aux(t)"), (False, "aux(t); t += 1")])
def test_use_of_a_result_is_judged_by_the_calls_of_the_entry_point_that_make_few(executor, order, used, main):
    main = f"def f(n):\n    t = 0\n    for _ in range(n):\n        {main}\n    return t\n"
    report = run(executor, "def aux(x):\n    return x + 1\n", main, equal(*order))
    total = sum(calls for calls, _ in order)
    assert report.verdict == "pass", report
    assert report.interactions == (Interaction("main", "aux", "aux", total, total, 0, used),)


@pytest.mark.parametrize(
    "verdict, statement",
    [
        ("protocol", "import os; os._exit(0)"),
        ("timeout-cpu", "while True: pass"),
        ("killed", "import ctypes; ctypes.string_at(0)"),
        ("memory", "bytearray(20 << 30)"),
        ("error", "raise ValueError(x)"),
        ("error", "raise SystemExit(0)"),
        ("error", "raise StopIteration"),
    ],
)
def test_a_failure_after_many_calls_is_the_programs(short, verdict, statement):
    aux = f"n = 0\ndef aux(x):\n    global n\n    n += 1\n    if n > 1200:\n        {statement}\n    return x\n"
    main = "def f(n):\n    for i in range(n): aux(i)\n    return n\n"
    report = run(short, aux, main, equal((N, N)))
    assert report.verdict == verdict, report
    assert report.passed == 0


def test_work_within_calls_counts(short):
    aux = "import time\ndef aux(x):\n    end = time.process_time() + 0.002\n"
    aux += "    while time.process_time() < end: pass\n"
    report = run(short, aux, "def f(n):\n    for i in range(n): aux(i)\n    return n\n", equal((N, N)))
    assert report.verdict == "timeout-cpu"


@pytest.mark.slow
def test_calls_without_end_come_to_an_end(short):
    main = "def f(n):\n    while True: aux(n)\n"
    report = run(short, "def aux(x):\n    return x\n", main, equal((1, 1)))
    assert report.verdict == "timeout-cpu"
    # A first run has 1.3 times the limit, and calls have four times that besides.
    assert report.cpu_seconds + report.calls_cpu_seconds <= 0.3 * 1.3 * 5 + 0.5


FORGED = (
    "import gc\n"
    "def forge():\n    for lane in gc.get_objects():\n        if type(lane).__name__ == 'Lane':\n"
    "            for counts in (lane.made, lane.served):\n"
    "                for name in ('aux', 'f', 'check'): counts[name] = [10**9] * 3\n"
)


@pytest.mark.parametrize("liar", ["aux", "main"])
def test_neither_side_alone_can_add_calls(executor, liar):
    aux, main = "def aux(x):\n    return x + 1\n", "def f(n):\n    for i in range(n): aux(i)\n    return n\n"
    if liar == "aux":
        aux = FORGED + "def aux(x):\n    forge() if x == 1400 else None\n    return x + 1\n"
    else:
        main = FORGED + "def f(n):\n    for i in range(n): aux(i)\n    forge()\n    return n\n"
    report = run(executor, aux, main, equal((N, N)))
    assert report.verdict == "pass", report
    assert {row.function: row.calls for row in report.interactions}.keys() <= {"aux"}
    assert report.interactions[0].calls <= N


@pytest.mark.parametrize("name", ["aux", "hidden"])
def test_the_way_to_a_partner_allows_shared_functions_only(executor, name):
    aux = "def hidden(x):\n    return x\ndef aux(x):\n    return x\n"
    main = "import gc\ndef f(n):\n    (lane,) = [o for o in gc.get_objects() if type(o).__name__ == 'Lane']\n"
    main += f"    return lane.call(lane.request({name!r}, 'call', (n,), {{}}))['ok']\n"
    report = run_shared(executor, aux, main, equal((1, 1)))
    assert (report.verdict == "pass") == (name == "aux")


@pytest.mark.parametrize("data", ["['mine', 0]", "['yours', 0]"])
def test_no_object_comes_over_the_way_to_a_partner(executor, data):
    aux = "import gc\ndef aux(x):\n    if x == 1400:\n        for lane in gc.get_objects():\n"
    aux += "            if type(lane).__name__ == 'Lane':\n"
    aux += f"                type(lane).answer = lambda *_: {{'ok': {data}}}\n    return x\n"
    main = "def f(n, g):\n    g(n)\n    return [aux(i) for i in range(n)]\n"
    tests = f"def check(candidate):\n    assert candidate({N}, lambda x: lambda: 1)[-1] == {N - 1}\n"
    report = run(executor, aux, main, tests)
    assert (report.verdict, report.passed) == ("error", 0), report
    assert report.failures[0].endswith("object on a lane")


@pytest.mark.parametrize(
    "frame",
    [
        "{'ask': {'do': 'load', 'agent': 'aux', 'text': 'SECRET = 2', 'prelude': '', 'entry_point': 'f'}}",
        "{'ask': {'do': 'call', 'of': 'hidden', 'args': []}}",
        "{'ask': {'do': 'get', 'of': 'aux', 'args': ['__globals__']}}",
        "{'ask': {'do': 'call', 'of': 0, 'args': []}}",
        "{'ask': {'do': 'meet', 'known': {}}}",
        "{'answer': {'ok': 2}}",
    ],
)
def test_the_way_to_a_partner_allows_calls_of_its_functions_only(executor, frame):
    aux = "from os import getpid as hidden\nSECRET = 1\ndef aux(x):\n    return SECRET\n"
    main = (
        "import json, os, struct\ndef f(n):\n"
        f"    body = json.dumps({frame}).encode()\n    os.write(4, struct.pack('>I', len(body)) + body)\n"
        "    return aux(n) + 1 if n == 1 else n\n"
    )
    report = run(executor, aux, main, equal((1, 3), (2, 2)))
    assert report.verdict in ("protocol", "fail"), report
    assert report.passed < report.total
