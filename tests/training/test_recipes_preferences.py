"""Teams that learn from pairs of joint answers train for real, and go on where they ended."""

import json

import chex
import numpy as np
import pytest
import smoke_runs
from method_runs import SMALL

from configs import systems as system_configs
from experiments import replay, rescore, train
from jaxmarl_llm import transcripts
from jaxmarl_llm.config import base_config, validate
from jaxmarl_llm.factory import systems
from jaxmarl_llm.runs import training_loop
from jaxmarl_llm.runs.learner import Learner

NAMES = ("madpo", "madpo_iter", "marlhf", "marlhf_iter")
run_for_real = pytest.mark.usefixtures("programs_shared", "no_evaluation")


@pytest.fixture
def no_evaluation(monkeypatch):
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))


def config_of(name, steps=3):
    config = system_configs.get_config(f"{name},smoke")
    fields = {"train.group": 3, "train.steps": steps, "preference.pairs": 2, "train.max_minutes": 0.0}
    config.update_from_flattened_dict(SMALL | fields)
    return config


def pairs(folder):
    """Rows of each iteration's file."""
    files = sorted((folder / "system" / "pairs").iterdir())
    return {int(f.stem): [json.loads(line) for line in f.read_text().splitlines()] for f in files}


@run_for_real
@pytest.mark.model  # for its tokenizer
@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_fails_amid_an_iteration_goes_on_as_if_it_had_not(tmp_path, monkeypatch, name):
    once, parts, config = tmp_path / "once", tmp_path / "parts", config_of(name)
    train.train(config, once)
    learn, calls = Learner.update, []

    def failing(self, credit):
        calls.append(credit.learn)
        if len(calls) == 2:  # pairs were found, and the reward model fitted: of the second iteration
            raise RuntimeError("out of luck")
        return learn(self, credit)

    monkeypatch.setattr(Learner, "update", failing)
    with pytest.raises(RuntimeError, match="out of luck"):
        train.train(config, parts)
    train.train(config, parts)
    assert len(calls) == 4  # the second again, and the third
    assert calls == [not name.endswith(("madpo", "marlhf"))] + [True] * 3
    assert smoke_runs.rows(parts) == smoke_runs.rows(once)
    for place in ("transcripts", "system/pairs"):
        assert smoke_runs.files(parts / place) == smoke_runs.files(once / place)
    left, right = (smoke_runs.saved_state(folder, config) for folder in (parts, once))
    assert int(left.step) == sum(calls[:1]) + 2
    chex.assert_trees_all_equal(left, right)
    check_run(name, once)
    before = smoke_runs.files(once / "system" / "pairs")
    actual = replay.replay(once, tell=lambda line: None)
    assert actual.same and (actual.step, actual.start) == ((0, 0) if name == "madpo" else (2, 2))
    assert smoke_runs.files(once / "system" / "pairs") == before


def check_run(name, folder):
    """What a run of a system leaves behind."""
    rows, actual = smoke_runs.rows(folder), pairs(folder)
    assert list(actual) == {"madpo": [0], "marlhf": [0]}.get(name, [0, 1, 2])
    # Two of at most three pairs of three answers to each of two problems; rewards are hardly ever equal.
    assert [len(lines) for lines in actual.values()] == [4] * len(actual)
    for line in (line for lines in actual.values() for line in lines):
        assert line["rewards"][0] > line["rewards"][1] and set(line["prompts"]) == {"aux", "main"}
    drawn = transcripts.steps(folder)
    assert list(drawn) == ([0] if name == "madpo" else [0, 1, 2])
    assert ["train/return" in row for row in rows] == [step in drawn for step in range(3)]
    # Lengths are those of what was drawn, whatever pairs are learned from.
    assert ["aux/completion_length" in row for row in rows] == [step in drawn for step in range(3)]
    for step in drawn:
        records = [action.agents["aux"] for action in transcripts.read(folder, step)]
        assert rows[step]["aux/completion_length"] == np.mean([one.completion_length for one in records])
    first = "preference/pairs" in rows[0] and "aux/loss" not in rows[0]
    assert first == (name in ("madpo", "marlhf"))
    assert all(abs(row["main/ratio0"] - 1) < 1e-4 for row in rows if "main/ratio0" in row)
    last = rows[-1]
    if "madpo" in name:
        assert last["madpo/loss"] > 0 and last["preference/gap"] > 0
        actions = transcripts.read(folder, 0)
        assert {record.advantage for action in actions for record in action.agents.values()} <= {None, 0.0}
    else:
        assert 0 <= last["reward_model/accuracy"] <= 1 and last["preference/pairs"] in (4, 12)
        assert ("reward_model/loss" in last) == (name == "marlhf_iter")
    actual = rescore.rescore(folder, reward="")
    assert actual.missing.startswith(f"train.system='{name}': its credit came of more than rewards")
    assert actual.changes == [] and len(actual.before) == len(actual.after) > 0


