"""The starter set: graded, solvable, and not to be earned by answers that ignore the question."""

import ast
import collections
import re

import pytest

from jaxmarl_llm.executor import Executor, Program
from jaxmarl_llm.tasks.code_data import load_items

CONSTANTS = (None, 0, 1, -1, 0.0, "", [], {}, True, False)


@pytest.fixture(scope="module")
def items():
    return load_items("starter", "all")


def test_size_grades_and_splits(items):
    assert len(items) >= 160
    grades = collections.Counter(item.grade for item in items)
    assert set(grades) == {1, 2, 3, 4} and grades[1] > grades[2] > grades[3] > grades[4]
    train, held_out = load_items("starter", "train"), load_items("starter", "held_out")
    assert len(train) + len(held_out) == len(items) and 0.2 < len(held_out) / len(items) < 0.3
    assert not {item.task_id for item in train} & {item.task_id for item in held_out}
    assert {item.grade for item in held_out} == {1, 2, 3, 4}


def test_every_problem_has_at_least_five_asserts(items):
    for item in items:
        (check,) = ast.parse(item.test).body
        tests = {ast.unparse(node) for node in check.body if isinstance(node, ast.Assert)}
        assert len(tests) >= 5, item.task_id


def test_no_constant_visible_answer_or_echo_passes_a_single_assert(items):
    """A reward for "some test passed" is otherwise earned by `return 0` or by the docstring's example."""
    programs, names = [], []
    for item in items:
        visible = re.search(r">>> .*\n\s*(.*)\n", item.prompt)[1]
        answers = [repr(value) for value in CONSTANTS] + [visible, *item.params]
        for answer in answers:
            source = f"def {item.entry_point}({', '.join(item.params)}):\n    return {answer}\n"
            programs.append(Program({"main": source}, item.entry_point, item.test))
            names.append(f"{item.task_id}: return {answer}")
    with Executor(workers=2) as executor:
        reports = executor.run(programs)
    earned = [name for name, report in zip(names, reports, strict=True) if report.passed]
    assert not earned
