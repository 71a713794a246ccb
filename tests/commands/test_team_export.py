"""experiments.export --team: one folder of a whole team, which evaluate and crossplay play again."""

import json
import shutil

import jax
import numpy as np
import pytest
import smoke_runs
from test_export import make_run

from experiments import crossplay, export
from jaxmarl_llm import saved_agents
from jaxmarl_llm.factory import evaluations, teams
from jaxmarl_llm.runs import agent_export, run_folder


@pytest.fixture(scope="module")
def exported(learning_run, tmp_path_factory):
    """The team of the learning run, from the command line."""
    out = tmp_path_factory.mktemp("exported") / "team"
    command = smoke_runs.command("export", f"--workdir={learning_run.folder}", "--team", f"--out={out}")
    done = smoke_runs.run(command, learning_run.cache)
    assert done.returncode == 0, done.stderr
    assert f"python -m experiments.evaluate --team={out}" in done.stdout
    return out


def scores(folder):
    by_mode, report = evaluations.evaluate_run(run_folder.load_run(folder), folder)
    return {mode: report[mode]["scores"] for mode in by_mode}, report


def test_the_team_earns_what_it_earned_in_its_run(learning_run, exported, tmp_path):
    in_run, _ = scores(learning_run.folder)
    moved = shutil.copytree(exported, tmp_path / "elsewhere")
    again, report = scores(moved)
    assert again == in_run
    assert report["state"] == "exported" and report["step"] > 0
    untrained = evaluations.evaluate_run(run_folder.load_run(moved))[1]
    assert untrained["sampled"]["scores"] != again["sampled"], "the run has learned something"


