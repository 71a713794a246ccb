"""Verdicts and what programs see do not depend on the worker, on restarts or on the load of the machine."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest
from attacks.record import TESTS

from jaxmarl_llm.executor import Executor, Limits, Program

LIMITS = Limits(cpu_seconds=2, wall_seconds=60, memory_mb=256)
SPIN = "import time\ndef f(x):\n    while time.process_time() < {}: pass\n    return x + 1\n"


def values_of(executor, expression, times):
    """What an expression gives in each of so many programs, as the tests report it."""
    tests = "def check(candidate):\n    value = candidate(0)\n    assert value is check, value\n"
    source = f"import locale, os, random, sys, time\ndef f(x):\n    return str({expression})\n"
    programs = [Program({"main": f"{source}# {i}\n"}, "f", tests) for i in range(times)]
    return {report.failures[0].split("AssertionError: ")[1] for report in executor.run(programs)}


def alone(expression):
    """The same in an interpreter of its own with the same environment."""
    code = f"import locale, os, random, sys, time; random.seed(0); print({expression})"
    environment = {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-s", "-S", "-P", "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    "expression",
    [
        "list({'a', 'b', 'c'})",
        "[hash('a'), hash(b'a'), hash(1.5)]",
        "[random.random(), random.randrange(99)]",
        "[time.tzname, time.localtime(0)[3]]",
        "locale.setlocale(locale.LC_CTYPE) + locale.setlocale(locale.LC_COLLATE)",
        "[sys.getrecursionlimit(), sys.getdefaultencoding(), sys.getswitchinterval()]",
        "sorted(os.environ.items())[:9]",
    ],
)
def test_programs_see_the_same_on_every_worker_and_after_a_restart(expression):
    actual = set()
    for _ in range(2):
        with Executor(workers=2, limits=LIMITS) as executor:
            actual |= values_of(executor, expression, 6)
    assert actual == {alone(expression)}


@contextlib.contextmanager
def load():
    """A process per CPU that does nothing but work."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(os.cpu_count())]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("share, verdict", [(0.9, "pass"), (1.5, "timeout-cpu")])
def test_a_program_near_its_limit_gets_one_verdict_on_a_busy_machine(share, verdict):
    # As much of the limit is used whatever the load, and however long it takes.
    limits = Limits(cpu_seconds=0.2, wall_seconds=120, memory_mb=256)
    programs = [Program({"main": SPIN.format(0.2 * share) + f"# {i}\n"}, "f", TESTS) for i in range(25)]
    with load(), Executor(workers=2, limits=limits) as executor:
        assert {report.verdict for report in executor.run(programs)} == {verdict}


THIRD = "from decimal import Decimal\ndef f(x):\n    return Decimal(x) / 3\n"
SETTING = "from decimal import *\nimport sys\ngetcontext().prec = 3\nsys.set_int_max_str_digits(0)\n"


def test_what_one_programs_tests_set_changes_no_other_verdict():
    """The first row sets a context and the digits of integers in its prelude, the second has them as they are."""
    tests = (
        "def check(candidate):\n    assert str(candidate(1)) == '0.333'\n    assert len(str(10**5000)) == 5001\n",
        "import decimal\ndef check(candidate):\n    assert candidate(1) == decimal.Decimal(1) / 3\n"
        "    assert len(str(candidate(1))) == 30\n    try:\n        str(10**5000)\n    except ValueError: pass\n"
        "    else: assert candidate is None\n",  # 0. and 28 digits
    )
    rows = [Program({"main": THIRD}, "f", text, prelude) for text, prelude in zip(tests, (SETTING, ""), strict=True)]
    for order in (rows, rows[::-1]):
        with Executor(workers=1, limits=LIMITS) as executor:
            for row in order:
                (report,) = executor.run([row])
                assert (report.verdict, report.failures) == ("pass", ())


def test_numpys_global_generator_is_seeded_for_programs_and_tests():
    drawn = np.random.RandomState(0).rand(2).tolist()
    source = "import numpy as np\ndef f(x):\n    return np.random.rand(x).tolist()\n"
    tests = "import numpy as np\ndef check(candidate):\n"
    tests += f"    assert candidate(2) == np.random.rand(2).tolist() == {drawn}\n"
    with Executor(workers=1, limits=LIMITS, modules=("numpy",)) as executor:
        reports = executor.run([Program({"main": source + f"# {i}\n"}, "f", tests) for i in range(3)])
    assert [report.verdict for report in reports] == ["pass"] * 3, reports
