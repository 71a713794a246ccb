"""The executor as a pool: order, cache, retries, clean ends, refusals."""

import dataclasses
import subprocess
import sys

import psutil
import pytest
from repository import ROOT

from jaxmarl_llm.executor import Executor, ExecutorError, Limits, Program, available_level, levels

# f(x) = x + 1, judged by two asserts.
TESTS = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(5) == 6\n"
GOOD = "def f(x):\n    return x + 1\n"
LIMITS = Limits(cpu_seconds=0.5, wall_seconds=20, memory_mb=256)  # little CPU on a loaded machine is no sleep


@pytest.mark.slow
def test_order_and_rewards_do_not_depend_on_the_number_of_workers():
    programs = [
        Program({"main": f"def f(x):\n    return x + {i % 3}\n# {i}\n"}, "f", TESTS) for i in range(60)
    ] + [
        Program({"main": "def f(x):\n    return list({'a', 'b', 'c', str(x)})\n"}, "f", TESTS),
        Program({"main": "import random\ndef f(x):\n    return random.randint(2, 9)\n"}, "f", TESTS),
        Program({"main": "def f(x):\n    while True: pass\n"}, "f", TESTS),
        Program(
            {"main": GOOD},
            "f",
            "import random\ndef check(c):\n    n = random.randint(0, 99)\n    assert c(n) < 60",
        ),
    ]
    vectors = []
    for workers in (1, 4):
        with Executor(workers=workers, limits=LIMITS) as executor:
            vectors.append(executor.run(programs))
    # i % 3 == 1 is right for both asserts, 0 and 2 for none.
    assert [report.passed for report in vectors[0][:6]] == [0, 2, 0, 0, 2, 0]
    assert vectors[0] == vectors[1]
    assert [report.cached for report in vectors[0]] == [False] * len(programs)


@pytest.mark.slow
def test_equal_programs_run_once_and_timeouts_are_not_kept():
    loop, good = (Program({"main": text}, "f", TESTS) for text in ("def f(x):\n    while True: pass\n", GOOD))
    with Executor(workers=1, limits=LIMITS) as executor:
        first = executor.run([good, loop, good])
        again = executor.run([good, loop])
    assert [report.cached for report in first] == [False, False, True]
    assert [report.cached for report in again] == [True, False]
    assert [report.verdict for report in again] == ["pass", "timeout-cpu"]
    first[0].calls["f"] = 99
    assert first[2].calls == {"f": 2}


def test_a_dead_worker_is_replaced_and_two_deaths_are_raised():
    killer = "import os\ndef f(x):\n    os.kill(os.getppid(), 9)\n    import time; time.sleep(9)\n"
    others = set(psutil.Process().children())
    # From level 2 on no candidate can signal.
    with Executor(workers=1, limits=LIMITS, min_level=1, level=1) as executor:
        (supervisor,) = set(psutil.Process().children()) - others
        for process in supervisor.children():
            process.kill()
        assert executor.run([Program({"main": GOOD}, "f", TESTS)])[0].verdict == "pass"
        with pytest.raises(ExecutorError, match="infra"):  # never a reward
            executor.run([Program({"main": killer}, "f", TESTS)])
        assert executor.run([Program({"main": GOOD + "#"}, "f", TESTS)])[0].verdict == "pass"


@pytest.mark.parametrize("level, processes", [(1, 5), (3, 7)])
def test_close_ends_every_process(level, processes):
    if level > available_level()[0]:
        pytest.skip(available_level()[1])
    others = set(psutil.Process().children(recursive=True))
    executor = Executor(workers=2, limits=LIMITS, min_level=1, level=level)
    mine = set(psutil.Process().children(recursive=True)) - others
    executor.close()
    executor.close()
    assert len(mine) == processes  # supervisor, zygotes, testers; at level 3 a zygote is two processes
    assert not mine & set(psutil.Process().children(recursive=True))
    with pytest.raises(RuntimeError, match="closed"):
        executor.run([])


def test_imports_without_jax():
    code = "import sys, jaxmarl_llm.executor\nprint(sorted({'jax', 'jaxlib', 'numpy'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


@pytest.mark.slow
def test_a_level_out_of_reach_is_refused(monkeypatch):
    monkeypatch.setattr(levels, "available_level", lambda: (1, "the kernel has no Landlock"))
    with pytest.raises(RuntimeError, match="min_level is 2.*available here is 1.*Landlock.*min_level=1"):
        Executor(min_level=2)
    with pytest.raises(RuntimeError, match="^level is 3.*available here is 1"):
        Executor(level=3)
    with Executor(workers=1, min_level=1) as executor:
        assert executor.level == 1


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="level is 1, below min_level 2"):
        Executor(min_level=2, level=1)
    with pytest.raises(ValueError, match="level is 0"):
        Executor(level=0)
    with pytest.raises(ValueError, match="min_level is 7"):
        Executor(min_level=7)
    with pytest.raises(ValueError, match="workers is 0"):
        Executor(workers=0)
    with pytest.raises(ValueError, match="cpu_seconds is -1"):
        Limits(cpu_seconds=-1)
    for bad in (-1, 1e12, 1e300, float("inf"), float("nan"), True, "2"):
        for name in ("cpu_seconds", "wall_seconds"):
            with pytest.raises(ValueError, match=f"{name} is .*; allowed: a number from 0.01 to 1000000"):
                Limits(**{name: bad})
    for bad in (3, 100.5, 512.0, 1 << 60, True):
        with pytest.raises(ValueError, match="memory_mb is .*; allowed: a whole number from 64 to 16777216"):
            Limits(memory_mb=bad)
    for fields, match in (
        ({"sources": {}}, "sources"),
        ({"entry_point": "a b"}, "a b"),
        ({"tests": None}, "tests"),
    ):
        with pytest.raises(ValueError, match=match):
            Program(**{"sources": {"a": ""}, "entry_point": "f", "tests": TESTS, **fields})


def test_limits_and_reports_are_plain_values():
    assert Limits(cpu_seconds=2.0).wall == 6.0  # max(3 * 2, 2 + 2)
    assert Limits(cpu_seconds=0.5).wall == 2.5  # max(1.5, 0.5 + 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Limits().cpu_seconds = 1


@pytest.mark.parametrize("limits", [Limits(cpu_seconds=1e6), Limits(1e6, 1e6, 1 << 24)])
def test_programs_run_with_the_greatest_limits(limits):
    with Executor(workers=1, limits=limits, min_level=1) as executor:
        (report,) = executor.run([Program({"main": GOOD}, "f", TESTS)])
    assert report.verdict == "pass"
