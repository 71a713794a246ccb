"""Sources and splits of coding problems."""

import dataclasses
import json

import pytest

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.coding.data_files import load_humaneval, load_items, load_starter
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.utils.errors import UserError


def item(task_id, grade=0):
    test = "def check(candidate):\n    assert candidate() is None\n"
    return CodingItem(task_id, "def f():\n", "f", test, (), grade=grade)


def ids(items):
    return [item.task_id for item in items]


def test_splits_by_the_place_in_a_grade():
    items = [item("a1", 1), item("b1", 2), item("a2", 1), item("a3", 1), item("b2", 2), item("a4", 1),
             item("b3", 2), item("b4", 2), item("a5", 1), item("b5", 2), item("a6", 1), item("a7", 1),
             item("a8", 1)]
    splits = {split: ids(sources.of_own_split(items, split, "a.jsonl")) for split in sources.SPLITS}
    assert (splits["validation"], splits["test"], splits["all"]) == (["a4", "b4"], ["a8"], ids(items))
    assert splits["train"] == [i for i in ids(items) if i not in ("a4", "b4", "a8")]


def test_rows_without_a_split_among_others_are_named():
    """They would be in no split; of all rows nothing is left out."""
    items = [dataclasses.replace(item(f"r{n}"), split=split) for n, split in enumerate(["train", *[""] * 6, "test"])]
    assert sources.of_own_split(items, "all", "a.jsonl") == items
    message = r"a.jsonl: 6 row\(s\) have no field 'split' where others have one, .*: r1, r2, r3, r4, r5, \.\.$"
    with pytest.raises(UserError, match=message):
        sources.of_own_split(items, "train", "a.jsonl")
    whole = [dataclasses.replace(one, split=one.split or "validation") for one in items]
    assert ids(sources.of_own_split(whole, "validation", "a.jsonl")) == [f"r{n}" for n in range(1, 7)]


def test_the_starter_set_has_problems_in_two_statements():
    steps, goal = load_items("starter:steps"), load_items("starter:goal")
    items = load_starter()
    assert items[: len(steps)] == steps and items[len(steps) : len(steps) + len(goal)] == goal
    assert {item.statement for item in items} <= {"steps", "goal", "written"}
    assert len(set(ids(items))) == len(items)
    one, other = steps[0], goal[0]
    assert (one.task_id, other.task_id) == ("starter/basics/001", "starter/basics/001/goal")
    assert one.prompt == (
        "def double_three_times(name: str) -> str:\n"
        '    """First repeat name 2 times. Then repeat the result 3 times."""\n'
    )
    assert other.prompt == (
        'def double_three_times(name: str) -> str:\n    """Return name written six times in a row."""\n'
    )
    for field in ("entry_point", "params", "test", "canonical_solution", "grade", "split"):
        assert getattr(one, field) == getattr(other, field)
    assert "goal" not in one.columns
    assert load_items("starter:goal[:2]", "train") == [i for i in goal if i.split == "train"][:2]


def test_humaneval():
    items = load_humaneval()
    assert len(items) == 164
    assert items[0].prelude == "from typing import List" and items[0].params == ("numbers", "threshold")
    assert items[10].prelude.startswith("def is_palindrome") and items[10].entry_point == "make_palindrome"
    # The splits of the paper's configs: train [33:133], evaluation [0:32].
    assert ids(load_items("humaneval[33:133]")) == [f"HumanEval/{k}" for k in range(33, 133)]
    assert ids(load_items("humaneval", "train")) == [f"HumanEval/{k}" for k in range(33, 133)]
    assert ids(load_items("humaneval", "validation")) == [f"HumanEval/{k}" for k in range(32)]
    assert ids(load_items("humaneval", "test")) == [f"HumanEval/{k}" for k in range(133, 164)]
    assert ids(load_humaneval(33, 35)) == ["HumanEval/33", "HumanEval/34"]


def test_a_path(tmp_path):
    rows = [{"task_id": f"t{k}", "prompt": "def f(x):\n    '''Doc'''\n", "entry_point": "f",
             "test": "def check(candidate):\n    assert candidate(1)"} for k in range(6)]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    assert ids(load_items(str(path))) == [f"t{k}" for k in range(6)]
    assert ids(load_items(str(path), "validation")) == ["t3"]
    assert ids(load_items(f"{path}[2:]", "train")) == ["t2", "t4", "t5"]  # the split first: t0 t1 t2 t4 t5
    assert ids(load_items(f"{path}[-1:]")) == ["t5"]
    with pytest.raises(ValueError, match="holds no problems"):
        load_items(f"{path}[6:]")


def test_a_file_with_splits_of_its_own(tmp_path):
    rows = [{"task_id": f"t{k}", "prompt": "def f(x):\n    '''Doc'''\n", "entry_point": "f", "split": split,
             "test": "def check(candidate):\n    assert candidate(1)"}
            for k, split in enumerate(("test", "train", "test", "validation", "train"))]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    wanted = {"train": ["t1", "t4"], "validation": ["t3"], "test": ["t0", "t2"],
              "all": ["t0", "t1", "t2", "t3", "t4"]}
    assert {split: ids(load_items(str(path), split)) for split in wanted} == wanted


def test_slices_of_the_starter_set():
    assert load_items("starter[:3]", "train") == load_starter("train")[:3]


@pytest.mark.parametrize("source", ["", "startr", "starter:", "starter:step", "mbpq",
                                    "humaneval[33]", "humaneval[a:b]", "/nowhere/file"])
def test_an_unknown_source(source):
    allowed = "'starter', 'humaneval', 'sums', 'mbpp', 'gsm8k' or the path"
    with pytest.raises(ValueError, match=f"source is .*; allowed: {allowed}"):
        load_items(source)


def test_an_unknown_split():
    for load in (load_starter, lambda split: load_items("humaneval", split)):
        with pytest.raises(ValueError, match="split is 'held_out'; allowed: train, validation, test, all"):
            load("held_out")
