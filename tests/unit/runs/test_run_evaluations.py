"""jaxmarl_llm/runs/run_evaluations.py: validation chooses the best state, the test is only reported."""

import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from ml_collections import config_dict
from scripted_team import CONFIG, CountingTask, tiny_team

from jaxmarl_llm import metrics
from jaxmarl_llm.factory import randomness
from jaxmarl_llm.rollout.engines import LOCAL
from jaxmarl_llm.runs import resumed_summary, run_evaluations
from jaxmarl_llm.runs.seat import ALONE

TASK = CountingTask((3, 5, 4))


class Learner:
    """Its state is a number of adapters' seed; remembers what is saved as the best."""

    def __init__(self):
        self.seed, self.saved = 0, {}

    def trainables(self):
        return [tiny_team(self.seed).members[0].trainable]

    def save_best(self, step, meta):
        self.saved = {"step": step, "seed": self.seed, "meta": meta}

    def best_trainables(self):
        return [tiny_team(self.saved["seed"]).members[0].trainable]


@pytest.fixture
def run(tmp_path):
    """What the evaluations read of a run, with a tiny team."""
    rows, config = [], config_dict.ConfigDict(CONFIG.to_dict())

    def key(stream, step):
        return jax.random.fold_in(randomness.stream(config, stream), step)

    return SimpleNamespace(
        config=config, folder=tmp_path, output_folder=tmp_path, team=tiny_team(), validation_task=TASK,
        test_task=TASK, validation_items=[0, 2], learner=Learner(), protocol_memory=lambda step=None: (),
        timer=metrics.PhaseTimer(), key=key, rows=rows,
        toolbox=None,
        services=SimpleNamespace(executor_metrics=lambda prefix: {}, isolation={}),
        log=lambda step, values: rows.append({"step": step, **values}),
        summary=resumed_summary.read_summary(tmp_path, 0), display=None, prompt_sizes=None, items_per_batch=3,
        engine=LOCAL, seat=ALONE, tell=print,
    )  # fmt: skip


def completions(actual):
    return [[speech.completion for speech in action.agents.values()] for action in actual.actions]


def test_every_evaluation_draws_afresh(run):
    """One state, one task, the same problems: only chance differs."""
    state, items = run_evaluations.current(run, 0), [0, 1, 2]
    later = run_evaluations.State(7, state.trainables, ())
    actual = [
        run_evaluations._measure(run, split, each, items)[0]
        for split, each in (("validation", state), ("validation", later), ("test", state), ("test", state))
    ]
    first, second, test, again = (completions(each.sampled) for each in actual)
    assert first != second and first != test and second != test
    assert test == again  # the same evaluation once more is the same
    greedy = [completions(each.greedy) for each in actual]
    assert greedy[0] == greedy[1] == greedy[2]


def test_validation_alone_chooses_the_best_state(run, monkeypatch):
    """Validation and test disagree: the state that is best on the test is not the one that is kept."""
    validation, test = {0: 90.0, 2: 50.0, 4: 40.0, 6: 45.0}, {0: 10.0, 2: 20.0, 4: 99.0, 6: 30.0}
    measured = []

    def measure(run, split, state, items, logged=True):
        measured.append((split, state.step, len(items), logged))
        value, prefix = (validation, "eval") if split == "validation" else (test, "test")
        numbers = {"return": value[state.step], "return_low": 0.0, "return_high": 100.0, "return_greedy": 1.0}
        return None, {f"{prefix}/{name}": number for name, number in numbers.items()}

    monkeypatch.setattr(run_evaluations, "_measure", measure)
    monkeypatch.setattr(run_evaluations, "_write", lambda *rest: None)
    for step in (0, 2, 4, 6):
        run.learner.seed = step
        line = run_evaluations.validate(run, step)
    assert line == "validation after 6 iterations: return 45.0 [0.0, 100.0] sampled, 1.0 greedy"
    assert run.learner.saved["step"] == 2  # the untrained team is no candidate, and 4 is best on the test
    run_evaluations.test(run, "after", "after training", run_evaluations.current(run, 6))
    run_evaluations.test_best(run)
    written = json.loads((run.folder / "summary.json").read_text())
    assert (written["after"]["step"], written["after"]["return"]) == (6, 30.0)
    assert written["best"] == {
        "step": 2, "validation_return": 50.0, "return": 20.0, "return_low": 0.0, "return_high": 100.0,
        "return_greedy": 1.0,
    }  # fmt: skip
    assert [each for each in measured if each[0] == "test"] == [("test", 6, 3, True), ("test", 2, 3, False)]
    assert {each[2] for each in measured if each[0] == "validation"} == {2}  # always the same problems


def test_the_last_state_is_tested_once_where_it_is_the_best(run):
    run.learner.seed = 1
    run_evaluations.validate(run, 4)
    run_evaluations.test(run, "after", "after training", run_evaluations.current(run, 4))
    run.learner.best_trainables = lambda: pytest.fail("nothing is to be restored")
    run_evaluations.test_best(run)
    best, after = run.summary["best"], run.summary["after"]
    assert best == after | {"validation_return": run.rows[0]["eval/return"]}
    assert after["return"] == run.rows[1]["test/return"] and run.rows[1]["step"] == 4
    held_out = json.loads((run.folder / "held_out.json").read_text())
    assert held_out["step"] == 4 and np.mean(held_out["return"]) == pytest.approx(after["return"])
    assert len(held_out["items"]) == 3
