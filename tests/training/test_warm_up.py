"""The warm-up before a training: made once, resumed where it stopped, shared by runs that name one folder."""

import json

import chex
import pytest
import smoke_runs
from game_runs import config_of

from configs import reasoning
from experiments import train
from jaxmarl_llm import checkpoint
from jaxmarl_llm.config import workload
from jaxmarl_llm.runs import final_table, warm_up
from jaxmarl_llm.runs.learner import Learner

pytestmark = pytest.mark.usefixtures("programs_shared")
WARM = {
    "warm_up.steps": 10, "warm_up.lr": 0.01, "sft.source": "game_runs:words", "sft.batch": 6, "train.steps": 2,
    "train.kl_coef": 0.1, "eval.every": 1,
}  # fmt: skip


def test_the_stage_differs_in_its_training_only():
    config = config_of(
        **(WARM | {"train.minibatches": 2, "train.prompts_per_microbatch": 3, "train.clip": 0.2})
    )
    stage = warm_up.stage(config)
    assert (stage.train.system, stage.train.steps, stage.train.lr) == ("sft", 10, 0.01)
    assert (stage.train.clip, stage.train.minibatches, stage.warm_up.steps) == (0.0, 1, 0)
    for section in ("task", "sampling", "team", "sft", "model", "seed"):
        assert stage[section] == config[section]


def test_a_stage_on_rollouts_draws_one_answer_to_a_prompt():
    stage = warm_up.stage(config_of(**(WARM | {"sft.prompts": "rollout", "train.turns": 2})))
    assert (stage.train.prompts, stage.train.group, workload.nodes(stage)) == (6, 1, [6, 6])
    assert workload.draws(stage, 0) and workload.completions(stage) == 24


def test_settings_of_a_system_are_not_those_of_the_stage():
    """A setting that only one system reads would be refused beside train.system='sft'."""
    config = clues_with_a_warm_up()
    config.update_from_flattened_dict({"maporl.value_model": True, "maporl.horizon": "current", "sft.batch": 9})
    stage = warm_up.stage(config)
    assert not stage.maporl.value_model and stage.maporl.horizon == "discounted" and stage.train.epochs == 1


def clues_with_a_warm_up():
    config = reasoning.get_config("clues")
    config.sft.source = "game_runs:words"
    config.warm_up.steps, config.train.epochs, config.train.clip = 10, 4, 0.2
    return config


def test_the_stage_may_have_another_protocol():
    """Agents that hear each other later begin from a warm-up in which they did not."""
    fields = WARM | {"train.protocol": "tree", "train.system": "c3"}
    assert warm_up.stage(config_of(**fields)).train.protocol == "tree"
    own = warm_up.stage(config_of(**(fields | {"warm_up.protocol": "simultaneous"})))
    assert own.train.protocol == "simultaneous"


def test_agents_that_are_fixed_later_are_warmed_up_too():
    config, first = config_of(**WARM), {"trainable": False, "lr": None, "temperature": 0.7, "top_k": None}
    with config.unlocked():
        config.team.agent = {"first": first, "second": {"trainable": False}}
    assert warm_up.stage(config).team.agent.to_dict() == {"first": {"temperature": 0.7}}
    assert config.team.agent.first.trainable is False and config.team.agent.second.trainable is False


def test_a_run_with_a_fixed_agent_shares_the_warm_up_of_one_without():
    config = config_of(**WARM)
    with config.unlocked():
        config.team.agent = {"second": {"trainable": False}}
    assert warm_up.stage(config).to_dict() == warm_up.stage(config_of(**WARM)).to_dict()


def test_a_warm_up_that_was_stopped_goes_on_and_the_run_begins_from_it(tmp_path, monkeypatch):
    once, parts, config = tmp_path / "once", tmp_path / "parts", config_of(**WARM)
    summary = train.train(config, once)
    assert summary["before"]["return"] < summary["warm"]["return"]
    learn, calls = Learner.update, []

    def failing(self, credit):
        calls.append(1)
        if len(calls) in (4, 12):  # of the warm-up, and of the main run
            raise RuntimeError("out of luck")
        return learn(self, credit)

    monkeypatch.setattr(Learner, "update", failing)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of luck"):
            train.train(config, parts)
    train.train(config, parts)
    assert len(calls) == 10 + 2 + 2
    for place in (".", "warm_up"):
        assert smoke_runs.rows(parts / place) == smoke_runs.rows(once / place)
        assert smoke_runs.summary(parts / place) == smoke_runs.summary(once / place)
    left, right = (smoke_runs.saved_state(folder, config) for folder in (parts, once))
    chex.assert_trees_all_equal(left, right)
    stage = json.loads((once / "warm_up" / "summary.json").read_text())
    assert summary["before"] == stage["before"]
    assert summary["warm"] == stage["after"] | {"step": 0}
    assert summary["warm_up_seconds"] == stage["seconds"]
    reports = {name: json.loads((once / f"test/{name}.json").read_text()) for name in final_table.TITLES}
    assert {name: report["state"] for name, report in reports.items()} == {name: name for name in reports}
    answers = {name: final_table.first_answer(once, name) for name in final_table.TITLES}
    assert answers["before"] == final_table.first_answer(once / "warm_up", "before")
    assert answers["warm"] == final_table.first_answer(once / "warm_up", "after")
    assert len({str(answer) for answer in answers.values()}) > 1 and None not in answers.values()
    first, last = smoke_runs.rows(once, "test/")[0], smoke_runs.rows(once / "warm_up", "test/")[-1]
    assert first["step"] == 0 and first["test/return"] == last["test/return"] == summary["warm"]["return"]
    again = train.train(config, once)
    assert again["after"] == summary["after"] and len(calls) == 14  # nothing was done


def test_runs_share_a_warm_up(tmp_path, monkeypatch):
    shared = {"warm_up.folder": str(tmp_path / "shared" / "seed{seed}")}
    learn, systems = Learner.update, []

    def counted(self, credit):
        systems.append(self.config.train.system)
        return learn(self, credit)

    monkeypatch.setattr(Learner, "update", counted)
    for name, lr in (("one", 1e-2), ("two", 1e-3)):
        train.train(config_of(**(WARM | shared | {"train.lr": lr})), tmp_path / name)
        meta = checkpoint.read_meta(tmp_path / name / "begin", checkpoint.BEST)
        assert (meta["run"], meta["of_step"]) == (str(tmp_path / "shared" / "seed0"), 10)
        assert not (tmp_path / name / "warm_up").exists()
    assert systems == ["sft"] * 10 + ["magrpo"] * 4
    with pytest.raises(ValueError, match="another configuration: train.lr: saved 0.01, now 0.02"):
        train.train(config_of(**(WARM | shared | {"warm_up.lr": 0.02})), tmp_path / "three")
