"""report/runs.py and grouping.py: what is read, what is said of a bad run folder, what makes a curve."""

import pytest
import report_runs
from report_runs import config, rows, write_evaluation, write_run

from jaxmarl_llm.analysis.report import runs


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    return report_runs.two_seeds(tmp_path_factory.mktemp("seeds"))


def test_a_run_is_read_as_it_was_written(tmp_path):
    run = runs.read_run(write_run(tmp_path / "x"))
    assert (run.name, run.seed, run.agents, run.iterations) == ("x", 0, ("poet", "critic"), 3)
    assert run.rows == rows() and run.config == config()
    assert run.summary["after"]["return"] == 60.0
    (tmp_path / "x" / "summary.json").unlink()
    assert runs.read_run(tmp_path / "x").summary == {}


@pytest.mark.parametrize("name, text, complaint", [
    ("config.json", None, "x has no config.json"),
    ("config.json", "{", r"config\.json: not JSON"),
    ("config.json", "[1]", r"config\.json: holds a JSON list, expected a dict"),
    ("config.json", "{}", r"run folder .*x: its config\.json has no 'seed'"),
    ("metrics.jsonl", None, r"run folder .*x has no metrics\.jsonl"),
    ("metrics.jsonl", "", r"run folder .*x: its metrics\.jsonl holds no rows yet"),
    ("metrics.jsonl", "{]\n", r"metrics\.jsonl, line 1: not JSON"),
    ("metrics.jsonl", '{"step": 4, "train/return": "high"}\n', "step 4: train/return is 'high'"),
    ("summary.json", "no", r"summary\.json: not JSON"),
])  # fmt: skip
def test_what_is_wrong_with_a_run_folder_is_named(tmp_path, name, text, complaint):
    folder = write_run(tmp_path / "x")
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)
    with pytest.raises(ValueError, match=complaint):
        runs.read_runs([folder])


def test_no_folder_and_a_folder_given_twice(tmp_path):
    with pytest.raises(ValueError, match="run folder .*nowhere does not exist"):
        runs.read_runs([tmp_path / "nowhere"])
    folder = write_run(tmp_path / "x")
    with pytest.raises(ValueError, match="is given twice"):
        runs.read_runs([folder, tmp_path / "y" / ".." / "x"])


def test_names_tell_folders_of_the_same_name_apart(tmp_path):
    paths = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "c"]
    assert runs.short_names(paths) == ["a/run", "b/run", "c"]  # from where they part
    assert runs.short_names(paths, parts=2)[:2] == ["a/run", "b/run"]


def test_verdict_counts_become_shares_of_their_row():
    row = {"step": 0, "eval/verdict/pass": 3, "eval/verdict/fail": 1, "eval/return": 7.0}
    names = [*row, "eval/verdict/error", "executor/verdict/pass"]
    # 3 of 4 and 1 of 4; an error that another row has is 0 here, the executor's verdicts are not spoken of
    shares = {"eval/verdict/pass": 75.0, "eval/verdict/fail": 25.0, "eval/verdict/error": 0.0}
    assert runs.verdict_shares([row], names) == [{"step": 0, "eval/return": 7.0} | shares]


def test_an_evaluation_is_read_with_its_answers(tmp_path):
    path = write_evaluation(tmp_path / "evaluation.json", 3, report_runs.actions(3))
    (actual,) = runs.read_evaluations([path])
    assert actual.report["step"] == 3 and actual.actions["greedy"] == report_runs.actions(3)
    transcript = tmp_path / "evaluation" / "greedy" / "transcripts" / "step_00003.jsonl"
    transcript.write_text('{"step": 3}\n')
    with pytest.raises(ValueError, match="greedy.*step_00003.jsonl, line 1: cannot be read .KeyError"):
        runs.read_evaluations([path])
    transcript.unlink()
    with pytest.raises(ValueError, match="no transcript of step 3"):
        runs.read_evaluations([path])
    path.write_text('{"step": 3}')
    with pytest.raises(ValueError, match="evaluation.json is no file of experiments.evaluate"):
        runs.read_evaluations([path])
    with pytest.raises(ValueError, match="has no other.json"):
        runs.read_evaluations([tmp_path / "other.json"])


def test_runs_that_differ_in_the_seed_are_a_group(seeds, tmp_path):
    other = write_run(tmp_path / "c", config(seed=1, train__lr=0.5))
    actual = report_runs.groups(*seeds, other)
    assert [[run.name for run in group.runs] for group in actual] == [["a", "b"], ["c"]]
    assert [group.label for group in actual] == ["train.lr=0.1", "train.lr=0.5"]
    assert [group.label for group in report_runs.groups(*seeds)] == ["all runs"]


def test_fields_that_leave_training_as_it_is_do_not_part_runs(seeds, tmp_path):
    more = write_run(tmp_path / "c", config(seed=2, eval__samples=5, executor__workers=3))
    (group,) = report_runs.groups(*seeds, more)
    assert group.differences() == {"eval.samples": [2, 2, 5], "executor.workers": [0, 0, 3]}


def test_the_same_seed_twice_is_refused(seeds, tmp_path):
    with pytest.raises(ValueError, match="a and .*c have the same config and the same seed 0"):
        report_runs.groups(*seeds, write_run(tmp_path / "c", config(seed=0)))


def test_groups_that_differ_in_much_are_called_by_their_runs(seeds, tmp_path):
    changes = {"model": "m", "train__lr": 1, "train__steps": 9, "task__source": "songs"}
    actual = report_runs.groups(*seeds, write_run(tmp_path / "c", config(**changes)))
    assert [group.label for group in actual] == ["a and 1 more", "c"]
