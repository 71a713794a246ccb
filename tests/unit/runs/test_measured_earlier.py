"""What a run takes over from the one that it begins from: only what it would have measured itself."""

import json

import pytest

from configs import coding
from jaxmarl_llm import checkpoint
from jaxmarl_llm.config import agent_settings, validate
from jaxmarl_llm.runs import begin

STAGE = {"train.system": "sft", "train.steps": 40}
TURNS = {"train.turns": 2, "train.joint_mode": "aligned", "task.feedback": "expert_edits", "expert.model": "one"}


def config_of(**fields):
    config = coding.get_config()
    agent_settings.declare(config, fields)
    config.update_from_flattened_dict(fields)
    validate(config)
    return config


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """What a run of some fields takes over from one of others, whose agents it has under ``names``."""

    def of(first, second, names=None):
        source, names = tmp_path / "source", names or {"aux": "aux", "main": "main"}
        source.mkdir()
        (source / "config.json").write_text(config_of(**STAGE, **first).to_json_best_effort())
        summary = {"before": {"return": 11.0}, "after": {"return": 22.0, "step": 40}}
        (source / "summary.json").write_text(json.dumps(summary))
        monkeypatch.setattr(checkpoint, "read_meta", lambda *args: {"of_step": 40, "names": names})
        entries, _ = begin.earlier(config_of(**{"team.begin": str(source)}, **second), tmp_path / "run")
        return {name: entry["return"] for name, entry in entries.items()}

    return of


@pytest.mark.parametrize("fields", [
    {}, {"team.agent.main.lr": 1e-3}, {"team.agent.main.trainable": False}, {"model_options.date": "2026-01-02"},
])  # fmt: skip
def test_what_was_measured_alike_is_taken_over(taken, fields):
    assert taken({}, fields) == {"before": 11.0, "warm": 22.0}


@pytest.mark.parametrize(("fields", "both"), [
    ({"sampling.temperature": 0.1}, {}), ({"team.agent.main.temperature": 0.1}, {}),
    ({"team.agent.aux.max_new_tokens": 8}, {}), ({"model_options.chat": False}, {}), ({"policy.dtype": "bfloat16"}, {}),
    ({"executor.cpu_seconds": 0.05}, {}), ({"executor.allow_modules": ("numpy",)}, {}),
    ({"tools.of_task": True}, {"train.joint_mode": "aligned"}),
    ({"expert.model": "other"}, TURNS),
])  # fmt: skip
def test_what_was_measured_otherwise_is_not_taken_over(taken, fields, both):
    assert taken(both | fields, both) == {}


def test_an_agents_own_value_that_is_the_shared_one_changes_nothing(taken):
    shared = coding.get_config().sampling.temperature
    assert taken({"team.agent.main.temperature": shared}, {}) == {"before": 11.0, "warm": 22.0}


@pytest.mark.parametrize("names", [{"aux": "main", "main": "main"}, {"aux": "main", "main": "aux"}])
def test_agents_of_other_names_have_no_results_yet(taken, names):
    renamed = tuple(f"{agent}={name}" for agent, name in names.items() if agent != name)
    assert taken({}, {"team.begin_map": renamed}, names) == {"before": 11.0}
