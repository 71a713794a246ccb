"""The doctor of a team that learns from demonstrations, or begins with what another run learned."""

import json

import pytest
from game_runs import config_of, game_config

from jaxmarl_llm.analysis.doctor import examination, given
from jaxmarl_llm.config import agent_settings
from jaxmarl_llm.factory import tasks, teams

pytestmark = pytest.mark.usefixtures("programs_shared")


def checked(config):
    """The check of the demonstrations alone."""
    return given.demonstrations(config, tasks.build_task(config, None, "train"), teams.build_team(config))


def test_a_healthy_config_of_demonstrations_has_no_failure(tmp_path, capsys):
    config = game_config(**{"sampling.temperature": 0.7})
    config.team.begin = str(tmp_path / "nothing")
    actual = {result.name: result for result in examination.examine(config)}
    failed = {name: result.sentence for name, result in actual.items() if result.status == "fail"}
    assert list(failed) == ["begin"]
    assert failed["begin"] == f"team.begin='{tmp_path}/nothing': the folder holds no run, config.json is missing"
    assert actual["demonstrations"].sentence.startswith("by agent: first ")
    assert "temperature=0.7" in actual["temperature, truncation"].sentence
    assert actual["log-prob parity"].status == "skipped" and "learns given texts" in actual["log-prob parity"].sentence
    assert actual["zero-signal groups"].sentence == "train.system='sft' learns from demonstrations, not from groups"
    assert capsys.readouterr().out == ""  # it may print one JSON list


def test_demonstrations_that_cannot_be_read(tmp_path):
    config = game_config(**{"sft.source": str(tmp_path / "none.jsonl")})
    result = checked(config)
    assert result.status == "fail" and "none.jsonl: cannot be read (No such file or directory)" in result.sentence


def test_demonstrations_of_a_warm_up():
    config = config_of(**{"warm_up.steps": 2, "sft.source": "game_runs:words", "sft.batch": 6})
    counts = checked(game_config()).sentence
    assert checked(config) == ("demonstrations", "ok", counts)
    agent_settings.declare(config, ["team.agent.second.max_new_tokens"])
    config.team.agent.second.max_new_tokens = 1
    result = checked(config)
    assert result.status == "fail" and "team.agent.second.max_new_tokens, allows 1" in result.sentence


def test_an_agent_without_demonstrations(tmp_path):
    config = game_config(**{"sft.source": str(tmp_path / "rows.jsonl")})
    row = {"messages": [{"role": "user", "content": "?"}], "agent": "first", "text": "left"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    result = checked(config)
    assert result.status == "warn" and result.sentence.startswith("by agent: first 1, second 0, ")
    assert result.sentence.endswith("; second has none and learns nothing")
    config.team.agent.second = {"trainable": False}
    assert checked(config).status == "ok"
