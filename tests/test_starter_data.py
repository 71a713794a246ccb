"""The starter set: graded, solvable, and not to be earned by answers that ignore the question."""

import ast
import builtins
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
    assert len(items) >= 300
    grades = collections.Counter(item.grade for item in items)
    assert set(grades) == {1, 2, 3, 4} and grades[1] > grades[2] > grades[3] > grades[4]
    parts = [load_items("starter", split) for split in ("train", "validation", "test")]
    assert sum(map(len, parts)) == len(items) == len({item.task_id for part in parts for item in part})
    assert all(0.1 < len(part) / len(items) < 0.2 for part in parts[1:])
    assert all({item.grade for item in part} == {1, 2, 3, 4} for part in parts)


def test_every_problem_has_at_least_five_asserts(items):
    for item in items:
        (check,) = ast.parse(item.test).body
        tests = {ast.unparse(node) for node in check.body if isinstance(node, ast.Assert)}
        assert len(tests) >= 5, item.task_id


def _without_names(source):
    """The same source with parameters and local variables numbered, and the main function called f."""
    names = {}
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.name, node.returns = ("aux" if node.name == "aux" else "f"), None
        elif isinstance(node, ast.arg):
            node.arg, node.annotation = names.setdefault(node.arg, f"v{len(names)}"), None
        elif isinstance(node, ast.Name) and node.id != "aux" and not hasattr(builtins, node.id):
            node.id = names.setdefault(node.id, f"v{len(names)}")
    return ast.unparse(tree)


def test_no_problem_is_another_one_under_other_names(items):
    """Otherwise a held-out problem could have been seen in training."""
    seen = collections.defaultdict(list)
    for item in items:
        seen[_without_names(item.canonical_solution)].append(item.task_id)
    assert [ids for ids in seen.values() if len(ids) > 1] == []


def test_every_docstring_states_two_steps(items):
    """The agents do not see each other's answers: the problem itself must divide the labour."""
    for item in items:
        (function,) = ast.parse(item.prompt + "    pass\n").body
        doc = ast.get_docstring(function)
        assert re.fullmatch(r"(.*[.] )?First .*[.] Then .*[.]", doc), item.task_id
        assert "aux" not in doc and ">>>" not in doc, item.task_id


def test_the_first_step_is_not_the_answer(items):
    """Handing the reference helper's result on unchanged fails: the second step is needed."""
    programs = []
    for item in items:
        helper = item.canonical_solution.split("\n\n\n")[0]
        params = ", ".join(item.params)
        main = f"def {item.entry_point}({params}):\n    value = aux({params})\n    return value\n"
        programs.append(Program({"aux": helper, "main": main}, item.entry_point, item.test))
    with Executor(workers=2) as executor:
        reports = executor.run(programs)
    assert not [i.task_id for i, r in zip(items, reports, strict=True) if r.verdict == "pass"]


def test_no_constant_or_echo_passes_a_single_assert(items):
    """A reward for "some test passed" is otherwise earned by `return 0` or `return numbers`."""
    programs, names = [], []
    for item in items:
        for answer in [*map(repr, CONSTANTS), *item.params]:
            source = f"def {item.entry_point}({', '.join(item.params)}):\n    return {answer}\n"
            programs.append(Program({"main": source}, item.entry_point, item.test))
            names.append(f"{item.task_id}: return {answer}")
    with Executor(workers=2) as executor:
        reports = executor.run(programs)
    earned = [name for name, report in zip(names, reports, strict=True) if report.passed]
    assert not earned
