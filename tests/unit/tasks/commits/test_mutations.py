"""Mutants, the data made of them, and what is left out or refused."""

import collections

import pytest
from scripted_commits import rebuilt

from jaxmarl_llm.executor import Executor
from jaxmarl_llm.tasks import split_overlap
from jaxmarl_llm.tasks.coding import data_files
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.commits import diffs, making
from jaxmarl_llm.tasks.commits.load import load_items
from jaxmarl_llm.tasks.commits.mutations import KINDS, mutants
from jaxmarl_llm.tasks.program_text.answers import same_program
from jaxmarl_llm.utils.errors import UserError

PROGRAM = """\
def clip(x, low):
    if x < low:
        return low
    return max(x, low) - 3
"""
TEST = "def check(candidate):\n    assert candidate(5, 2) == 2\n    assert candidate(1, 2) == 2\n"


def problem(name="p/1", test=TEST, solution=PROGRAM):
    return CodingItem(name, "def clip(x, low):\n", "clip", test, ("x", "low"), canonical_solution=solution)


def test_mutants_by_hand():
    found = {one.message: one for one in mutants(PROGRAM)}
    assert {message: one.kind for message, one in found.items()} == {
        "Compare with < instead of <= in clip": "boundary",
        "Call max instead of min in clip": "call",
        "Use - instead of + in clip": "operator",
        "Set 4 to 3 in clip": "constant",
        "Swap the arguments of max in clip": "arguments",
        "Remove the not from the if in clip": "negation",
        "Begin clip with: if x < low: return low": "branch",
    }
    assert found["Set 4 to 3 in clip"].before == PROGRAM.replace("- 3", "- 4")
    assert found["Swap the arguments of max in clip"].before == PROGRAM.replace("(x, low) -", "(low, x) -")
    assert found["Remove the not from the if in clip"].before == PROGRAM.replace("x < low", "not (x < low)")
    assert found["Begin clip with: if x < low: return low"].before == (
        "def clip(x, low):\n    return max(x, low) - 3\n"
    )


@pytest.mark.parametrize(
    ("line", "messages"),
    [
        ("return -x", []),  # a sign of a number
        ("return f(*x)", []),
        ("return x + 1 - y", ["Set 2 to 1 in f"]),  # of two signs the message would not say which
        ("return f'{x + 1}'", []),  # newer versions of Python see tokens in it
        ("return x == 'a'", ["Use == instead of != in f"]),
        ("return x and y", ["Use and instead of or in f"]),
        ("return x.upper()", ["Call upper instead of lower in f"]),
        ("return upper", []),
    ],
)
def test_what_is_a_place(line, messages):
    assert [one.message for one in mutants(f"def f(x, y):\n    {line}\n")] == messages


def test_a_text_that_is_no_program_has_no_mutants():
    assert mutants("def f(:\n") == mutants("x = 1 + 2\n") == []


def test_only_mutants_that_change_a_test_are_kept():
    with Executor(workers=1) as executor:
        rows, left_out = making.rows([problem(), problem("p/2")], executor)
        wrong = problem("p/3", solution=PROGRAM.replace("3", "30"))
        assert making.rows([wrong], executor) == ([], {"programs that fail their tests": 1})
    # `<=` in place of `<`, and swapped arguments of max, change nothing; of the five others the rarest kinds are taken.
    assert [row["kind"] for row in rows] == ["call", "negation", "branch"]
    assert [row["passed"] for row in rows] == [[1, 2], [1, 2], [1, 2]]
    assert left_out == {
        "programs there twice": 1, "mutants that change no test": 2, "more mutants of one program": 2,
    }  # fmt: skip


def test_programs_without_tests_are_refused():
    with pytest.raises(UserError, match="problem 'p/1' has no tests"):
        making.rows([problem(test=" ")], None)
    with pytest.raises(UserError, match="'p/1' has no canonical_solution"):
        making.rows([problem(solution="")], None)
    with pytest.raises(UserError, match="the diff is empty"):
        diffs.of_programs(PROGRAM, PROGRAM)


def test_the_packages_mutants_are_divided_by_program():
    splits = {split: load_items("mutants", split) for split in ("train", "validation", "test")}
    assert {split: len(items) for split, items in splits.items()} == {
        "train": 893,
        "validation": 255,
        "test": 372,
    }
    families = [{item.family for item in items} for items in splits.values()]
    texts = [{text for item in items for text in (item.before, item.after)} for items in splits.values()]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not families[one] & families[other] and not texts[one] & texts[other]
        split_overlap.check_disjoint(*(list(splits.values())[n] for n in (one, other)))
    everything = load_items("mutants", "all")
    kinds = collections.Counter(item.kind for item in everything)
    assert set(kinds) == set(KINDS) and all(item.passed_before < item.passed_after for item in everything)
    assert len(load_items("mutants[:5]", "test")) == 5


@pytest.mark.slow
def test_every_message_of_the_data_says_the_whole_change():
    for item in load_items("mutants", "all"):
        assert same_program(rebuilt(item.before, item.message), item.after), (item.task_id, item.message)
        assert len(item.message.split()) <= 30


@pytest.mark.slow
def test_the_data_is_what_its_command_makes():
    chosen = data_files.load_starter()[::40]
    with Executor() as executor:
        rows, _ = making.rows(chosen, executor)
    made = {item.task_id: item for item in load_items("mutants", "all")}
    assert len(rows) > 40
    for row in rows:
        if row["problem"].endswith("/goal"):  # the same program as that of the statement in steps
            continue
        item = made[f"{row['problem']}/{row['mutant']}"]
        assert [item.passed_before, item.passed_after] == row["passed"] and item.kind == row["kind"]
