"""Rows whose tests judge nobody are named before the first answer is judged: by reading them, and by running them."""

import json
import logging

import pytest

from jaxmarl_llm.executor import Executor
from jaxmarl_llm.tasks.coding import data_files, needs, problem_tests, row_checks
from jaxmarl_llm.tasks.coding.items import RowRules, complaints_of_test, load_jsonl, parse_lines
from jaxmarl_llm.tasks.coding.task import CodingTask

PROMPT = 'def mean(xs):\n    """Mean."""\n'
ROW = {"prompt": PROMPT, "entry_point": "mean", "canonical_solution": "    return sum(xs) / len(xs)\n"}
GOOD = "def check(candidate):\n    assert candidate([1, 3]) == 2\n"
RIGHT = {"aux": ["def aux(x):\n    return x"], "main": ["def mean(xs):\n    return sum(xs) / len(xs)"]}


def complaints(test, prelude="", modules=()):
    return complaints_of_test(test, prelude, "mean", modules)


def check_of(*lines):
    return "def check(candidate):\n" + "".join(f"    {line}\n" for line in lines)


HELPER = "def same(a, b):\n    assert a == b\n\n"


@pytest.mark.parametrize("test", [
    GOOD,
    HELPER + check_of("same(candidate([1, 3]), 2)"),
    HELPER + check_of("for xs in [[1, 3]]:", "    same(candidate(xs), 2)"),
    HELPER + "def all_same(f):\n    same(f([1, 3]), 2)\n\n" + check_of("all_same(candidate)"),
    HELPER + check_of("for test in (same,):", "    test(candidate([1, 3]), 2)"),
    check_of("if candidate([1, 3]) != 2:", "    raise AssertionError('mean')"),
    "class Cases:\n    def run(self, f):\n        assert f([1, 3]) == 2\n\n" + check_of("Cases().run(candidate)"),
    "import unittest\n\n" + check_of("unittest.TestCase().assertEqual(candidate([1, 3]), 2)"),
    check_of("def inner():", "    assert candidate([1, 3]) == 2", "inner()"),
    "def check(f, tolerance=0):\n    assert abs(f([1, 3]) - 2) <= tolerance\n",
    "from math import *\n\n" + check_of("assert isclose(candidate([1, 3]), 2)"),
    "try:\n    import numpy\nexcept ImportError:\n    numpy = None\n\n" + GOOD,
    "COUNT = 0\n\n" + check_of("global COUNT", "COUNT += 1", "assert candidate([1, 3]) == COUNT + 1"),
    check_of("assert mean([1, 3]) == 2"),  # the candidate by its own name
])  # fmt: skip
def test_reading_and_running_agree_on_good_tests(executor, test):
    assert complaints(test) == []
    item = items_of(test)[0]
    assert row_checks.faults([item], executor) == {}
    right, wrong = (CodingTask([item], executor).judge([item], RIGHT | answer)[0] for answer in (
        {}, {"main": ["def mean(xs):\n    return 0"]}))
    assert (right.verdict, right.parts["tests"]) == ("pass", 1.0)
    assert wrong.verdict != "pass" and wrong.parts["tests"] == 0.0


FORM = "test does not define check(candidate), a function that can be called with the candidate alone"


@pytest.mark.parametrize("test, complaint", [
    ("def check(candidate:", "test does not parse"),
    ("assert mean([1]) == 1", FORM),
    ("def check():\n    assert True", FORM),
    ("def check(candidate, wanted):\n    assert candidate(1) == wanted", FORM),
    ("def check(candidate, *, wanted):\n    assert candidate(1) == wanted", FORM),
    ("async def check(candidate):\n    assert candidate(1)", FORM),
    ("check = lambda candidate: candidate(1) == 1", FORM),
    (GOOD + "\ncheck = None\n", FORM),
    ("def check(candidate):\n    assert candidate(1)\n    yield", FORM),  # calling it runs nothing
    ("class check:\n    def __init__(self, candidate):\n        assert candidate(1)", FORM),
    (check_of("candidate([1])"), "check() in test has no assert, and calls nothing that has one"),
    (check_of("print(candidate([1]) == 1)"), "check() in test has no assert, and calls nothing that has one"),
    ("def other(f):\n    assert f(1)\n\n" + check_of("candidate([1])"),
     "check() in test has no assert, and calls nothing that has one"),
    ("import numpy as np\n\n" + GOOD,
     "test imports numpy, which the sandbox does not have; allow it in executor.allow_modules"),
    (check_of("from scipy import stats, special", "import pandas.testing", "assert candidate([1]) == 1"),
     "test imports pandas, scipy, which the sandbox does not have; allow it in executor.allow_modules"),
    (check_of("assert close(candidate([1, 3]), 2)"),
     "test uses close, which neither it nor what precedes the function defines"),
    (check_of("assert candidate(xs) == WANTED"),
     "test uses WANTED, xs, which neither it nor what precedes the function defines"),
    (check_of("for i in range(2):", "    assert [near(candidate([x]), x) for x in CASES]"),
     "test uses CASES, near, which neither it nor what precedes the function defines"),
    (check_of("def inner():", "    return helper(candidate)", "assert inner()"),
     "test uses helper, which neither it nor what precedes the function defines"),
])  # fmt: skip
def test_reading_finds(test, complaint):
    assert complaints(test) == [complaint]