@pytest.mark.parametrize("fields, text", [
    ({"train.system": "madpo", "train.turns": 2},
     "train.turns=2: train.system='madpo' needs 1: a pair is of answers to the same prompts"),
    ({"train.system": "marlhf", "train.protocol": "pipeline"}, "needs 'simultaneous': a pair is of answers"),
    ({"train.system": "marlhf_iter", "mesh.data": 2}, "mesh.data=2: train.system='marlhf_iter' needs 1"),
    ({"train.system": "marlhf", "team.mode": "frozen"}, "team.mode='frozen' learns nothing"),
    ({"train.system": "madpo", "preference.replay": "current"},
     "preference.replay='current': train.system='madpo' learns from what it collected, allowed is 'all'"),
    ({"train.system": "marlhf", "train.steps": 10},
     "preference.collect=10: must be below train.steps=10, or nobody learns"),
    ({"train.system": "madpo_iter", "train.clip": 0.2},
     "train.clip=0.2: train.system='madpo_iter' allows 0.0 only"),
    ({"train.system": "madpo_iter", "train.overlap": True, "train.clip": 0.2},
     "train.overlap=True: train.system='madpo_iter' allows False only"),
    ({"train.system": "madpo", "train.minibatches": 2}, "train.minibatches=2: train.system='madpo' allows 1"),
    ({"train.system": "madpo", "train.aggregation": "token"}, "allows 'sequence' only"),
    ({"train.system": "madpo", "preference.batch": 3, "train.prompts_per_microbatch": 2},
     "train.prompts_per_microbatch=2: must divide the preference.batch=3 pairs of an update"),
])  # fmt: skip
def test_what_the_config_does_not_allow(fields, text):
    config = base_config()
    config.update_from_flattened_dict(fields)
    with pytest.raises(ValueError) as caught:
        validate(config)
    assert text in str(caught.value)


def test_what_the_config_allows():
    for fields in (
        {"train.system": "marlhf_iter", "train.overlap": True, "train.clip": 0.2, "train.minibatches": 2},
        {"train.system": "marlhf", "train.baseline": "leave_one_out", "train.joint_mode": "cross"},
        {"train.system": "madpo_iter", "sampling.dtype": "bfloat16", "train.joint_mode": "cross"},
        {"train.system": "madpo", "train.steps": 11},
    ):
        config = base_config()
        config.update_from_flattened_dict(fields)
        validate(config)


def test_every_one_is_built_of_the_config(monkeypatch):
    monkeypatch.setattr(systems, "build_reward_model", lambda config, team: "model")
    actual = {}
    for name in NAMES:
        config = system_configs.get_config(name)
        actual[name] = systems.build(config, None, lambda: [])
    assert [actual[name].collect for name in NAMES] == [10, 0, 10, 0]
    assert actual["madpo"].batch == 16 and actual["marlhf"].models == "model"
