"""jaxmarl_llm/tasks/programs/timed_judge.py: by a scripted executor, and real times."""

import dataclasses
import math

import pytest

from jaxmarl_llm.executor import Executor, Limits, Report, Timing, TimingPlan, available_level
from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.programs.optimisation_items import OptimisationItem
from jaxmarl_llm.tasks.programs.timed_judge import SLOWEST, UNBUILT, WRONG, TimedJudge, derived_seed, reward

TESTS = """
import random

def inputs(seed):
    return ([random.Random(seed).randrange(10) for _ in range(SIZE)],)

def expected(values):
    return [sum(values[:i + 1]) for i in range(len(values))]
"""
SLOW = """
def f(values):
    result = []
    for i in range(len(values)):
        total = 0
        for j in range(i + 1):
            total += values[j]
        result.append(total)
    return result
"""
FAST = "from itertools import accumulate\n\ndef f(values):\n    return list(accumulate(values))\n"
ITEM = OptimisationItem("scan/f", "scan", "python", "Sums.", "f", SLOW, TESTS, 1000)
OTHER = dataclasses.replace(ITEM, task_id="scan/g")
SEVEN = "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7"
PLAN = TimingPlan(min_pairs=7, max_pairs=7, min_seconds=0.001, cap=8.0)


def timing(**fields):
    zeros = dict.fromkeys(("baseline_seconds", "candidate_seconds", "drift"), 1.0)
    usual = dict(speedup=2.0, low=1.8, high=2.2, pairs=7, noise=1.05, significant=True, cpu_seconds=3.0)
    return Timing(**zeros | usual | dict(capped=False, reason="max-pairs") | fields)


class Scripted:
    """Says 'pass' of all but those in `verdicts` {text: (verdict, failures)}; notes what it is asked."""

    def __init__(self, verdicts=(), timings=()):
        self.verdicts, self.timings = dict(verdicts), dict(timings)
        self.batches, self.measured = [], []

    def run(self, programs):
        self.batches.append(list(programs))
        rows = [self.verdicts.get(program.sources["program"], ("pass", ())) for program in programs]
        return [Report(verdict, 0, 1, tuple(failures), {}, 2, 0.5, 0.5) for verdict, failures in rows]

    def measure(self, baseline, candidate, plan):
        self.measured.append((baseline, candidate, plan))
        return self.timings.get(candidate.sources["program"], timing())

    def texts(self):
        return [[program.sources["program"] for program in batch] for batch in self.batches]


def test_what_becomes_of_programs():
    verdicts = {
        "broken": ("load-error", ["\n".join(f"line {n}" for n in range(1, 10))]),
        "raises": ("error", ["assert _right(candidate, 77), 'wrong answer' -> KeyError: 'a -> b'"]),
        "sleeps": ("timeout-wall", []),
    }
    failed = timing(reason="wrong-answer", speedup=0.0, detail="fail: assert -> AssertionError: wrong answer")
    timings = {"unlucky": failed, "same": timing(speedup=1.04, low=0.97, high=1.06, significant=False),
               "slow": timing(speedup=0.5, low=0.4, high=0.6)}  # fmt: skip
    executor = Scripted(verdicts, timings)
    programs = ["", "broken", "raises", "sleeps", "unlucky", "same", "slow", "good", SLOW + "# as it was"]
    actual = TimedJudge(executor, PLAN).judge([ITEM] * len(programs), programs)
    assert actual == [
        Outcome("no-program"),
        Outcome("build-error", "broken", log=SEVEN, executions=1, seconds=1.0),
        Outcome("wrong", "raises", log="KeyError: 'a -> b'", executions=1, seconds=1.0),
        Outcome("wrong", "sleeps", log="timeout-wall", executions=1, seconds=1.0),
        # Two validations of half a second, and the measurement's 3 s.
        Outcome("wrong", "unlucky", log="AssertionError: wrong answer", executions=1, seconds=4.0),
        Outcome("ok", "same", 1.0, 0.97, 1.06, executions=1, seconds=4.0),  # within the noise: 1
        Outcome("ok", "slow", 0.5, 0.4, 0.6, executions=1, seconds=4.0),
        Outcome("ok", "good", 2.0, 1.8, 2.2, executions=1, seconds=4.0),
        Outcome("ok", SLOW + "# as it was", 1.0, 1.0, 1.0, executions=1),
    ]
    # One call for all of them, the reference before them; nothing ran of '' and of the unchanged program.
    (texts,) = executor.texts()
    assert texts == [t for t in (SLOW, *programs[1:-1]) for _ in range(2)]
    assert [c.sources["program"] for _, c, _ in executor.measured] == ["unlucky", "same", "slow", "good"]
    assert all(b.sources["program"] == SLOW and b.tests == c.tests for b, c, _ in executor.measured)