def test_only_the_data_defines_what_a_test_uses():
    test = check_of("assert candidate(encode('a')) == 'a'")
    assert complaints(test) == ["test uses encode, which neither it nor what precedes the function defines"]
    assert complaints(test, "def encode(s):\n    return s") == []
    assert complaints("import numpy\n" + GOOD, modules=("numpy",)) == []
    assert needs.undefined("from numpy import *\n" + check_of("assert array"), "", "f") == []  # may be anything
    with_prompts_functions = {"HumanEval/32", "HumanEval/38", "HumanEval/50"}
    for item in data_files.load_humaneval():
        assert complaints_of_test(item.test, item.prelude, item.entry_point) == []
        assert bool(needs.undefined(item.test, "", item.entry_point)) == (item.task_id in with_prompts_functions)


@pytest.fixture(scope="module")
def executor():
    with Executor(workers=1) as executor:
        yield executor


def lines_of(tests, **fields):
    rows = [{"task_id": f"row/{k}", **ROW, **fields, "test": test} for k, test in enumerate(tests)]
    return "\n".join(map(json.dumps, rows))


def items_of(*tests, **fields):
    return parse_lines(lines_of(tests, **fields), "data.jsonl")


WRONG = check_of("assert candidate([1, 3]) == 2", "assert candidate([1, 2]) == 1")
RAISES = "TABLE = {}['x']\n\n" + GOOD


def test_running_finds(executor):
    items = items_of(GOOD, WRONG, RAISES, "x = 1 / 0\n" + GOOD)
    assert row_checks.faults(items, executor) == {
        "row/1": "canonical_solution does not pass the test, verdict fail: assert candidate([1, 2]) == 1 -> "
                 "AssertionError",
        "row/2": "tests of 'mean' fail by themselves: KeyError: 'x'",
        "row/3": "tests of 'mean' fail by themselves: ZeroDivisionError: division by zero",
    }


@pytest.mark.parametrize("solution, fault", [
    ("", ""),  # none: the tests run against a function that raises
    ("return sum(xs) / len(xs)", ""),  # a body at the left margin
    ("def mean(xs):\n    return sum(xs) / len(xs)\n", ""),
    ("import statistics\n\ndef mean(xs):\n    return statistics.mean(xs)\n", ""),
    ("    return sum(xs) /", "canonical_solution is no program that defines the function, and no body of it"),
    ("def other(xs):\n    return 2\n", "canonical_solution does not pass the test, verdict fail"),  # as a body
    ("    while True:\n        pass\n", "canonical_solution does not pass the test, verdict timeout-cpu"),
    ("    return len(xs)[0]\n", "canonical_solution does not pass the test, verdict error"),
])
def test_canonical_solutions(executor, solution, fault):
    found = row_checks.faults(items_of(GOOD, canonical_solution=solution), executor)
    assert found.get("row/0", "").startswith(fault) and bool(found) == bool(fault)


def test_values_that_do_not_travel_are_found_in_the_row(executor):
    """A regular expression's match stays in its process: the row is refused, no answer is judged wrong."""
    row = {"canonical_solution": "    import re\n    return re.match('a', xs)\n"}
    (fault,) = row_checks.faults(items_of(check_of("assert candidate('a') == 1"), **row), executor).values()
    assert fault.startswith("canonical_solution does not pass the test, verdict unsupported")


