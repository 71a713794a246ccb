"""The executor against programs that cheat, hang, swallow memory or escape: right verdict, workers unharmed.

The programs are in `attacks`. Each runs on a worker of its own level, followed on the same worker by a good
program, which has to pass.
"""

import os
import pathlib
import tempfile
import types

import psutil
import pytest
from attacks import ATTACKS, escape, partner
from attacks.record import TESTS

from jaxmarl_llm.executor import Executor, Limits, Program

GOOD = "def f(x):\n    return x + 1\n"
# On a busy machine a loop may get so little CPU time that it looks asleep; so only attacks that shall be
# found asleep run with a short wall limit.
BUSY = Limits(cpu_seconds=0.5, wall_seconds=60, memory_mb=256)
ASLEEP = Limits(cpu_seconds=0.5, wall_seconds=1, memory_mb=256)
FAMILIES = sorted({attack.name.split("-")[0] for attack in ATTACKS})
# Each of the first two takes until a limit; the others are many.
SLOW = ("time", "wait", "partner", "memory", "object", "raw", "compile", "raise")


@pytest.fixture(scope="module")
def executors(level):
    """Two executors of one worker each: .busy and .asleep, after their wall limits; .level."""
    with (
        Executor(workers=1, limits=BUSY, min_level=1, level=level) as busy,
        Executor(workers=1, limits=ASLEEP, min_level=1, level=level) as asleep,
    ):
        yield types.SimpleNamespace(busy=busy, asleep=asleep, level=level)


@pytest.fixture
def executor(executors):
    return executors.busy


@pytest.fixture(autouse=True)
def nothing_stays(executors):
    """No new process below this one, no file of an attack where one could have been written."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) == before
    assert left_files() == []


def left_files():
    folders = ["/", "/dev/shm", tempfile.gettempdir(), os.getcwd(), os.path.dirname(os.__file__)]
    return [
        path
        for folder in folders
        if os.path.isdir(folder)
        for path in pathlib.Path(folder).glob(f"*{escape.LEFT}*")
    ]


def run_all(executor, programs):
    """Their reports, each from a worker on which a good program passed right after."""
    batch = []
    for number, program in enumerate(programs):
        good = {"main": f"{GOOD}# {number} after {hash(str(program))}\n"}
        batch += [program, Program(good, "f", TESTS)]
    reports = executor.run(batch)
    assert {report.verdict for report in reports[1::2]} == {"pass"}
    assert not any(report.cached for report in reports)
    return reports[::2]


def run(executor, source, tests=TESTS):
    """The report of one program of one agent."""
    return run_all(executor, [Program({"main": source}, "f", tests)])[0]


def calls_of_aux(report):
    return sum(row.calls for row in report.interactions if (row.caller, row.callee) == ("main", "aux"))


def wrong(attack, report, level):
    """Whether a report is not what is right for an attack."""
    return (
        report.verdict not in attack.right(level) - {"pass"}
        or report.passed == report.total
        or not report.failures
        or report.level != level
        or report.cpu_seconds > BUSY.cpu_seconds + 2  # the kernel's limit is at most so much later
        or (attack.aux_calls is not None and calls_of_aux(report) != attack.aux_calls)
    )


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in FAMILIES]
)
def test_no_attack_succeeds(executors, family):
    level = executors.level
    attacks = [a for a in ATTACKS if a.name.split("-")[0] == family and a.level <= level]
    waiting = [attack for attack in attacks if "timeout-wall" in attack.right(level)]
    others = [attack for attack in attacks if "timeout-wall" not in attack.right(level)]
    actual = {}
    for executor, chosen in ((executors.asleep, waiting), (executors.busy, others)):
        # What an attack leaves behind shows when it is made again.
        for time in ("once", "again") if family == "state" else ("once",):
            reports = run_all(executor, [a.program(time) for a in chosen]) if chosen else []
            actual |= {a.name: r for a, r in zip(chosen, reports, strict=True) if wrong(a, r, level)}
    assert actual == {}
    assert attacks or level < 3


def test_the_corpus_is_well_formed():
    names = [attack.name for attack in ATTACKS]
    assert len(names) == len(set(names)) > 500
    for attack in ATTACKS:
        assert attack.level in (1, 2, 3) and attack.tries
        assert attack.verdicts and "pass" not in attack.verdicts | (attack.level_1 or set())


def test_agents_in_processes_of_their_own_cannot_reach_each_other(executors):
    reports = run_all(executors.busy, [attack.program() for attack in partner.OWN_PROCESS])
    assert [
        a.name for a, r in zip(partner.OWN_PROCESS, reports, strict=True) if wrong(a, r, executors.level)
    ] == []


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


def test_files_cannot_be_filled(executor, tmp_path):
    path = tmp_path / "full"
    path.write_text("before")
    source = f"def f(x):\n    open({str(path)!r}, 'ab', 0).write(b'y' * 9999)\n    return x + 1\n"
    report = run(executor, source)
    assert report.verdict == "error"
    assert ("File too large" if executor.level == 1 else "PermissionError") in report.failures[0]
    assert path.read_text() == "before"


def test_leaving_is_no_pass_even_where_the_tests_swallow_it(executor):
    tests = "def check(candidate):\n    try: assert candidate(1) is True\n    except: pass\n"
    assert run(executor, "def f(x):\n    raise ValueError\n", tests).verdict == "pass"
    report = run(executor, "import os\ndef f(x):\n    os._exit(0)\n", tests)
    assert (report.verdict, report.passed, report.total) == ("protocol", 0, 1)


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
    run(executor, source)  # passes for root, raises in fork for others: `nothing_stays` is what matters


HANGS = {
    # Multiples of 2**61 - 1 all hash to 0: building the set again takes quadratic time.
    "set": ("['s', [['i', hex(i * (2**61 - 1))] for i in range(200000)]]", "candidate(1) == {1}"),
    "loop": ("10**13", "sum(range(candidate(1))) == 2"),
    "regex": ("'a' * 60 + 'b'", "re.match('(a+)+$', candidate(1))"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", HANGS)
def test_tests_that_hang_on_a_returned_value_do_not_hang_the_executor(executors, what):
    reply, statement = HANGS[what]
    # Written to the channel by hand, as a value that the candidate itself need not build.
    source = f"""
import json, os, struct, time
def f(x):
    body = json.dumps({{"answer": {{"ok": {reply}}}}}).encode()
    body = struct.pack('>I', len(body)) + body
    while body: body = body[os.write(3, body):]
    time.sleep(1000)
"""
    program = Program({"main": source}, "f", f"import re\ndef check(candidate):\n    assert {statement}\n")
    with Executor(
        workers=1, limits=ASLEEP, min_level=1, level=executors.level
    ) as executor:  # its processes are replaced
        (report,) = run_all(executor, [program])
    assert report.verdict == "timeout-wall"
    assert (report.passed, report.total) == (0, 1)