def test_memory_of_equal_programs():
    executor = Scripted()
    judge = TimedJudge(executor, PLAN)
    first, again, other = judge.judge([ITEM, ITEM, OTHER], ["x = 1", "x=1 # again", "x = 1"])
    assert (first.reused, again.reused, other.reused) == (False, True, False)
    assert again == dataclasses.replace(first, program="x=1 # again", reused=True, seconds=0.0)
    assert again.executions == 1 and len(executor.measured) == 2
    (later,) = judge.judge([ITEM], ["x = 1\n"])
    assert later.reused and later.score == first.score and len(executor.batches) == 1

    executor = Scripted()
    judge = TimedJudge(executor, PLAN, remember=False)
    actual = judge.judge([ITEM, ITEM], ["x = 1", "x = 1"]) + judge.judge([ITEM], ["x = 1"])
    assert not any(outcome.reused for outcome in actual) and len(executor.measured) == 3


def test_failures_are_remembered_too():
    executor = Scripted({"x": ("fail", ["a -> b"])})
    judge = TimedJudge(executor, PLAN)
    judge.judge([ITEM], ["x"])
    (again,) = judge.judge([ITEM], ["x"])
    assert (again.status, again.reused, again.log) == ("wrong", True, "b") and len(executor.batches) == 1


def test_remeasuring_is_fresh_longer_larger_and_on_other_seeds():
    executor = Scripted()
    judge = TimedJudge(executor, PLAN)
    judge.judge([ITEM], ["x = 1"])
    held_out, unchanged = judge.remeasure([ITEM, ITEM], ["x = 1", SLOW])
    assert not held_out.reused and held_out.score == 2.0 and unchanged.score == 1.0
    (_, candidate, search), (_, later, plan) = executor.measured
    assert candidate.tests.startswith("SIZE = 1000\n") and later.tests.startswith("SIZE = 1250\n")
    assert (plan.min_pairs, plan.max_pairs, plan.budget_seconds) == (15, 15, 2 * PLAN.budget_seconds)
    assert plan.seed != search.seed
    asked = [{p.tests for p in batch if p.sources["program"] == "x = 1"} for batch in executor.batches]
    assert len(asked[0]) == len(asked[1]) == 2 and not asked[0] & asked[1]
    assert {tests.split("\n")[0] for tests in asked[0]} == {"SIZE = 100", "SIZE = 400"}
    (again,) = judge.judge([ITEM], ["x = 1"])
    assert again.reused  # and the held-out outcome did not replace what was measured first
    short = dataclasses.replace(PLAN, max_pairs=9)
    other = TimedJudge(executor, PLAN, held_out_plan=short)
    other.remeasure([ITEM], ["x = 1"])
    assert executor.measured[-1][2].max_pairs == 9


