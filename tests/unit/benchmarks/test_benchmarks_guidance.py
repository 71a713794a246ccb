"""Advice between turns: every command that the benchmark makes is a config, with an expert where one is asked."""

import json
import pathlib

import pytest

from benchmarks import guidance
from configs import compare
from experiments import compare as command
from jaxmarl_llm.config import validate

URL = "http://127.0.0.1:9/v1"


def config_of(argv):
    """The config of a command's flags, as its process reads it."""
    values = dict(word.removeprefix("--config.").split("=", 1) for word in argv if word.startswith("--config."))
    (file,) = [word for word in argv if word.startswith("--config=")]
    config = compare.get_config(file.partition(":")[2])
    with config.unlocked():
        config.update_from_flattened_dict({name: int(v) if v.isdigit() else v for name, v in values.items()})
    return config


@pytest.mark.parametrize("task", guidance.TASKS)
def test_those_who_ask_know_where_the_expert_is(task):
    more = guidance.addresses(task, URL)
    for name in compare.MEMBERS[task]:
        config = config_of(command.command(task, name, 1, pathlib.Path("w"), more.get(name, ())))
        validate(config)
        asks = config.train.turns == 2 and config.task.feedback == "expert_edits"
        assert (config.expert.base_url == URL) == asks == (name in more)
    members = compare.FEEDBACK[task]
    assert {name for name in members if name in more} == {name for name in members if "expert" in name}


def test_trained_teams_of_two_turns_are_evaluated_without_advice(tmp_path, monkeypatch):
    commands = []

    def run(results):
        ((out, argv),) = results.items()
        commands.append(argv[3:])
        items = [{"item": "a", "return": 20.0}, {"item": "b", "return": 40.0}]
        sampled = {"scores": {"return": {"mean": 30.0}}, "items": items}
        out.write_text(json.dumps({"sampled": sampled, "greedy": {"scores": {"return": {"mean": 50.0}}}}))

    monkeypatch.setattr(guidance, "run", run)
    # of seed 2 the team was trained elsewhere: nothing here can be evaluated
    results = {"one_turn": {"0": {}}, "expert_1": {"0": {}, "1": {}, "2": {}}, "warm_expert_1": {"0": {}}}
    trained = tmp_path / "expert_1" / "seed0"
    trained.mkdir(parents=True)
    (trained / "summary.json").write_text("{}")
    have = {"expert_1": {"1": {"after": "made elsewhere"}}}
    remaining = guidance.without_advice("convention", tmp_path, results, have)
    assert remaining == {
        "expert_1": {
            "0": {"after": {"scores": {"return": 30.0, "return_greedy": 50.0}, "problems": {"return": [20.0, 40.0]}}},
            "1": {"after": "made elsewhere"},
        }
    }
    assert "expert_1" not in guidance.without_advice("convention", tmp_path / "x", results, {}, make=False)
    (argv,) = commands
    config = config_of(argv)
    validate(config)
    assert (config.train.turns, config.task.feedback, config.expert.model) == (2, "plain", "")
    assert f"--workdir={tmp_path}/expert_1/seed0" in argv and "--step=latest" in argv


@pytest.mark.parametrize("task", guidance.TASKS)
def test_tasks_do_not_share_a_folder(task, monkeypatch):
    """Their members have the same names, and what is in a member's folder counts as finished."""

    def compare_all(name, workdir, *args, **options):
        assert (name, workdir) == (task, pathlib.Path("runs") / task)
        raise SystemExit(7)

    monkeypatch.setattr(guidance.command, "compare_all", compare_all)
    monkeypatch.setattr("sys.argv", ["guidance", f"--task={task}"])
    with pytest.raises(SystemExit, match="7"):
        guidance.main()
