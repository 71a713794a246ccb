"""jaxmarl_llm/tasks/programs/generation.py and generation_items.py: counts of tests, and where tests come from."""

import logging

import pytest
from scripted_programs import ITEM, ROW

from jaxmarl_llm.executor import Executor, Report
from jaxmarl_llm.tasks.coding import problem_tests
from jaxmarl_llm.tasks.coding.data_files import load_items
from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.programs.generation import GenerationTask
from jaxmarl_llm.tasks.programs.generation_items import asserts_in, with_given_tests, with_model_tests

RIGHT = "def twice(n):\n    return 2 * n\n"
SMALL = "def twice(n):\n    return 2 * n if n < 4 else 0\n"  # right for four of six


class Scripted:
    """Reports by text: (verdict, passed, total); notes the batches."""

    def __init__(self, reports):
        self.reports, self.batches = reports, []

    def run(self, programs):
        self.batches.append(list(programs))
        actual = [self.reports[program.sources["program"]] for program in programs]
        return [Report(v, n, of, ("said",) * (v != "pass"), {}, 2, 0.25, 0.5) for v, n, of in actual]


def test_a_joint_answer():
    executor = Scripted({RIGHT: ("pass", 3, 3), SMALL: ("fail", 1, 3), "def twice(:\n": ("load-error", 0, 3)})
    task = GenerationTask([ITEM], executor, ("a", "b"))
    (item,) = task.items
    first, second = task.judge([item, item], {"a": [f"```\n{RIGHT}```", "def twice(:"], "b": [SMALL, "No."]})
    assert first.outcomes == {
        "a": Outcome("ok", RIGHT, 3.0, 3.0, 3.0, total=3, executions=1, seconds=0.25),
        "b": Outcome("wrong", SMALL, 1.0, 1.0, 1.0, "said", 3, 1, seconds=0.25),
    }
    assert first.local == pytest.approx({"a": 1.0, "b": 1 / 3}) and first.total == pytest.approx(2 / 3)
    assert first.parts == pytest.approx({"passed": 2 / 3, "correct": 0.5, "compiles": 1.0, "best": 1.0})
    assert (first.verdict, second.verdict) == ("pass", "build-error")
    assert [second.outcomes[a].status for a in "ab"] == ["build-error", "no-program"] and second.total == 0.0
    assert second.outcomes["b"].executions == 0
    (batch,) = executor.batches
    assert len(batch) == 3 and all(program.tests == item.search for program in batch)
    assert batch[0].prelude == "import math"
    assert task.solved(first.outcomes["a"]) and not task.solved(first.outcomes["b"])
    assert task.normalise(first.scores)["return"] == pytest.approx(200 / 3)
    assert task.good(first.outcomes["a"]) and not task.good(first.outcomes["b"])
    assert task.source(item) == ITEM.prompt


def test_search_and_held_out_tests():
    item = with_given_tests(ITEM, 0.5)
    assert problem_tests.count_units(item.search) == 3 and item.test == ROW["test"] and item.origin == "given"
    assert with_given_tests(item, 0.2) is item  # an item that has its search tests keeps them
    assert with_given_tests(ITEM, 0.0).search == ROW["test"]
    with pytest.raises(ValueError, match="held_back is 1"):
        GenerationTask([ITEM], None, ("a",), held_back=1.0)


ANSWER = """Here are tests:
1. assert twice(1) == 2
- assert twice(2) == 4
`assert twice(-3) == -6`
assert twice(1) == 2
assert twice(1)   ==   2
assert twice(4) == twice(2) + 4
assert twice(5) != 3
assert other(1) == 2
assert twice(6) == n
assert twice(7) == 14, "twice"
assert twice(8) ==
assert twice([1, 2]) == [1, 2, 1, 2]; import os
assert __import__('os').x == twice(1)
    assert twice(True) == 2
assert twice(9) == 18
assert twice(10) == 20
assert twice(11) == 22
"""


def test_tests_of_a_model():
    wanted = [
        "assert twice(1) == 2", "assert twice(2) == 4", "assert twice(-3) == -6",
        "assert twice(7) == 14, 'twice'", "assert twice(True) == 2", "assert twice(9) == 18",
    ]  # fmt: skip
    assert asserts_in(ANSWER, "twice") == wanted  # six at most
    item = with_model_tests(ITEM, ANSWER)
    assert item.origin == "generated" and item.test == ROW["test"]
    assert item.search == "def check(candidate):\n" + "".join(f"    {line}\n" for line in wanted)
    assert problem_tests.count_units(item.search, "twice") == 6
    assert GenerationTask([item], None, ("a",)).items == (item,)


def test_without_tests_of_a_model_the_given_ones_are_used_and_said(caplog):
    with caplog.at_level(logging.WARNING):
        item = with_model_tests(ITEM, "I cannot write tests.")
    assert item.origin == "fallback" and problem_tests.count_units(item.search) == 3
    assert "t/1: no test in 'I cannot write tests.'" in caplog.text


@pytest.mark.parametrize("text", ["", "assert", "assert \0", "assert twice(" * 999, "`assert twice(1) == 1"])
def test_ugly_tests(text):
    assert asserts_in(text, "twice") in ([], ["assert twice(1) == 1"])


@pytest.fixture(scope="module")
def executor():
    with Executor(workers=2, min_level=1) as running:
        yield running


def test_real_programs(executor):
    task = GenerationTask([ITEM], executor, ("a", "b", "c"))
    (item,) = task.items
    texts = {"a": [RIGHT], "b": [SMALL], "c": ["def twice(n):\n    return math.floor(2 * n)\n"]}
    (judged,) = task.judge([item], texts)
    # Of the asserts for 0..5 the 2nd, 4th and 6th are held back: 0, 2 and 4 are asked, SMALL fails on 4.
    assert [judged.outcomes[a].score for a in "abc"] == [3.0, 2.0, 3.0]
    assert [(o.score, o.total, o.status) for o in task.remeasure([item] * 3, [RIGHT, SMALL, ""])] == [
        (6.0, 6, "ok"), (4.0, 6, "wrong"), (0.0, 0, "no-program"),
    ]  # fmt: skip
    wrong_test = with_model_tests(ITEM, "assert twice(1) == 3\nassert twice(2) == 4")
    (judged,) = GenerationTask([wrong_test], executor, ("a",)).judge([wrong_test], {"a": [RIGHT]})
    assert (judged.outcomes["a"].score, judged.outcomes["a"].total) == (1.0, 2)


def test_solutions_of_the_data_pass(executor):
    items = load_items("starter[:3]") + load_items("humaneval[:2]")
    task = GenerationTask(items, executor, ("a",))
    solutions = [(item.prompt, item.canonical_solution) for item in items]
    whole = [solution if "def " in solution else prompt + solution for prompt, solution in solutions]
    judged = task.judge(task.items, {"a": whole})
    assert [j.verdict for j in judged] == ["pass"] * 5
