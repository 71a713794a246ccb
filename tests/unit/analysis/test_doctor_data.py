"""The doctor's check of rows: the faults that a training names, all of them, and what goes on without them."""

import json

import pytest

from configs import coding
from jaxmarl_llm.analysis.doctor import data, examination
from jaxmarl_llm.executor import Executor
from jaxmarl_llm.executor.levels import ExecutorRefused
from jaxmarl_llm.factory import tasks

ROW = {"entry_point": "mean", "canonical_solution": "    return sum(xs) / len(xs)\n"}
# Other problems to those who compare the splits.
LOOP = "    total = {n} - {n}\n    for x in xs:\n        total += x\n    return total / len(xs)\n"
OTHER = {"entry_point": "mean", "canonical_solution": LOOP}
GOOD = "def check(candidate):\n    assert candidate([1, 3]) == 2\n"
WRONG = "def check(candidate):\n    assert candidate([1, 3]) == 3\n"
RAISES = "TABLE = {}['x']\n\n" + GOOD
NUMPY = "import numpy\n\n" + GOOD


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path / "cache"))


def written(path, tests, row):
    rows = []
    for n, test in enumerate(tests):
        number = n if row is OTHER else 0
        own = {"canonical_solution": row["canonical_solution"].format(n=n), "test": test}
        prompt = f'def mean(xs):\n    """Of {path.stem} {number}."""\n'
        rows.append({"task_id": f"{path.stem}/{n}", "prompt": prompt} | row | own)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def config(tmp_path, train, other=(GOOD,) * 8, **fields):
    c = coding.get_config("smoke")
    source = {"task.train_split": "all", "task.source": written(tmp_path / "train.jsonl", train, ROW)}
    source |= {"task.eval_source": written(tmp_path / "other.jsonl", other, OTHER)}
    source["task.test_source"] = source["task.eval_source"]
    c.update_from_flattened_dict(source | {name.replace("__", "."): value for name, value in fields.items()})
    return c


def of_training(c):
    """The lines about bad rows in the error of a training."""
    with tasks.build_executor(c) as executor, pytest.raises(ValueError) as refused:
        tasks.build_task(c, executor, "train")
    return str(refused.value).split("\n")[1:]


def test_it_prints_the_faults_that_a_training_names_and_goes_on(tmp_path):
    c = config(tmp_path, [GOOD, WRONG, NUMPY, RAISES, GOOD])
    (rows, splits, *_), neighbours = examination.examine_data(c)
    first, *lines = rows.sentence.split("\n")
    assert (rows.name, rows.status, first) == ("rows", "fail", f"{tmp_path}/train.jsonl: 3 bad row(s)")
    assert lines == of_training(c)
    assert [line.partition(": ")[0] for line in lines] == [f"  line {n} (train/{n - 1})" for n in (2, 3, 4)]
    assert "verdict fail" in lines[0] and "imports numpy" in lines[1] and "KeyError: 'x'" in lines[2]
    assert splits.sentence.startswith("2 of train, 1 of eval, 1 of test") and set(neighbours) == {"eval", "test"}


def test_each_file_is_named_once(tmp_path):
    c = config(tmp_path, [GOOD, RAISES], [GOOD] * 8 + [WRONG])
    rows = examination.examine_data(c)[0][0]
    assert [line for line in rows.sentence.split("\n") if line[0] != " "] == [
        f"{tmp_path}/train.jsonl: 1 bad row(s)", f"{tmp_path}/other.jsonl: 1 bad row(s)",
    ]  # fmt: skip


def test_rows_that_are_dropped_are_a_warning(tmp_path):
    c = config(tmp_path, [GOOD, WRONG], task__bad_rows="drop")
    rows, splits, *_ = examination.examine_data(c)[0]
    assert rows.status == "warn" and "line 2 (train/1): canonical_solution does not pass" in rows.sentence
    assert c.task.bad_rows == "drop" and splits.sentence.startswith("1 of train")


def test_rows_that_were_in_order_are_not_run_again(tmp_path, monkeypatch):
    c, ran, run = config(tmp_path, [GOOD, GOOD]), [], Executor.try_tests

    def counted(executor, programs):
        ran.append(len(programs))
        return run(executor, programs)

    monkeypatch.setattr(Executor, "try_tests", counted)
    expected = ("rows", "ok", "4 problems, checked by running their tests as a training does: no row is refused")
    for _ in range(2):
        assert examination.examine_data(c)[0][0] == expected
    assert sum(ran) == 10  # 2 and 8; those of the third split are known by then


def test_without_a_sandbox_rows_are_read(tmp_path, monkeypatch):
    def refuse(config):
        raise ExecutorRefused("min_level is 3")

    monkeypatch.setattr(tasks, "build_executor", refuse)
    rows = examination.examine_data(config(tmp_path, [GOOD, RAISES]))[0][0]
    assert rows.status == "skipped" and rows.sentence.startswith("4 problems are in order as far as")
    rows = examination.examine_data(config(tmp_path, [GOOD, NUMPY]))[0][0]
    assert rows.status == "fail" and "imports numpy" in rows.sentence


def test_data_that_cannot_be_used_at_all(tmp_path):
    for train, message in (([WRONG, NUMPY], "2 bad row"), ([], "no rows")):
        with pytest.raises(ValueError, match=message):
            examination.examine_data(config(tmp_path, train))


def test_problems_without_tests():
    assert data.rows([], 6, tests="none") == ("rows", "ok", "6 problems: no row is refused")
