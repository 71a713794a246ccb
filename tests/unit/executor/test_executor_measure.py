"""Timed programs: what is measured, on which inputs, and what is refused."""

import pytest

from jaxmarl_llm.executor import Executor, ExecutorRefused, Limits, Program, TimingPlan, available_level

TESTS = """
def inputs(seed):
    return (seed % 1000 + 1,)

def expected(n):
    return 2 * n
"""
# Rounds of the same work; the answer does not depend on them.
WORK = "def f(n):\n    for i in range({}):\n        i * i\n    return 2 * n\n"
SLOW = Program({"main": WORK.format(600_000)}, "f", TESTS)
PLAN = TimingPlan(min_pairs=7, max_pairs=7, min_seconds=0.001)


@pytest.fixture(scope="module")
def executor():
    if available_level()[0] < 2:
        pytest.skip(available_level()[1])
    with Executor(workers=2, limits=Limits(cpu_seconds=5)) as running:
        yield running


def program(source):
    return Program({"main": source}, "f", TESTS)


def test_a_sixth_of_the_work_is_measured_as_such(executor):
    actual = executor.measure(SLOW, program(WORK.format(100_000)), PLAN)
    assert actual.significant and actual.pairs == 7
    # Six times less work, plus what a process costs in both; noisy machines move it.
    assert 1.5 < actual.speedup < 9 and actual.low <= actual.speedup <= actual.high
    assert actual.baseline_seconds > actual.candidate_seconds > 0


def test_the_same_work_is_no_speedup(executor):
    actual = executor.measure(SLOW, program(WORK.format(600_000) + "# another text\n"), PLAN)
    assert actual.credited < 1.5


@pytest.mark.parametrize(
    "source",
    [
        "def f(n):\n    return 2 * n if n % 2 else 0\n",
        "def f(n):\n    return None\n",
        "class A(int):\n    def __eq__(self, other): return True\ndef f(n):\n    return A(0)\n",
        "class A:\n    def __eq__(self, other): return True\ndef f(n):\n    return A()\n",
        "import os\ndef f(n):\n    os._exit(0)\n",
        "def f(n):\n    import time; time.sleep(10**6)\n",
    ],
)
def test_a_wrong_answer_on_a_timed_input_earns_nothing(executor, source):
    with Executor(workers=1, limits=Limits(cpu_seconds=5, wall_seconds=1)) as impatient:
        actual = impatient.measure(SLOW, program(source), PLAN)
    assert (actual.reason, actual.speedup, actual.credited) == ("wrong-answer", 0.0, 0.0), actual


def test_work_at_import_counts(executor):
    table = "for i in range(600_000):\n    i * i\n" + "def f(n):\n    return 2 * n\n"
    assert executor.measure(SLOW, program(table), PLAN).credited < 1.5


def test_the_tests_may_judge_answers_themselves(executor):
    near = "\ndef accept(answer, n):\n    return abs(answer - 2 * n) <= 1\n"
    baseline = Program({"main": WORK.format(100_000)}, "f", TESTS + near)
    close = Program({"main": "def f(n):\n    return 2 * n + 1\n"}, "f", TESTS + near)
    far = Program({"main": "def f(n):\n    return 2 * n + 2\n"}, "f", TESTS + near)
    assert executor.measure(baseline, close, PLAN).reason != "wrong-answer"
    assert executor.measure(baseline, far, PLAN).reason == "wrong-answer"


@pytest.mark.slow
def test_timed_runs_are_not_remembered(executor):
    before = executor.metrics()
    first, second = (executor.measure(SLOW, program(WORK.format(300_000)), PLAN) for _ in range(2))
    after = executor.metrics()
    assert before is not after and after["runs"] == 2 * 4 * 7  # floor and candidate, two calls a pair
    assert first.baseline_seconds != second.baseline_seconds


def test_other_programs_run_between_and_reports_stay_right(executor):
    good = Program({"main": "def f(x):\n    return x\n"}, "f", "def check(c):\n    assert c(1) == 1\n")
    executor.measure(SLOW, SLOW, PLAN)
    assert executor.run([good])[0].verdict == "pass"


def test_what_cannot_be_measured(executor):
    with pytest.raises(ValueError, match="fails on the input of seed"):
        executor.measure(program("def f(n):\n    return 0\n"), SLOW, PLAN)
    with pytest.raises(ValueError, match="differ in entry_point"):
        executor.measure(SLOW, Program({"main": "def g(n): return 2 * n"}, "g", TESTS), PLAN)
    fast = executor.measure(SLOW, SLOW, TimingPlan(min_pairs=7, max_pairs=7, min_seconds=60))
    assert (fast.reason, fast.credited) == ("too-fast", 1.0)
    with Executor(workers=1, min_level=1, level=1) as weak, pytest.raises(ExecutorRefused, match="level 2"):
        weak.measure(SLOW, SLOW, PLAN)
