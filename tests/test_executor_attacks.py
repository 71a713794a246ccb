"""The executor against programs that cheat, hang, swallow memory or die: right verdict, workers unharmed."""

import psutil
import pytest

from jaxmarl_llm.executor import VERDICTS, Executor, Limits, Program, available_level, worker

# f(x) = x + 1, judged by two asserts.
TESTS = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(5) == 6\n"
GOOD = "def f(x):\n    return x + 1\n"
LIMITS = Limits(cpu_seconds=0.5, wall_seconds=1.5, memory_mb=256)


@pytest.fixture(scope="module", params=(1, 2, 3))
def executor(request):
    if request.param > available_level()[0]:
        pytest.skip(available_level()[1])
    with Executor(workers=2, limits=LIMITS, level=request.param) as running:
        yield running


def run(executor, source, tests=TESTS, **fields):
    """One program of one agent, and then a good one on the same workers: they must have survived."""
    (report,) = executor.run([Program({"main": source}, "f", tests, **fields)])
    marker = f"# after {hash(source)}\n"
    after = executor.run([Program({"main": GOOD + marker + f"# {i}"}, "f", TESTS) for i in range(2)])
    assert [r.verdict for r in after] == ["pass", "pass"]
    assert report.verdict in VERDICTS
    return report


@pytest.mark.parametrize(
    "verdict, source",
    [
        ("load-error", "import sys\nsys.exit(0)\n"),
        ("error", "def f(x):\n    import sys\n    sys.exit(0)\n"),
        ("error", "def f(x):\n    raise KeyboardInterrupt\n"),
        ("protocol", "import os\nos._exit(0)\n"),
        ("protocol", "def f(x):\n    import os\n    os._exit(0)\n"),
        ("unsupported", "class A:\n    def __eq__(self, other): return True\ndef f(x):\n    return A()\n"),
        ("unsupported", "def f(x):\n    yield x + 1\n"),
        ("unsupported", "def f(x):\n    a = []\n    a.append(a)\n    return a\n"),
        ("unsupported", "def f(x):\n    return 'a' * (9 << 20)\n"),
        ("fail", "class I(int):\n    def __eq__(self, other): return True\ndef f(x):\n    return I(0)\n"),
        ("fail", "class S(str):\n    def __eq__(self, other): return True\ndef f(x):\n    return S('')\n"),
        ("fail", "class F(float):\n    def __eq__(self, other): return True\ndef f(x):\n    return F(0)\n"),
        ("fail", "class L(list):\n    def __eq__(self, other): return True\ndef f(x):\n    return L()\n"),
        ("load-error", "def f(x:\n"),
        ("load-error", "x = '''\n"),
        ("load-error", "(" * 3000),
        ("load-error", "\0"),
        ("load-error", "'\ud800'\n"),
        ("load-error", "def g(x):\n    return x + 1\n"),
        ("load-error", "f = 3\n"),
        ("load-error", "import no_such_module\n"),
        ("timeout-cpu", "def f(x):\n    while True: pass\n"),
        ("timeout-cpu", "while True: pass\n"),
        (
            "timeout-cpu",
            "def f(x):\n    while True:\n        try:\n            while True: pass\n        except: pass",
        ),
        ("timeout-cpu", "def f(x):\n    return sum(range(10**13))\n"),
        ("timeout-cpu", "def f(x):\n    return len(str(9**9**9))\n"),
        ("timeout-cpu", "import re\ndef f(x):\n    return re.match('(a+)+$', 'a' * 60 + 'b')\n"),
        ("timeout-wall", "import time\ndef f(x):\n    time.sleep(1000)\n"),
        ("memory", "def f(x):\n    return bytearray(20 << 30)\n"),
        ("memory", "a = [0]\nwhile True: a += a\n"),
        ("error", "def f(x):\n    return f(x)\n"),
        ("error", "def f(x):\n    return input()\n"),
        ("killed", "def f(x):\n    import ctypes\n    ctypes.string_at(0)\n"),
        ("killed", "import os\nos.abort()\n"),
        ("error", "def f(x):\n    raise StopIteration\n"),
        ("protocol", "import os\ndef f(x):\n    os.write(3, b'0123456789' * 99)\n    return x + 1\n"),
        ("protocol", "import os\ndef f(x):\n    os.write(3, b'\\0\\0\\0\\x02{}')\n    return x + 1\n"),
        ("protocol", "import os\ndef f(x):\n    os.write(3, b'\\xff\\xff\\xff\\xff')\n    return x + 1\n"),
    ],
)
def test_verdict_and_survival(executor, verdict, source):
    report = run(executor, source)
    assert report.verdict == verdict, report
    assert report.passed < report.total
    assert report.failures


def test_only_level_1_lets_a_candidate_signal(executor):
    report = run(executor, "def f(x):\n    import os\n    os.kill(os.getpid(), 9)\n")
    assert report.verdict == ("killed" if executor.level == 1 else "error")


def test_files_outside_the_standard_library_are_seen_at_level_1_only(executor, tmp_path):
    path = tmp_path / "secret"
    path.write_text("42")
    tests = "def check(candidate):\n    assert candidate(1) == '42'\n"
    report = run(executor, f"def f(x):\n    return open({str(path)!r}).read()\n", tests)
    assert report.verdict == ("pass" if executor.level == 1 else "error")
    assert report.level == executor.level


