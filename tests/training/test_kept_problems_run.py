"""task.drop_easier_than in real runs: measured once, of the team that the run begins with, resumed, and done again."""

import json

import pytest
import smoke_runs

from configs import reasoning
from experiments import replay, train
from jaxmarl_llm import transcripts
from jaxmarl_llm.config import UserError
from jaxmarl_llm.runs import kept_problems

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("programs_shared")]
SMALL = {
    "train.steps": 3, "train.group": 4, "train.lr": 1e-2, "save.every": 1, "eval.samples": 2, "eval.before": False,
    "eval.every": 0, "log.report": False, "log.transcripts_every": 1, "task.drop_easier_than": 0.4,
}  # fmt: skip


def config(**fields):
    made = reasoning.get_config("clues")
    made.update_from_flattened_dict(SMALL | fields)
    return made


def read(folder):
    return json.loads((folder / kept_problems.FILE).read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory, programs_shared):
    """A run that nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    train.train(config(), folder)
    return folder


def test_problems_that_are_left_out_are_not_trained_on(whole):
    held = read(whole)
    assert held["left_out"] == [name for name, share in held["solved"].items() if share > 0.4]
    drawn = {action.item for step in range(3) for action in transcripts.read(whole, step)}
    assert held["left_out"] and drawn and drawn <= set(held["solved"]) - set(held["left_out"])


def test_a_run_that_goes_on_has_its_file(whole, tmp_path):
    """Until the file is gone: the team has learned since."""
    train.train(config(**{"train.steps": 1}), tmp_path)
    file = tmp_path / kept_problems.FILE
    before = file.stat().st_mtime_ns
    train.train(config(**{"train.steps": 2}), tmp_path)
    file.rename(tmp_path / "aside")
    with pytest.raises(UserError, match="kept_problems.json is missing"):
        train.train(config(), tmp_path)
    (tmp_path / "aside").rename(file)
    train.train(config(), tmp_path)
    assert file.stat().st_mtime_ns == before and read(tmp_path) == read(whole)
    kind = "train/return"
    assert smoke_runs.rows(tmp_path, kind) == smoke_runs.rows(whole, kind)


def test_an_iteration_comes_out_again(whole, monkeypatch):
    """Of the problems in the run's file; the metrics of the first count what the partner cost in the measurement."""
    monkeypatch.setattr(kept_problems, "measured", lambda run: pytest.fail("measured again"))
    assert replay.replay(whole, 2).same
    first = {part.kind: part.first for part in replay.replay(whole, 0).parts if part.first is not None}
    assert list(first) == ["metrics"] and first["metrics"].where == "scripted:repeater/requests"


def test_several_seeds_are_measured_together(whole, tmp_path):
    """Their programs are made for all at once, which waits until each has opened its folder."""
    made = config(**{"train.steps": 1})
    made.seeds = (made.seed, made.seed + 1)
    train.train(made, str(tmp_path))
    assert read(tmp_path / f"seed{made.seed}") == read(whole)
    assert read(tmp_path / f"seed{made.seed + 1}") != read(whole)
