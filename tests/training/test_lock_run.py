"""A training on the locks, in which agents learn what lessons are for."""

import smoke_runs

from configs import lock
from experiments import train
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import tasks
from jaxmarl_llm.runs import training_loop


def test_what_lessons_are_worth_rises(tmp_path, monkeypatch, programs_shared):
    """Of a round's lessons half are the follower's, right by chance, so the most that they are worth is
    (1 + 1/3) / 2 - 1/3 = 1/3: four chains see none, which are right by chance as well."""
    monkeypatch.setattr(tasks, "Executor", None)  # calling it would raise
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))
    config = lock.get_config()
    config.update_from_flattened_dict({"train.steps": 130, "eval.before": False})
    validate(config)
    train.train(config, tmp_path)
    worth = [row["lessons/effect"] for row in smoke_runs.rows(tmp_path)]
    assert sum(worth[:15]) / 15 < 0.15 < 0.22 < sum(worth[-15:]) / 15 < 0.45
