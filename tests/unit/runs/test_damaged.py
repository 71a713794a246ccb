"""jaxmarl_llm/runs/damaged.py and damaged JSON files: what a run goes on from, and what is named."""

import json
import shutil

import game_runs
import jax
import numpy as np
import pytest

from experiments import train
from jaxmarl_llm import checkpoint
from jaxmarl_llm.runs import summaries
from jaxmarl_llm.runs.run import Run
from jaxmarl_llm.utils.errors import UserError

FIELDS = {"train.steps": 9, "log.report": False}


def config(**fields):
    return game_runs.config_of(**FIELDS | fields)


@pytest.fixture(scope="module", params=["magrpo", "iac"])
def saved(request, tmp_path_factory):
    """A run with checkpoints after four and eight iterations, with and without models of the system's own."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    own = {"train.system": request.param}
    with Run(config(**own), folder) as run:
        run.save(4)
        run.save(8)
        run.learner.save_best(8, {"validation_return": 3.0})
        run.summary |= {"before": {"return": 5.0}, "best": {"step": 8, "validation_return": 3.0}}
        summaries.write_summary(run)
    return folder, own


@pytest.fixture
def copy(saved, tmp_path):
    folder, own = saved
    return shutil.copytree(folder, tmp_path / "run"), own


def cut_off(place, shortest=0):
    for path in place.rglob("*"):
        if path.is_file() and path.stat().st_size > shortest:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def resumed_at(folder, own):
    with Run(config(**own), folder) as run:
        return run.schedule.start, jax.device_get(run.learner.trainables())


def no_metadata(place):
    (place / "meta" / "metadata").write_text("")


def last_agent(place):
    """Only what is read last is damaged: arrays of the agents before it have been donated by then."""
    shutil.rmtree(place / "optimizer_second")


def emptied(place):
    shutil.rmtree(place)
    place.mkdir()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [cut_off, no_metadata, last_agent, emptied])
def test_a_damaged_last_step_is_put_aside(copy, saved, damage, caplog, tmp_path):
    folder, own = copy
    damage(folder / "checkpoints" / "8")
    start, trainables = resumed_at(folder, own)
    assert start == 4
    assert "checkpoints/8 cannot be read" in caplog.text and "the run goes on from step 4" in caplog.text
    assert (folder / "damaged" / "checkpoints_8").is_dir()
    assert checkpoint.saved_steps(folder / "checkpoints") == [4]
    whole = shutil.copytree(saved[0], tmp_path / "whole")
    shutil.rmtree(whole / "checkpoints" / "8")
    for one, two in zip(*(jax.tree.leaves(tree) for tree in (trainables, resumed_at(whole, own)[1])), strict=True):
        np.testing.assert_array_equal(one, two)


def test_an_empty_folder_behind_the_last_step(copy, caplog):
    folder, own = copy
    (folder / "checkpoints" / "9").mkdir()
    assert resumed_at(folder, own)[0] == 8
    assert "checkpoints_9" in caplog.text


def test_damaged_models_of_the_system(copy, caplog):
    folder, own = copy
    if not (folder / "system").is_dir():
        pytest.skip("this system has no models of its own")
    cut_off(folder / "system" / "8")
    assert resumed_at(folder, own)[0] == 4
    assert sorted(path.name for path in (folder / "damaged").iterdir()) == ["checkpoints_8", "system_8"]


def test_without_a_whole_step_nothing_begins_again(copy):
    folder, own = copy
    cut_off(folder / "checkpoints" / "4")
    cut_off(folder / "checkpoints" / "8")
    with pytest.raises(UserError, match="has no other checkpoint to go on from: .*checkpoints/4 cannot be read"):
        resumed_at(folder, own)
    assert checkpoint.saved_steps(folder / "checkpoints") == [4]


def test_a_checkpoint_of_another_structure_is_not_damaged(copy):
    """The values are whole: it stays where it is, and the error says what does not fit."""
    folder, own = copy
    with Run(config(**own), folder) as run:
        like = {"agent_first": {"another": np.zeros(3)}}
        with pytest.raises(UserError, match="checkpoints/8 cannot be read") as error:
            checkpoint._read(run.folder / "checkpoints", 8, like)
    assert not isinstance(error.value, checkpoint.DamagedError)


def test_a_damaged_best_state_is_forgotten(copy, caplog):
    folder, own = copy
    cut_off(folder / "checkpoints" / "best")
    with Run(config(**own), folder) as run:
        assert run.schedule.start == 8 and "best" not in run.summary
    assert "the run has no best state" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "{", '{"before": '])
def test_a_damaged_summary_is_made_again(copy, text, caplog):
    folder, own = copy
    (folder / "metrics.jsonl").write_text(
        json.dumps({"step": 0, "test/return": 7.0, "test/return_greedy": 8.0}) + "\n"
        + json.dumps({"step": 0, "seconds": 2.5}) + "\n" + json.dumps({"step": 1, "seconds": 1.5}) + "\n"
    )
    (folder / "summary.json").write_text(text)
    with Run(config(**own), folder) as run:
        assert run.summary["before"] == {"step": 0, "return": 7.0, "return_greedy": 8.0}
        assert run.summary["best"] == {"step": 8, "validation_return": 3.0}
        assert run.summary["seconds"] == 4.0
    assert "summary.json: " in caplog.text and "made again from metrics.jsonl" in caplog.text


@pytest.mark.parametrize("name, text, reason", [
    ("config.json", "", "is empty"), ("config.json", '{"seed": 0', "not JSON"), ("inputs.json", "", "is empty"),
    ("inputs.json", "[]", "holds a JSON list"), ("config.json", '{"format": 99}', "a newer version"),
    ("summary.json", '{"format": 99}', "a newer version"), ("metrics.jsonl", "{\n{}\n", "line 1: not JSON"),
])
def test_other_damaged_files_are_named(copy, name, text, reason):
    folder, own = copy
    (folder / name).write_text(text)
    with pytest.raises(UserError, match=f"{name}.*{reason}"):
        train.train(config(**own), folder)
