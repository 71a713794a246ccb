"""Sources and splits of coding problems."""

import json

import pytest

from jaxmarl_llm.tasks.code_data import load_humaneval, load_items, load_starter, select_split
from jaxmarl_llm.tasks.code_items import CodingItem


def item(task_id, grade=0):
    test = "def check(candidate):\n    assert candidate() is None\n"
    return CodingItem(task_id, "def f():\n", "f", test, (), grade=grade)


def ids(items):
    return [item.task_id for item in items]


def test_splits_go_by_the_place_among_those_of_a_grade():
    items = [item("a1", 1), item("b1", 2), item("a2", 1), item("a3", 1), item("b2", 2), item("a4", 1),
             item("b3", 2), item("b4", 2), item("a5", 1), item("b5", 2), item("a6", 1), item("a7", 1),
             item("a8", 1)]
    assert ids(select_split(items, "validation")) == ["a4", "b4"]
    assert ids(select_split(items, "test")) == ["a8"]
    assert ids(select_split(items, "train")) == [i for i in ids(items) if i not in ("a4", "b4", "a8")]
    assert select_split(items, "all") == items


def test_the_starter_set():
    items = load_starter()
    train, validation, test = map(load_starter, ("train", "validation", "test"))
    assert len(items) >= 160
    assert len({i.task_id for i in items}) == len(items)
    assert len({*ids(train), *ids(validation), *ids(test)}) == len(items)
    assert len(train) + len(validation) + len(test) == len(items)
    assert all(0.05 < len(part) / len(items) <= 0.2 for part in (validation, test))
    for one in items:
        assert one.test.count("assert ") >= 5, one.task_id
        assert one.grade >= 1 and one.canonical_solution and one.params, one.task_id
    assert {i.grade for i in train} == {i.grade for i in validation} == {i.grade for i in test}


def test_no_starter_problem_is_evaluated_and_trained_under_another_name():
    prompts = {i.prompt: i.task_id for i in load_starter("train")}
    evaluated = load_starter("validation") + load_starter("test")
    assert [i.task_id for i in evaluated if i.prompt in prompts] == []


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
    with pytest.raises(ValueError, match="split 'test' holds no problems"):
        load_items(str(path), "test")  # six are too few
    assert ids(load_items(f"{path}[2:]", "train")) == ["t2", "t4", "t5"]  # the split first: t0 t1 t2 t4 t5
    assert ids(load_items(f"{path}[-1:]")) == ["t5"]
    with pytest.raises(ValueError, match="holds no problems"):
        load_items(f"{path}[6:]")


def test_slices_of_the_starter_set():
    assert load_items("starter[:3]", "train") == load_starter("train")[:3]


@pytest.mark.parametrize("source", ["", "startr", "mbpp", "humaneval[33]", "humaneval[a:b]", "/nowhere/file"])
def test_an_unknown_source(source):
    with pytest.raises(ValueError, match=r"source is .*; allowed: 'starter', 'humaneval' or the path"):
        load_items(source)


def test_an_unknown_split():
    for load in (load_starter, lambda split: load_items("humaneval", split)):
        with pytest.raises(ValueError, match="split is 'held_out'; allowed: train, validation, test, all"):
            load("held_out")