def test_remeasuring_remembers_what_was_remeasured():
    executor = Scripted()
    judge = TimedJudge(executor, PLAN)
    judge.judge([ITEM], ["x = 1"])
    first, equal = judge.remeasure([ITEM, ITEM], ["x = 1", "x=1 # again"])
    (again,) = judge.remeasure([ITEM], ["x = 1\n"])
    (other,) = judge.remeasure([OTHER], ["x = 1"])
    # Measured in the search, and once more by the first remeasure of either problem.
    assert [p.max_pairs for _, _, p in executor.measured] == [7, 15, 15]
    assert [o.reused for o in (first, equal, again, other)] == [False, True, True, False]
    assert again == dataclasses.replace(first, program="x = 1\n", reused=True, seconds=0.0)
    # What was only remeasured is not known to the search.
    judge.remeasure([ITEM], ["x = 2"])
    assert not judge.judge([ITEM], ["x = 2"])[0].reused

    executor = Scripted()
    judge = TimedJudge(executor, PLAN, remember=False)
    actual = judge.remeasure([ITEM, ITEM], ["x = 1", "x = 1"]) + judge.remeasure([ITEM], ["x = 1"])
    assert not any(outcome.reused for outcome in actual) and len(executor.measured) == 3


def test_what_an_earlier_process_measured_is_known():
    first = TimedJudge(Scripted(timings={"x = 1": timing(speedup=5.0, low=4.0, high=6.0)}), PLAN)
    pairs = [ITEM, OTHER], ["x = 1", "x = 1"]
    searched, held_out = first.judge(*pairs), first.remeasure(*pairs)
    executor = Scripted()
    later = TimedJudge(executor, PLAN)
    later.know(pairs[0], searched)
    later.know([ITEM], held_out[:1], held_out=True)
    assert later.judge(*pairs) == first.judge(*pairs) and not executor.measured
    again = later.remeasure(*pairs)
    assert again[0] == first.remeasure(*pairs)[0] and again[0].score == 5.0
    assert not again[1].reused and len(executor.measured) == 1
    later.know([ITEM], [dataclasses.replace(searched[0], score=9.0)])
    assert later.judge([ITEM], ["x = 1"])[0].score == 5.0  # as it was known before


def test_seeds_follow_from_run_problem_and_program():
    def asked(seed, item=ITEM, text="x = 1"):
        executor = Scripted()
        TimedJudge(executor, PLAN, seed=seed).judge([item], [text])
        return executor.measured[0][2].seed, [p.tests for p in executor.batches[0][2:]]

    assert asked(0) == asked(0) == asked(0, text="x=1#")
    assert len({asked(0)[0], asked(1)[0], asked(0, OTHER)[0], asked(0, text="x = 2")[0]}) == 4
    assert asked(0)[1] != asked(1)[1]
    # `printf '1\0a' | sha256sum` begins with these eight bytes.
    assert derived_seed(1, "a") == 0x03A95B5F06D98DCA >> 1


def test_small_problems_are_validated_at_their_own_size():
    executor = Scripted()
    TimedJudge(executor, PLAN).judge([dataclasses.replace(ITEM, size=3)], ["x"])
    assert {p.tests.split("\n")[0] for p in executor.batches[0]} == {"SIZE = 3"}


def test_errors_name_the_problem():
    with pytest.raises(ValueError, match=r"scan/f: its own program takes less than 0.001 s at size 1000"):
        TimedJudge(Scripted(timings={"x": timing(reason="too-fast")}), PLAN).judge([ITEM], ["x"])
    bad = Scripted({SLOW: ("fail", ["assert a -> AssertionError: wrong answer"])})
    with pytest.raises(ValueError, match=r"scan/f: its own program fails its tests .*fail: AssertionError"):
        TimedJudge(bad, PLAN).judge([ITEM], ["x"])

    class Raising(Scripted):
        def measure(self, *_):
            raise ValueError("the baseline fails on the input of seed 5")

    with pytest.raises(ValueError, match="^scan/f: the baseline fails"):
        TimedJudge(Raising(), PLAN).judge([ITEM], ["x"])


def test_cpp_needs_a_compiler():
    cpp = dataclasses.replace(ITEM, task_id="scan/c", language="c++", signature="int f(int n)")
    missing = Scripted({"int f(int n) { return n; }": ("unsupported", ["no C++ compiler: there is no g++"])})
    with pytest.raises(ValueError, match="scan/c is in C.*unsupported: no C.* compiler: there is no g"):
        TimedJudge(missing, PLAN).require_compiler([ITEM, cpp])
    TimedJudge(missing, PLAN).require_compiler([ITEM])
    TimedJudge(Scripted(), PLAN).require_compiler([ITEM, cpp])


