"""How many iterations a run does: a number of them, or as many as fit into some minutes."""

import json
import time

import pytest

from configs import coding
from jaxmarl_llm.runs import summaries
from jaxmarl_llm.runs.budgets import Spending
from jaxmarl_llm.runs.run import Run
from jaxmarl_llm.utils import files


def iterations(monkeypatch, tmp_path, max_minutes, earlier_seconds=0.0, minutes_each=2.0):
    """Steps that a run of 5 does when each takes ``minutes_each``, some seconds having been spent before."""
    config = coding.get_config("smoke")
    config.train.steps, config.train.max_minutes = 5, max_minutes
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    run, done = Run(config, tmp_path), []
    run.spending = Spending(config, ())
    run.summary = {"seconds": earlier_seconds, "resumed": now[0]}
    for step in run.steps_left():
        assert run.schedule.done == step
        now[0] += 60 * minutes_each
        done.append(step)
    assert run.schedule.done == len(done)
    return done


@pytest.mark.parametrize("max_minutes, earlier_seconds, wanted", [
    (0.0, 0.0, [0, 1, 2, 3, 4]),  # no limit
    (100.0, 0.0, [0, 1, 2, 3, 4]),
    (5.0, 0.0, [0, 1, 2]),  # the third begins after 4 minutes
    (4.0, 0.0, [0, 1]),
    (5.0, 100.0, [0, 1]),  # 1:40, 3:40, 5:40
    (5.0, 300.0, []),
])  # fmt: skip
def test_no_iteration_begins_after_the_limit(monkeypatch, tmp_path, max_minutes, earlier_seconds, wanted):
    assert iterations(monkeypatch, tmp_path, max_minutes, earlier_seconds) == wanted


@pytest.mark.parametrize(
    "steps, max_minutes, over", [(3, 0.0, True), (4, 0.0, False), (4, 1.0, True), (4, 9.0, False)]
)
def test_a_run_that_ended_by_the_clock_is_finished(tmp_path, steps, max_minutes, over):
    config = coding.get_config("smoke")
    config.train.steps, config.train.max_minutes = steps, max_minutes
    numbers = {"return": 1.0, "return_low": 0.0, "return_high": 2.0, "return_greedy": 1.0}
    summary = {"after": {"step": 3, **numbers}, "seconds": 61.0}
    files.atomic_write_text(tmp_path / "config.json", json.dumps(config.to_dict()))
    files.atomic_write_text(tmp_path / "summary.json", json.dumps(summary))
    assert summaries.finished(config, tmp_path) == (summary if over else {})
