"""The training problems that `task.drop_easier_than` leaves: by hand, kept in the folder, and none left."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from jaxmarl_llm.config import UserError, base_config
from jaxmarl_llm.factory import evaluations
from jaxmarl_llm.runs import kept_problems
from jaxmarl_llm.runs.iterations import Schedule
from jaxmarl_llm.runs.run import Run

# Four answers to each of four problems: solved in 2, 3, 4 and 0 of 4; of the last one three were judged.
TOTALS = [[1, 0, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1], [0, float("nan"), 0, 0]]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of which only what decides about problems is there; `evaluations` counts them."""
    config = base_config()
    config.task.kind, config.task.drop_easier_than = "reasoning", 0.75
    items = tuple(SimpleNamespace(task_id=f"p{n}", grade=0) for n in range(4))
    made = object.__new__(Run)
    made.__dict__.update(
        config=config, folder=tmp_path, tell=lambda line: None, task=SimpleNamespace(items=items), evaluations=0,
        schedule=Schedule(config), team=None, learner=SimpleNamespace(trainables=list),
        prompt_sizes=None, items_per_batch=4, engine=None, toolbox=None,
        timer=lambda name: contextlib.nullcontext(), protocol_memory=tuple,
        seat=SimpleNamespace(display=lambda *a, **b: contextlib.nullcontext()),
    )  # fmt: skip

    def evaluate(config, team, trainables, task, ids, samples, key, **options):
        made.evaluations += 1
        assert list(ids) == [0, 1, 2, 3] and samples == config.eval.samples
        rows = tuple(tuple(SimpleNamespace(total=float(total)) for total in row) for row in TOTALS)
        return SimpleNamespace(sampled=SimpleNamespace(actions_BG=rows))

    monkeypatch.setattr(evaluations, "evaluate", evaluate)
    return made


def test_problems_that_are_solved_more_often_are_left_out(run):
    assert kept_problems.of_run(run) == [0, 1, 3]  # .5, .75 and 0; 1 is more than .75
    run.config.task.drop_easier_than = 0.1
    (run.folder / kept_problems.FILE).unlink()
    assert kept_problems.of_run(run) == [3]


def test_a_run_that_goes_on_has_the_same_problems(run):
    kept = kept_problems.of_run(run)
    run.schedule = Schedule(run.config, 2)
    assert kept_problems.of_run(run) == kept and run.evaluations == 1


def test_a_run_that_has_learned_is_not_measured_again(run):
    """Its team is no longer the one that it began with."""
    run.schedule = Schedule(run.config, 1)
    with pytest.raises(UserError, match=r"kept_problems.json is missing: .* task.drop_easier_than=0.75 has left out"):
        kept_problems.of_run(run)
    assert run.evaluations == 0


def test_other_problems_that_were_accepted_are_left(run):
    """p2 is left out by its name; p4 was not there when the team was measured."""
    kept_problems.of_run(run)
    run.task = SimpleNamespace(items=tuple(SimpleNamespace(task_id=f"p{n}") for n in (2, 4, 1)))
    assert kept_problems.of_run(run) == [1, 2] and run.evaluations == 1


def test_without_the_field_nothing_is_measured(run):
    run.config.task.drop_easier_than = 1.0
    assert kept_problems.of_run(run) == [0, 1, 2, 3] and run.evaluations == 0
    assert not list(run.folder.iterdir())


def test_draws_are_of_the_problems_that_are_left(run):
    run.config.train.prompts, run._kept = 2, [0, 1, 3]
    drawn = [i for step in range(6) for i in run.draw_ids(step)]
    assert set(drawn) == {0, 1, 3} and np.bincount(drawn).tolist() == [4, 4, 0, 4]
    assert set(run.draw_ids(0, 1)) <= {0, 1, 3}


def test_no_problem_is_left(run, monkeypatch):
    monkeypatch.setattr(kept_problems, "measured", lambda run: [1.0] * 4)
    with pytest.raises(UserError, match=r"task.drop_easier_than=0.75: the team solves each of the 4 .* none is left"):
        kept_problems.of_run(run)
