"""Dialogues train as configs/reasoning.py:guess says: stages, a run that is stopped in each, and evaluations."""

import json

import numpy as np
import pytest
import smoke_runs

from configs import reasoning
from experiments import train
from jaxmarl_llm import transcripts
from jaxmarl_llm.config import validate
from jaxmarl_llm.tasks.reasoning import guess

SMALL = {
    "train.prompts": 3, "train.prompts_per_microbatch": 3, "train.group": 8, "preference.collect": 2,
    "sweet.critic_steps": 2, "sweet.candidates": 2, "preference.model_updates": 2, "preference.batch": 6,
    "preference.pairs_per_microbatch": 3, "train.steps": 6, "save.every": 1, "eval.samples": 2, "log.report": False,
    "log.transcripts_every": 1, "task.source": "guess", "warm_up.steps": 0,
    "sft.source": "reference",
}  # fmt: skip


def config(**fields):
    made = reasoning.get_config("guess")
    made.update_from_flattened_dict(SMALL | {name.replace("__", "."): value for name, value in fields.items()})
    validate(made)
    return made


@pytest.mark.slow
def test_a_run_is_resumed_in_every_stage_and_learns_the_same(tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train.train(config(), whole)
    for steps in (1, 3, 5, 6):  # in the first stage, in the second one, in the third one
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("jaxmarl_llm.runs.iterations.Schedule.steps_left", _until(steps))
            train.train(config(), stopped)
    expected, actual = (smoke_runs.rows(folder) for folder in (whole, stopped))
    expected, actual = ([row for row in rows if "spent/tokens" in row] for rows in (expected, actual))
    by_step = {row["step"]: row for row in actual}
    for row in expected:
        same = {name: by_step[row["step"]][name] for name in row if name in by_step[row["step"]]}
        assert same.keys() >= {name for name in row if "/" in name and not name.startswith(("eval", "test"))}
        for name, value in same.items():
            assert value == pytest.approx(row[name], rel=1e-5, abs=1e-7, nan_ok=True), (row["step"], name)
    for folder in ("dialogues", "pairs"):
        assert smoke_runs.files(whole / "system" / folder) == smoke_runs.files(stopped / "system" / folder)
    assert (whole / "system/reference.json").read_bytes() == (stopped / "system/reference.json").read_bytes()
    stages = [{name.partition("/")[0] for name in row} & {"sweet", "actor"} for row in expected]
    assert stages == [{"actor"}] * 2 + [{"sweet"}] * 2 + [{"actor"}] * 2


def _until(steps):
    def steps_left(self, over, seconds):
        while self.done < steps:
            yield self.done
            self.done += 1

    return steps_left


@pytest.mark.slow
def test_dialogues_of_policy_gradients_are_shown_and_evaluated(tmp_path):
    fields = {"train__system": "magrpo", "train__backup": "last", "train__steps": 2, "preference__selection": "gap"}
    train.train(config(**fields, preference__nll=0.0), tmp_path)
    actions = transcripts.read(tmp_path, 1)
    firsts = [action for action in actions if action.turn == 0]
    assert len(firsts) == 3 * 8 and {*actions[0].agents} == {"actor"}
    for action in actions:
        assert action.verdict == "judged" and len(action.heard) == min(action.turn, 1)
        for agent, record in action.heard:
            assert agent == "partner" and record.completion in (*sum(guess.VALUES.values(), ()), "nothing")
        assert "The pair is" not in action.agents["actor"].prompt
    assert any(action.turn for action in actions) and np.ptp([a.agents["actor"].advantage for a in firsts]) > 0
    rows = smoke_runs.rows(tmp_path)
    assert any("actor/loss" in row for row in rows) and not any("partner/loss" in row for row in rows)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert 0 <= summary["after"]["return"] <= 100 and summary["after"]["tokens/answer"] > 0