def test_what_the_folder_holds(learning_run, exported):
    team = json.loads((exported / "team.json").read_text())
    assert team["format"] == 1 and list(team["agents"]) == ["aux", "main"]
    main = team["agents"]["main"]
    assert (main["folder"], main["form"], main["mode"]) == ("main", "adapter", "adapters")
    # The random base exists nowhere else, so it is in the folder.
    assert main["base"] == str(exported / "base" / "random-tiny")
    settings = json.loads((exported / "main" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == main["base"]
    assert [message["role"] for message in team["prompts"]["main"]][:2] == ["system", "user"]
    card = (exported / "README.md").read_text()
    assert card.startswith(f"---\nbase_model:\n- {main['base']}\nlibrary_name: peft\n---\n# A team of 2: aux, main")
    assert "| main | main | adapter |" in card and "| state | return | pass@1 |" in card
    assert "## What each agent reads" in card
    summary = json.loads((learning_run.folder / "summary.json").read_text())
    assert f"{summary['best']['step']} iterations of `train.system=magrpo`" in card


def test_evaluate_plays_it(learning_run, exported, tmp_path):
    command = smoke_runs.command("evaluate", f"--team={exported}", f"--out={tmp_path / 'evaluation.json'}")
    done = smoke_runs.run(command, learning_run.cache)
    assert done.returncode == 0, done.stderr
    assert f"{exported} after" in done.stdout and "iterations, exported, on 2 test problems" in done.stdout
    in_run, _ = scores(learning_run.folder)
    written = json.loads((tmp_path / "evaluation.json").read_text())
    assert {mode: written[mode]["scores"] for mode in in_run} == in_run


def test_crossplay_exchanges_its_agents_for_those_of_a_run(learning_run, exported):
    result = crossplay.play([str(learning_run.folder), str(exported)], tell=lambda line: None)
    for mode, (table, *_) in result.tables.items():
        assert len({cell.mean for row in table.means_RR for cell in row}) == 1, f"{mode}: all four are one team"


@pytest.mark.parametrize("mode", ["adapters", "full"])
def test_parameters_come_back_bit_for_bit(tmp_path, mode):
    run, team, states = make_run(tmp_path, mode)
    assert export.export_team(run, tmp_path / "team", 3) == 3
    config = run_folder.load_run(tmp_path / "team")
    read, meta = saved_agents.restore_team(tmp_path / "team", "best", teams.build_team(config))
    assert meta["step"] == 3
    for member, state in zip(read.members, states["latest"].values(), strict=True):
        jax.tree.map(np.testing.assert_array_equal, member.trainable, state.trainable)
    assert (tmp_path / "team" / "main" / "config.json").exists() == (mode == "full")


def test_a_team_over_a_quantised_base_is_played_over_one(tmp_path):
    run, team, states = make_run(tmp_path, "adapters", quantize="int8")
    export.export_team(run, tmp_path / "team", 3)
    config = run_folder.load_run(tmp_path / "team")
    assert config.model_options.quantize == "int8"
    read, _ = saved_agents.restore_team(tmp_path / "team", "best", teams.build_team(config))
    jax.tree.map(np.testing.assert_array_equal, read.members[0].trainable, states["latest"][0].trainable)
    jax.tree.map(np.testing.assert_array_equal, read.members[0].base, team.members[0].base)


def test_some_agents_of_an_exported_team(tmp_path):
    run, team, states = make_run(tmp_path, "adapters")
    export.export_team(run, tmp_path / "team", 3)
    plain = teams.build_team(run_folder.load_run(run))
    mixed, _ = saved_agents.restore_team(tmp_path / "team", "best", plain, ["aux"])
    learned, start = states["latest"][0].trainable, plain.members[0].trainable
    jax.tree.map(lambda x, y, z: np.testing.assert_array_equal(x, np.stack([y[0], z[1]])),
                 mixed.members[0].trainable, learned, start)  # fmt: skip


def test_a_base_that_lies_elsewhere_now(tmp_path, caplog):
    run, _, states = make_run(tmp_path, "adapters")
    export.export_team(run, tmp_path / "team", 3)
    (tmp_path / "model").rename(tmp_path / "moved")
    config = run_folder.load_run(tmp_path / "team")
    with pytest.raises(ValueError, match="^model: no model '.*/model'"):
        teams.build_team(config)
    config.model = str(tmp_path / "moved")
    read, _ = saved_agents.restore_team(tmp_path / "team", "best", teams.build_team(config))
    jax.tree.map(np.testing.assert_array_equal, read.members[0].trainable, states["latest"][0].trainable)
    assert f"agent 'aux' learned on '{tmp_path / 'model'}' and plays on '{tmp_path / 'moved'}'" in caplog.text


@pytest.mark.parametrize("change, message", [
    (dict(format=2), "team.json has format 2; this version reads formats up to 1"),
    (dict(format="1"), "team.json is not a team's: it has no format or no agents"),
    (dict(agents=None), "team.json is not a team's"),
    (dict(agents={}), "is of another team"),
])  # fmt: skip
def test_damaged_teams(tmp_path, change, message):
    run, team, _ = make_run(tmp_path, "adapters")
    export.export_team(run, tmp_path / "team", 3)
    path = tmp_path / "team" / "team.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=message):
        saved_agents.restore_team(tmp_path / "team", "best", team)


def test_other_adapters_than_the_config_says(tmp_path):
    run, team, _ = make_run(tmp_path, "adapters")
    export.export_team(run, tmp_path / "team", 3)
    path = tmp_path / "team" / "main" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | dict(lora_alpha=1.0)))
    with pytest.raises(ValueError, match=r"team/main: lora_alpha / r is 0.25; the config's .* is 8"):
        saved_agents.restore_team(tmp_path / "team", "best", team)


@pytest.mark.parametrize("flags, message", [
    (["--agent=main", "--team"], "give --agent=<name> or --team"),
    ([], "give --agent=<name> or --team"),
    (["--team", "--format=merged"], "--team writes every agent as it was trained and takes no --format"),
    (["--agent=main", "--base=x"], "--base is what adapters call their base model; use it with --format=adapter"),
    (["--agent=main", "--format=adapter"], "the base 'random-tiny' is drawn from the seed and exists nowhere else"),
])  # fmt: skip
def test_flags_that_contradict_each_other(learning_run, tmp_path, flags, message):
    command = smoke_runs.command("export", f"--workdir={learning_run.folder}", f"--out={tmp_path / 'out'}", *flags)
    done = smoke_runs.run(command, learning_run.cache)
    assert done.returncode == 1 and message in done.stderr
    assert not (tmp_path / "out").exists()


def test_what_other_programs_call_the_base(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    assert agent_export.base_name("base") == agent_export.base_name("./base") == str(tmp_path / "base")
    assert agent_export.base_name("smollm2-135m-instruct") == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert agent_export.base_name("Qwen/Qwen2.5-0.5B") == "Qwen/Qwen2.5-0.5B"
    assert agent_export.base_name("random-tiny") == ""
