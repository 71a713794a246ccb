"""Commits of JSONL files: fields, splits by repository and time, what is refused."""

import dataclasses
import json
import logging

import pytest

from jaxmarl_llm.executor import Executor
from jaxmarl_llm.tasks.coding.items import RowRules
from jaxmarl_llm.tasks.commits import diffs
from jaxmarl_llm.tasks.commits.load import load_items
from jaxmarl_llm.utils.errors import UserError

# As a row of the study's release looks: tokens between spaces, <nl> for line ends, line ends after values.
RELEASED = {
    "diff_id": 7, "repo": "some/project\n", "sha": "d49d\n", "time": "2011-07-28T12:46:57Z\n",
    "diff": "mmm a / run . py <nl> ppp b / run . py <nl> <nl> import os <nl> - import pe <nl> + import qe <nl>\n",
    "msg": "Use qe .\n",
}  # fmt: skip
BEFORE, AFTER = "def f(x):\n    return x + 2\n", "def f(x):\n    return x + 1\n"
TESTED = {
    "before": BEFORE, "after": AFTER, "entry_point": "f", "message": "Set 2 to 1 in f", "repository": "a", "time": 1,
    "test": "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(0) > 0\n",
}  # fmt: skip


def written(tmp_path, *rows):
    path = tmp_path / "commits.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def test_a_row_of_the_release(tmp_path):
    (item,) = load_items(written(tmp_path, RELEASED), "all")
    assert item.diff == "import os\n- import pe\n+ import qe"
    assert (item.task_id, item.repository, item.message) == ("d49d", "some/project", "Use qe .")
    assert item.time == 1311857217  # date -d 2011-07-28T12:46:57Z +%s
    assert diffs.tagged(item.diff) == "keep import os\ndel import pe\nadd import qe"
    assert diffs.cut(item.diff, 4) == "import os\n- import"  # words and signs: import, os, -, import
    assert diffs.cut(item.diff, 100) == item.diff


def test_splits_are_by_repository_and_time(tmp_path):
    repositories = {"a": 10, "b": 10, "c": 10, "d": 2}
    rows = [
        {"message": "m", "repo": name, "date": f"20{10 + n}-01-01", "diff": f"+ {name} {n}"}
        for n in reversed(range(10))
        for name, number in repositories.items()
        if n < number
    ]
    path = written(tmp_path, *rows)
    splits = {split: load_items(path, split) for split in ("train", "validation", "test")}
    assert sum(map(len, splits.values())) == 32
    names = {split: {item.repository for item in items} for split, items in splits.items()}
    assert not names["test"] & (names["train"] | names["validation"])
    assert len(splits["test"]) >= 0.2 * 32 and splits["train"] and splits["validation"]
    latest = max(item.time for item in splits["train"])
    assert all(item.time >= latest for item in splits["validation"])
    with_more = written(tmp_path, *rows, {**rows[0], "diff": "+ more", "date": "2009-01-01"})
    assert {i.task_id for i in splits["test"]} <= {i.task_id for i in load_items(with_more, "test")}


def test_commits_of_one_repository_cannot_be_divided(tmp_path):
    path = written(tmp_path, *(RELEASED | {"sha": str(n), "diff": f"+ {n}"} for n in range(4)))
    with pytest.raises(UserError, match="all commits are of the repository 'some/project'"):
        load_items(path, "test")
    assert len(load_items(path, "all")) == 4


