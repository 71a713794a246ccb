"""The game through training, evaluation and sweeps: a run that learns, and what each trainer is given."""

import json

import pytest
import smoke_runs

from configs import game as game_config
from configs import sweep_game
from experiments import sweep, train
from jaxmarl_llm.config import sweeps, validate, workload
from jaxmarl_llm.factory import tasks, teams
from jaxmarl_llm.runs import training_loop
from jaxmarl_llm.tasks.toys import matrix_game

pytestmark = pytest.mark.usefixtures("programs_shared")


def config(fields):
    made = game_config.get_config()
    made.update_from_flattened_dict(fields)
    validate(made)
    return made


def test_a_run_learns_without_an_executor(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "Executor", None)  # calling it would raise
    summary = train.train(config({"train.steps": 15, "train.lr": 0.01, "eval.samples": 4}), tmp_path)
    before, after = summary["before"], summary["after"]
    assert after["return"] > before["return"] + 10
    assert after["return_low"] > before["return_high"]
    assert 80 < before["valid"] < after["valid"] <= 100
    assert summary["executor"] == {}
    held_out = json.loads((tmp_path / "held_out.json").read_text())
    names = [f"{kind}/{name}" for kind, names in matrix_game.NAMES.items() for name in names]
    assert held_out["items"] == names and sum(held_out["return"]) / 6 == pytest.approx(after["return"])


@pytest.mark.parametrize("fields, answers", [
    ({"train.turns": 2, "train.group": 4}, 6 * (4 + 16)),
    ({"task.centralised": True, "team.agents": ("team",), "sampling.max_new_tokens": 5}, 6 * 16),
])  # fmt: skip
def test_other_ways_to_play(tmp_path, monkeypatch, fields, answers):
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))
    c = config(fields | {"train.steps": 1, "eval.before": False, "log.transcripts_every": 1})
    train.train(c, tmp_path)
    (row,) = smoke_runs.rows(tmp_path)
    assert 0 < row["train/valid"] <= 100 and 0 < row["train/return"] < 100
    (path,) = (tmp_path / "transcripts").iterdir()
    assert len(path.read_text().splitlines()) == answers
    assert workload.joint_answers(c) == answers


def test_every_trainer_is_given_the_same_number_of_judged_answers():
    actual = sweeps.collect(sweep_game.sweep, game_config.get_config())
    assert len(actual) == 10 * len(sweep_game.TRAINERS)
    assert actual[0].setting == "MAGRPO"
    for member in actual:
        c = member.config
        judged = workload.joint_answers(c) + workload.counterfactual_answers(c)
        assert 90 <= judged <= 96, member.name
        assert c.train.lr == 3e-3
        assert c.critic.lr == (1e-2 if c.critic.form == "q" else 3e-3), member.name


def test_two_trainers_in_one_table(tmp_path):
    base = config({"train.steps": 1, "eval.before": False, "eval.samples": 4})

    def adding(add):
        for name, fields in list(sweep_game.TRAINERS.items())[:2]:
            for seed in (0, 1):
                add(fields | {"seed": seed}, name=name)

    actual = sweeps.collect(adding, base)
    for member in actual:
        train.train(member.config, tmp_path / member.folder)
    read = sweep.results(tmp_path, actual, {})
    sweep.show(tmp_path, read, "configs/sweep_game.py", {})
    settings = json.loads((tmp_path / "sweep.json").read_text())["settings"]
    assert [s["setting"] for s in settings] == ["MAGRPO", "MAREINFORCE"]
    assert settings[1]["against_baseline"]["return"]["problems"] == 6
    # The seed makes the model too: the same seed begins alike, another one does not.
    first = [smoke_runs.rows(tmp_path / member.folder)[0]["train/return"] for member in actual]
    assert first[0] == first[2] != first[1] == first[3]


def test_a_prompt_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="more than the context of 'game-tiny', 512 tokens"):
        teams.build_team(config({"sampling.max_prompt_tokens": 511}))