def test_all_bad_rows_are_named_at_once_with_file_line_and_id(executor, tmp_path, caplog):
    path = tmp_path / "data.jsonl"
    undefined = check_of("assert close(candidate([1, 3]), 2)")
    path.write_text(lines_of([GOOD, undefined, WRONG, "assert 1", "import numpy\n" + GOOD, RAISES, GOOD]))
    rules = RowRules(check=lambda items: row_checks.faults(items, executor))
    with pytest.raises(ValueError) as caught:
        load_jsonl(path, rules)
    first, *lines = str(caught.value).split("\n")
    assert first == f"{path}: 5 bad row(s)"
    assert [line[:18] for line in lines] == [f"  line {n} (row/{n - 1}): " for n in (2, 3, 4, 5, 6)]
    assert "uses close" in lines[0] and "verdict fail" in lines[1] and "imports numpy" in lines[3]
    with caplog.at_level(logging.WARNING):
        kept = load_jsonl(path, RowRules(check=rules.check, drop=True))
    assert [item.task_id for item in kept] == ["row/0", "row/6"]
    assert caplog.text.count("line ") == 5 and "left out, as task.bad_rows='drop' says" in caplog.text
    path.write_text(lines_of([WRONG]))
    with pytest.raises(ValueError, match="1 bad row"):  # nothing would be left
        load_jsonl(path, RowRules(check=rules.check, drop=True))


class Counting:
    """An executor that counts what it is asked to run."""

    def __init__(self, executor):
        self.limits, self.modules, self._executor, self.ran = executor.limits, executor.modules, executor, 0

    def try_tests(self, programs):
        self.ran += len(programs)
        return self._executor.try_tests(programs)


def test_rows_that_passed_are_remembered_by_their_content(executor, tmp_path):
    counting, seen = Counting(executor), []
    items = items_of(GOOD, WRONG)
    for _ in range(2):
        assert list(row_checks.faults(items, counting, tmp_path, lambda *numbers: seen.append(numbers))) == ["row/1"]
    assert (counting.ran, seen) == (3, [(2, 2), (1, 1)])  # the bad row again, the good one once
    row_checks.faults(items_of(GOOD + "\n"), counting, tmp_path)
    row_checks.faults(items_of(GOOD, canonical_solution="    return 2\n"), counting, tmp_path)
    assert counting.ran == 5
    (tmp_path / "checked_rows.txt").write_bytes(b"\xff\xfe damaged")
    assert row_checks.faults(items_of(GOOD), counting, tmp_path) == {} and counting.ran == 6
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert row_checks.faults(items_of(GOOD), counting, blocked) == {}  # no folder: nothing is remembered


def test_humaneval_passes_and_a_slice_is_all_that_runs(executor, tmp_path):
    counting = Counting(executor)
    rules = RowRules(check=lambda items: row_checks.faults(items, counting, tmp_path))
    assert len(data_files.load_items("humaneval[30:52]", "all", rules)) == 22
    assert counting.ran == 22
    assert len(data_files.load_items("starter:goal[:20]", "all", rules)) == 20
    assert counting.ran == 22  # the package's own tests run those


def test_a_batch_with_broken_tests_names_the_problem(executor):
    (item,) = items_of(RAISES)
    with pytest.raises(ValueError, match=r"item 'row/0': tests of 'mean' fail by themselves: KeyError: 'x'"):
        CodingTask([item], executor).judge([item], RIGHT)


@pytest.mark.parametrize("test, total", [
    (HELPER + check_of("same(candidate([1]), 1)", "same(candidate([2]), 2)", "same(candidate([1]), 1)"), 2),
    (HELPER + check_of("for xs in [[1], [2]]:", "    same(candidate(xs), xs[0])", "assert candidate([3]) == 3"), 2),
    (check_of("if candidate([1]) != 1:", "    raise ValueError", "assert candidate([2]) == 2"), 2),
    (check_of("x = candidate([1])", "print(x)", "assert x == 1"), 1),
])
def test_calls_that_assert_are_units(test, total):
    assert problem_tests.count_units(test) == total
    used, held = problem_tests.split(test, 0.5) if total > 1 else (test, None)
    assert held is None or problem_tests.count_units(used) + problem_tests.count_units(held) == total


def test_what_a_hidden_unit_does_stays_without_its_check():
    test = HELPER + check_of("xs = [3]", "same(candidate(xs), xs.pop())", "same(candidate(xs), 0)")
    used = problem_tests.select_units(test, [1])
    assert "if 'hidden':\n        (candidate(xs), xs.pop())" in used and "same(candidate(xs), 0)" in used