def test_a_diff_that_occurs_twice_is_left_out(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        items = load_items(written(tmp_path, RELEASED, RELEASED | {"sha": "2"}), "all")
    assert len(items) == 1 and "left out 1 commits whose diff occurs twice" in caplog.text


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (RELEASED | {"diff": " <nl> "}, "line 2: the diff is empty"),
        (RELEASED | {"diff": "mmm a <nl> ppp b <nl>"}, "line 2: the diff is empty"),
        ({"msg": "m", "repo": "r", "time": 1}, "line 2: no field 'diff', and no 'before' and 'after'"),
        ({"repo": "r", "time": 1, "diff": "+ x"}, "line 2: no field 'message' or 'msg'"),
        (RELEASED | {"msg": " \n"}, "line 2: field 'message' is "),
        ({"msg": "m", "time": 1, "diff": "+ x"}, "line 2: no field 'repository' or 'repo'"),
        (
            RELEASED | {"time": "yesterday"},
            "line 2: field 'time' is 'yesterday', expected a number or a date",
        ),
        (RELEASED | {"time": "nan"}, "line 2: field 'time' is 'nan'"),
        (TESTED | {"after": BEFORE}, "line 2: the diff is empty"),
        ({k: v for k, v in TESTED.items() if k != "test"}, "needs 'test' too: a program without tests"),
        (TESTED | {"test": " "}, "field 'test' is ' ', expected text"),
        (TESTED | {"entry_point": "f g"}, "line 2: field 'entry_point' is 'f g', expected the name of a function"),
        (RELEASED | {"diff": None}, "line 2: no field 'diff', and no 'before' and 'after'"),
        (RELEASED | {"diff": ["+ y"]}, "line 2: field 'diff' is ['+ y'], expected text"),
        (RELEASED | {"diff": "+ y", "diff_id": 5, "prelude": 5}, "line 2: field 'prelude' is 5, expected text"),
        (RELEASED | {"diff": "+ y", "sha": ["a"]}, "line 2: field 'sha' is ['a'], expected text or a whole number"),
        (RELEASED | {"diff": "+ y"}, "line 2: the name 'd49d' was already used in line 1"),
    ],
)
def test_bad_rows_are_refused_with_their_lines(tmp_path, row, said):
    path = written(tmp_path, RELEASED, row)
    with pytest.raises(UserError, match="1 bad row") as error:
        load_items(path, "all")
    assert said in str(error.value)
    assert len(load_items(path, "all", rules=RowRules(drop=True))) == 1


def test_half_surrogates_are_read(tmp_path):
    """JSON allows them in any text, UTF-8 does not."""
    names = ("\ud800", "b\udfff", "c")
    path = written(tmp_path, *({"msg": "a", "repo": x, "date": 1, "diff": f"+{x}", "sha": x} for x in names))
    splits = {split: {item.task_id for item in load_items(path, split)} for split in ("train", "validation", "test")}
    assert set().union(*splits.values()) == set(names) and splits["test"]


def test_fields_that_are_null_are_not_given(tmp_path):
    """As a data set in columns writes what a row does not have."""
    row = {name: value for name, value in RELEASED.items() if name != "diff_id"}
    nulls = dict.fromkeys(("task_id", "sha", "message", "before", "after", "test", "entry_point", "prelude"))
    (item,) = load_items(written(tmp_path, row | nulls), "all")
    (same,) = load_items(written(tmp_path, row), "all")
    assert item == dataclasses.replace(same, task_id="line 1") and item.prelude == ""


def test_a_commit_has_to_mend_a_test(tmp_path):
    idle = TESTED | {
        "test": "def check(candidate):\n    assert candidate(0) > 0\n",
        "after": AFTER + "\n\nx = 1\n",
    }
    path = written(tmp_path, TESTED, idle)
    with Executor(workers=1) as executor:
        with pytest.raises(
            UserError, match="line 2: the commit mends no test: 'after' passes 1 of 1 and 'before' 1"
        ):
            load_items(path, "all", executor)
        (item,) = load_items(path, "all", executor, RowRules(drop=True))
    assert (item.passed_before, item.passed_after) == (1, 2)


def test_sources_that_are_none(tmp_path):
    for source, said in {
        "starter": "allowed for commits: mutants, six",
        str(tmp_path / "x.jsonl"): "there is no such file of commits",
        "mutants[900:]": "holds no commits",
        f"mutants:{tmp_path}": "no executor is there",
    }.items():
        with pytest.raises(UserError, match=said):
            load_items(source, "train")
    with pytest.raises(UserError, match="six commits are too few to divide"):
        load_items("six", "train")
