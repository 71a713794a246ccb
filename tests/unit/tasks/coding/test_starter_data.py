"""The starter set: graded, solvable, and not to be earned by answers that ignore the question."""

import ast
import collections
import json
import re

import pytest
from repository import ROOT

from jaxmarl_llm.executor import Executor, Program
from jaxmarl_llm.tasks.coding.canonical import canonical_solution, docstring
from jaxmarl_llm.tasks.coding.data_files import load_items, starter_rows
from jaxmarl_llm.tasks.coding.items import parse_lines
from jaxmarl_llm.tasks.coding.operations import operation_pair
from jaxmarl_llm.tasks.split_overlap import nearest, overlaps

pytestmark = pytest.mark.slow

CONSTANTS = (None, 0, 1, -1, 0.0, "", [], {}, True, False)
SPLITS = ("train", "validation", "test")
# Test problems whose solution has more than 0.85 of its 3-grams in common with one of training: the helper or
# the main step is the same, the other step is not.
NEAR = {f"starter/basics/{number}" for number in ("020", "029", "045", "086", "135", "137")}
NEAR.add("starter/lists/007")


@pytest.fixture(scope="module")
def steps():
    """Problems of two steps, in the statement that names them."""
    return load_items("starter:steps", "all")


@pytest.fixture(scope="module")
def goals():
    """The same problems in the statement that says what to return, and problems of one step."""
    return load_items("starter:goal", "all")


@pytest.fixture(scope="module")
def items(steps, goals):
    """Every problem once."""
    known = {item.task_id for item in steps}
    return steps + [item for item in goals if item.task_id.removesuffix("/goal") not in known]


def strata(items):
    """Number of items of every file and grade."""
    return collections.Counter((item.task_id.split("/")[1], item.grade) for item in items)


def test_size_grades_and_splits(items):
    assert len(items) >= 420
    grades = collections.Counter(item.grade for item in items)
    assert set(grades) == {1, 2, 3, 4} and grades[1] > grades[2] > grades[3] > grades[4]
    whole, parts = strata(items), {s: strata(i for i in items if i.split == s) for s in SPLITS}
    assert sum(map(len, parts.values())) and sum(sum(part.values()) for part in parts.values()) == len(items)
    for stratum, count in whole.items():
        for split in ("validation", "test"):
            assert abs(parts[split][stratum] - 0.15 * count) <= 1, stratum


def test_the_counts_of_the_page_are_right(items):
    text = (ROOT / "docs/coding.md").read_text("utf-8")
    everything = load_items("starter")
    counts = collections.defaultdict(collections.Counter)
    for item in everything:
        parts = item.task_id.split("/")
        name = parts[1] if parts[0] == "starter" else "written"
        counts[name, item.grade, item.statement][item.split] += 1
    rows = set()
    for (name, grade, _), count in counts.items():
        statements = [s for s in ("steps", "goal", "written") if (name, grade, s) in counts]
        numbers = " | ".join(str(count[split]) for split in SPLITS)
        rows.add(f"| {name} | {grade} | {', '.join(statements)} | {numbers} |")
    assert [row for row in rows if row not in text] == []
    written = sum(item.statement == "written" for item in everything)
    assert f"has {len(items) + written} problems in {len(everything)} statements" in text


def test_both_statements_of_a_problem_are_in_one_split(steps, goals):
    split_of = {item.task_id: item.split for item in goals}
    assert [i.task_id for i in steps if split_of[f"{i.task_id}/goal"] != i.split] == []


def test_every_pair_of_operations_is_in_one_split(steps):
    splits = collections.defaultdict(set)
    for item in steps:
        pair = operation_pair(item)
        assert pair, item.task_id
        splits[pair].add(item.split)
    assert [pair for pair, actual in splits.items() if len(actual) > 1] == []


def test_splits_are_disjoint():
    train, validation, test = (load_items("starter", split) for split in SPLITS)
    assert overlaps(train, validation) == overlaps(train, test) == overlaps(validation, test) == []


def test_the_nearest_neighbours_of_the_test_are_known():
    """Short solutions share most of their 3-grams of tokens where one of the two operations is the same."""
    neighbours = nearest(load_items("starter", "train"), load_items("starter", "test"))
    assert [n for n in neighbours if n.part == "prompt" and n.similarity > 0.7] == []
    near = {n.task_id.removesuffix("/goal"): n for n in neighbours if n.similarity > 0.85}
    assert set(near) <= NEAR and all(n.similarity < 0.95 for n in near.values())


def test_its_rows_are_as_rows_of_a_user_have_to_be():
    """They are taken without the checks of a file of the user's."""
    checked = [parse_lines("\n".join(map(json.dumps, rows)), name) for name, rows in starter_rows().items()]
    assert sorted((item for items in checked for item in items), key=lambda item: item.task_id) == sorted(
        load_items("starter", "all"), key=lambda item: item.task_id)


def test_every_problem_has_at_least_five_asserts(items):
    for item in items:
        (check,) = ast.parse(item.test).body
        tests = {ast.unparse(node) for node in check.body if isinstance(node, ast.Assert)}
        assert len(tests) >= 5, item.task_id


def test_no_problem_is_another_one_under_other_names(items):
    seen = collections.defaultdict(list)
    for item in items:
        seen[canonical_solution(item)].append(item.task_id)
    assert [ids for ids in seen.values() if len(ids) > 1] == []


def test_a_statement_of_steps_names_two(steps):
    for item in steps:
        doc = docstring(item)
        assert re.fullmatch(r"(.*[.] )?First .*[.] Then .*[.]", doc), item.task_id
        assert "aux" not in doc and ">>>" not in doc, item.task_id


def test_a_statement_of_a_goal_names_no_order_of_steps(goals):
    for item in goals:
        doc = docstring(item)
        assert re.fullmatch(r"(.*[.] )?Return[ ,].*[.]", doc), item.task_id
        assert not re.search(r"\bFirst\b|\b[Tt]hen\b|\b[Aa]fter that\b|\baux\b|>>>", doc), item.task_id


def test_no_two_problems_have_the_same_statement(steps, goals):
    seen = collections.Counter((item.params, docstring(item)) for item in steps + goals)
    assert [text for text, count in seen.items() if count > 1] == []


def test_the_first_step_is_not_the_answer(steps):
    """Handing the reference helper's result on unchanged fails: the second step is needed."""
    programs = []
    for item in steps:
        helper = item.canonical_solution.split("\n\n\n")[0]
        params = ", ".join(item.params)
        main = f"def {item.entry_point}({params}):\n    value = aux({params})\n    return value\n"
        programs.append(Program({"aux": helper, "main": main}, item.entry_point, item.test))
    with Executor(workers=2) as executor:
        reports = executor.run(programs)
    assert not [i.task_id for i, r in zip(steps, reports, strict=True) if r.verdict == "pass"]


def test_every_reference_solution_passes(items):
    sources = [{"main": item.canonical_solution} for item in items]
    with Executor(workers=2) as executor:
        reports = executor.run(
            [Program(s, i.entry_point, i.test) for s, i in zip(sources, items, strict=True)]
        )
    assert [i.task_id for i, r in zip(items, reports, strict=True) if r.verdict != "pass"] == []


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