def test_modules_of_the_standard_library_can_be_imported(executor):
    names = "base64 decimal fractions hashlib statistics unicodedata uuid zlib"
    assert run(executor, f"import {names.replace(' ', ', ')}\n{GOOD}").verdict == "pass"


def test_the_candidate_finds_no_expected_values(executor):
    # 918273645 is only in the tests. Frames, their globals and the whole heap are searched for it, and for
    # the tests' text, which would show as another verdict. (Xor, so that the search does not find itself.)
    source = """
import gc, sys
def f(x):
    for frame in sys._current_frames().values():
        while frame:
            for value in [*frame.f_locals.values(), *frame.f_globals.values()]:
                if type(value) is int and value ^ 5 == 918273640: return value
            frame = frame.f_back
    for thing in gc.get_objects():
        if type(thing) in (list, tuple):
            for value in thing:
                if type(value) is int and value ^ 5 == 918273640: return value
        if type(thing) is dict and any('check' + '(candidate)' in str(v)[:999] for v in thing.values()):
            raise MemoryError
    return None
"""
    tests = "def check(candidate):\n    assert candidate(1) == 918273645\n"
    assert run(executor, source, tests).verdict == "fail"


def test_patched_builtins_and_modules_reach_nobody_else(executor):
    source = "import builtins, json\nbuiltins.abs = builtins.len = lambda *a: 0\njson.dumps = None\n"
    tests = "def check(candidate):\n    assert abs(candidate(1) - 2) < 1e-6 and len([1]) == 1\n"
    assert run(executor, source + "def f(x):\n    return 0\n", tests).verdict != "pass"
    assert run(executor, GOOD, tests).verdict == "pass"


def test_stop_iteration_does_not_end_the_tests_loops(executor):
    # all(map(f, xs)) is True for an empty iterator, which a raised StopIteration would imitate.
    tests = "def check(candidate):\n    assert all(map(candidate, [1, 2]))\n"
    assert run(executor, "def f(x):\n    raise StopIteration\n", tests).verdict == "error"


def test_files_cannot_be_filled(executor, tmp_path):
    path = tmp_path / "full"
    path.write_text("before")
    report = run(
        executor, f"def f(x):\n    open({str(path)!r}, 'ab', 0).write(b'y' * 9999)\n    return x + 1\n"
    )
    assert report.verdict == "error"
    assert ("File too large" if executor.level == 1 else "PermissionError") in report.failures[0]
    assert path.read_text() == "before"


def test_leaving_is_no_pass_even_where_the_tests_swallow_it(executor):
    tests = "def check(candidate):\n    try: assert candidate(1) is True\n    except: pass\n"
    assert run(executor, "def f(x):\n    raise ValueError\n", tests).verdict == "pass"
    report = run(executor, "import os\ndef f(x):\n    os._exit(0)\n", tests)
    assert (report.verdict, report.passed, report.total) == ("protocol", 0, 1)


def test_answers_sent_ahead_are_only_data(executor):
    # ready, then two answers before any call, in the channel's own format.
    source = """
import json, os, struct
for reply in ({"ready": True}, {"ok": 0}, {"ok": 0}):
    body = json.dumps(reply).encode()
    os.write(3, struct.pack('>I', len(body)) + body)
os._exit(0)
"""
    assert run(executor, source).verdict == "fail"


def test_tests_that_hang_on_a_returned_value_do_not_hang_the_executor(executor, monkeypatch):
    # Multiples of 2**61 - 1 all hash to 0: building the set again takes quadratic time in the tester.
    monkeypatch.setattr(worker, "TESTER_GRACE", 0.5)
    forged = """
import json, os, struct
def f(x):
    body = json.dumps({"ok": ["s", [["i", hex(i * (2**61 - 1))] for i in range(200000)]]}).encode()
    body = struct.pack('>I', len(body)) + body
    while body: body = body[os.write(3, body):]
    import time; time.sleep(100)
"""
    report = run(executor, forged)
    assert report.verdict == "timeout-wall"
    assert (report.passed, report.total) == (0, 2)


def test_only_the_channel_is_open_and_nothing_is_inherited(executor):
    source = """
import os
def f(x):
    found = []
    for fd in range(1024):
        try: os.fstat(fd)
        except OSError: continue
        found.append(fd)
    return found, sorted(os.environ)
"""
    tests = (
        "def check(candidate):\n"
        "    fds, names = candidate(0)\n"
        "    assert fds == [0, 1, 2, 3]\n"
        "    assert names == ['LC_ALL', 'PYTHONHASHSEED', 'TZ']\n"
    )
    report = run(executor, source, tests)
    assert report.verdict == "pass", report
    assert report.total == 2


def test_nothing_of_one_run_is_seen_by_the_next(executor):
    patch = "import math\nmath.left_behind = 1\n" + GOOD
    probe = "import math\ndef f(x):\n    return x + (1 if not hasattr(math, 'left_behind') else 0)\n"
    reports = executor.run([Program({"main": patch + f"#{i}"}, "f", TESTS) for i in range(4)])
    reports += executor.run([Program({"main": probe + f"#{i}"}, "f", TESTS) for i in range(4)])
    assert {report.verdict for report in reports} == {"pass"}


def test_daemon_children_of_a_candidate_are_killed(executor):
    source = """
import os, time
def f(x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    return x + 1
"""
    before = set(psutil.Process().children(recursive=True))
    run(executor, source)  # passes for root, raises in fork for others: the children are what matters
    assert set(psutil.Process().children(recursive=True)) == before
