"""Folders that earlier versions wrote: they are evaluated, exported, reported, replayed and resumed."""

import json

import jax
import numpy as np
import pytest
import saved_runs

from configs import lessonl
from experiments import export, replay, train
from jaxmarl_llm import checkpoint, transcripts, weights
from jaxmarl_llm.analysis.report import page, sweep_ranking
from jaxmarl_llm.analysis.search import results, search
from jaxmarl_llm.config import saved
from jaxmarl_llm.factory import evaluations, inputs, teams
from jaxmarl_llm.rollout import journal
from jaxmarl_llm.runs import run_folder, summaries
from jaxmarl_llm.utils import files, formats

FORMATS = range(formats.VERSION + 1)


def test_there_is_a_run_of_every_format():
    assert [number for number in FORMATS if "coding" not in saved_runs.names(number)] == []


@pytest.fixture(scope="module", params=FORMATS)
def of_format(request, tmp_path_factory):
    """The number of a format, and a copy of the coding run of that format."""
    folder = tmp_path_factory.mktemp(f"format_{request.param}")
    return request.param, saved_runs.unpacked(request.param, "coding", folder)


@pytest.mark.model
@pytest.mark.usefixtures("programs_shared")
def test_a_run_of_an_earlier_version_is_used_and_goes_on(of_format, tmp_path, caplog):
    number, folder = of_format
    before = json.loads((folder / "summary.json").read_text())
    _, report = evaluations.evaluate_run(run_folder.load_run(folder), str(folder), samples=1)
    assert report["step"] == before["best"]["step"] and report["problems"] == 4
    assert ("no longer exist: agents read those of task.prompts='examples'" in caplog.text) == (number == 0)
    export.export(folder, "main", tmp_path / "model")
    assert weights.load(tmp_path / "model").tokenizer is not None
    written, *_ = page.write([folder], tmp_path / "page.html", evaluations=[folder / "evaluation.json"])
    assert "coding" in written.read_text()
    replayed = replay.replay(folder)
    assert replayed.step == 1 and {part.kind for part in replayed.parts} >= {"rewards", "texts", "advantages"}
    config = saved.as_config(saved.read(folder / "config.json"))
    config.train.steps = 3
    config.log.report = False
    assert train.train(config, folder)["after"]["step"] == 3
    assert summaries.read_json(folder / "summary.json")["before"]["return"] == before["before"]["return"]
    assert [row["step"] for row in transcripts_of(folder)] == [0, 1, 2]
    assert files.read_json(folder / "config.json")[formats.KEY] == formats.VERSION
    accepted = inputs.read(folder)["accepted"]
    assert [entry["step"] for entry in accepted] == ([2] if number == 0 else [])


def transcripts_of(folder):
    return [{"step": transcripts.read(folder, step)[0].step} for step in transcripts.steps(folder)]


@pytest.mark.model
@pytest.mark.parametrize("name", ["maac", "marlhf", "lessonl", "writing"])
def test_agents_of_format_0_are_restored(name, tmp_path):
    folder = saved_runs.unpacked(0, name, tmp_path)
    team = teams.build_team(run_folder.load_run(folder))
    untrained = [np.asarray(leaf) for member in team.members for leaf in jax.tree.leaves(member.trainable)]
    team, meta = checkpoint.restore_team(folder / "checkpoints", "latest", team)
    trained = [np.asarray(leaf) for member in team.members for leaf in jax.tree.leaves(member.trainable)]
    assert meta["step"] == 2 and set(meta["agents"]) == set(team.agents)
    assert any((one != two).any() for one, two in zip(untrained, trained, strict=True))
    for step in transcripts.steps(folder):
        assert all(set(action.agents) == set(team.agents) for action in transcripts.read(folder, step))


def test_a_search_of_format_0(tmp_path):
    folder = saved_runs.unpacked(0, "search", tmp_path)
    (result,) = results.read(folder / "search.json")
    assert (result.method, result.measure) == ("lessonl", "speed-up") and result.problems
    for path in sorted((folder / "search").rglob("*_turns.json")):
        assert journal.decode(json.loads(path.read_text())["found"])
    config = saved.as_config(saved.upgraded(files.read_json(folder / "search" / "config.json")["config"]))
    search.claim(folder / "search", config, 0)  # its own config is no other search's
    other = lessonl.get_config("smoke")
    other.sampling.temperature = 0.9
    with pytest.raises(ValueError, match="sampling.temperature: saved .*, now 0.9"):
        search.claim(folder / "search", other, 0)


def test_a_sweep_of_format_0(tmp_path):
    folder = saved_runs.unpacked(0, "sweep", tmp_path)
    settings = sweep_ranking.read(folder / "sweep.json")
    assert [each["setting"] for each in settings] == ["lr 0.003", "lr 0.001"]
    for config_file in folder.glob("*/*/config.json"):
        config = run_folder.load_run(config_file.parent)
        assert config.task.test_split == "all"
        assert summaries.complete(config, summaries.whole_summary(config_file.parent))


@pytest.mark.parametrize("name", ["config.json", "summary.json", "evaluation.json"])
def test_files_of_a_newer_version_are_refused(of_format, name):
    _, folder = of_format
    path = folder / name
    text = path.read_text()
    path.write_text(json.dumps(json.loads(text) | {formats.KEY: formats.VERSION + 1}))
    read = saved.read if name == "config.json" else summaries.read_json
    with pytest.raises(formats.NewerFormatError, match=f"{name}: is of format {formats.VERSION + 1}, which a newer"):
        read(path)
    path.write_text(text)


def test_transcripts_of_a_newer_version_are_refused(of_format, tmp_path):
    _, folder = of_format
    (tmp_path / "transcripts").mkdir()
    path = tmp_path / "transcripts" / "step_00000.jsonl"
    row = json.loads((folder / "transcripts" / "step_00000.jsonl").read_text().split("\n")[0])
    path.write_text(json.dumps(row | {formats.KEY: formats.VERSION + 1}) + "\n")
    with pytest.raises(ValueError, match="step_00000.jsonl.*a newer version of jaxmarl_llm wrote"):
        transcripts.read(tmp_path, 0)