@pytest.mark.parametrize("outcome, wanted", [
    (Outcome("ok", "x", 4.0), math.log(4)),
    (Outcome("ok", "x", 1.0), 0.0),
    (Outcome("ok", "x", 0.9), math.log(0.9)),
    (Outcome("ok", "x", 0.01), math.log(SLOWEST)),
    (Outcome("wrong", "x"), WRONG),
    (Outcome("build-error", "x"), UNBUILT),
    (Outcome("no-program"), UNBUILT),
])  # fmt: skip
def test_reward(outcome, wanted):
    assert reward(outcome) == wanted


def test_the_order_of_rewards():
    """Not to compile, to be wrong, to be slow, to change nothing, to be faster."""
    assert UNBUILT < WRONG < math.log(SLOWEST) < 0


@pytest.fixture(scope="module")
def executor():
    if available_level()[0] < 2:
        pytest.skip(available_level()[1])
    with Executor(workers=2, limits=Limits(cpu_seconds=5)) as running:
        yield running


@pytest.mark.slow
def test_real_programs(executor):
    item = dataclasses.replace(ITEM, size=1200)
    short, other = FAST.replace("(values))", "(values[:-1]))"), "def g(v):\n    return []\n"
    longer = SLOW.replace("i + 1", "len(values)").replace("values[j]", "values[j] * (j <= i)")
    programs = [FAST, short, "def f(values:\n", other, longer]
    judge = TimedJudge(executor, PLAN, PLAN)
    fast, wrong, broken, absent, slow = judge.judge([item] * 5, programs)
    # n * n / 2 additions against n: what is left is the time of two processes. Noisy machines move it.
    assert fast.status == "ok" and 1.2 < fast.score <= 8 and fast.low <= fast.score <= fast.high
    assert (wrong.status, wrong.log) == ("wrong", "AssertionError: wrong answer")
    assert broken.status == "build-error" and broken.log.startswith("program: SyntaxError")
    assert (absent.status, absent.log) == ("build-error", "no function 'f' is defined")
    assert slow.status == "ok" and slow.score < 1.1
    (held_out,) = judge.remeasure([item], [FAST])
    assert held_out.status == "ok" and held_out.score > 1.2 and not held_out.reused


def test_arguments_that_a_program_changes_are_not_compared_with(executor):
    sorting = dataclasses.replace(
        ITEM, size=300, source="def f(values):\n    return sorted(values)\n",
        tests=TESTS.split("def expected")[0] + "def expected(values):\n    return sorted(values)\n",
    )  # fmt: skip
    text = "def f(values):\n    values.sort()\n    return values\n"
    cheat = "def f(values):\n    values.clear()\n    return []\n"
    plan = dataclasses.replace(PLAN, min_seconds=1e-6)
    right, wrong = TimedJudge(executor, plan).judge([sorting] * 2, [text, cheat])
    assert (right.status, wrong.status) == ("ok", "wrong")


@pytest.mark.slow
def test_cpp_programs(executor):
    source = "int f(const std::vector<int>& v) {\n  int n = 0;\n  for (int x : v) n += x;\n  return n;\n}\n"
    tests = TESTS.split("def expected")[0] + "def expected(values):\n    return sum(values)\n"
    fields = dict(language="c++", signature="int f(const std::vector<int>& v)", source=source, tests=tests)
    item = dataclasses.replace(ITEM, **fields)
    judge = TimedJudge(executor, PLAN)
    try:
        judge.require_compiler([item])
    except ValueError as error:
        pytest.skip(str(error))
    broken, wrong = source.replace("return n", "return k"), source.replace("n += x", "n -= x")
    actual = judge.judge([item] * 3, [source + "// as it was\n", broken, wrong])
    assert [outcome.status for outcome in actual] == ["ok", "build-error", "wrong"]
    assert "'k' was not declared" in actual[1].log and 1 < len(actual[1].log.splitlines()) <= 7
