"""Commands that write say before their work that they cannot, and which flag helps."""

import errno
import os
import pathlib
import tempfile
import types

import pytest

from experiments import compare, conventions, crossplay, evaluate, export, ranking, report, rescore, sweep
from jaxmarl_llm import checkpoint
from jaxmarl_llm.analysis.report import page, sweep_ranking
from jaxmarl_llm.factory import evaluations, experts, teams
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import StorageError


@pytest.fixture
def read_only(tmp_path, monkeypatch):
    """A folder that refuses new files also for root, as a read-only file system does."""
    folder, real = tmp_path / "archive", tempfile.TemporaryFile
    folder.mkdir()

    def refuse(*arguments, dir=None, **options):
        if dir is not None and pathlib.Path(dir).is_relative_to(folder):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(*arguments, dir=dir, **options)

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    return folder


def test_a_place_is_tried_and_left_as_it_was(tmp_path):
    for path in (tmp_path / "a.json", tmp_path / "new" / "deep" / "a.json"):
        assert files.ensure_writable(path, "give --out") == path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inside", ["a.json", "new/a.json"])
def test_the_reason_and_the_way_out_are_named(read_only, inside):
    with pytest.raises(StorageError, match=f"archive/{inside} cannot be written: Read-only file system; give --out$"):
        files.ensure_writable(read_only / inside, "give --out")


def test_a_folder_or_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file/a.json cannot be written: Not a directory; give --out"):
        files.ensure_writable(tmp_path / "file" / "a.json", "give --out")
    with pytest.raises(StorageError, match="cannot be written: Is a directory; give --out"):
        files.ensure_writable(tmp_path, "give --out")


WORK = "the work was begun"


def begun(*arguments, **options):
    raise AssertionError(WORK)


def test_report_says_it_first(read_only, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "read_runs", begun)
    with pytest.raises(StorageError, match="archive/report.html cannot be written: .*; give --out=<page> in a folder"):
        page.write([read_only])
    with pytest.raises(AssertionError, match=WORK):
        page.write([read_only], out=tmp_path / "page.html")
    monkeypatch.setattr(report.search_results, "read", begun)
    with pytest.raises(StorageError, match="archive/search.html cannot be written: .*; give --out=<page>"):
        report.report_searches([str(read_only / "search.json")], "")


def test_export_says_it_first(read_only, monkeypatch):
    monkeypatch.setattr(teams, "build_team", begun)
    monkeypatch.setattr(export.run_folder, "load_run", lambda workdir: None)
    meta = {"agents": {"main": {"mode": "full", "model": "x"}}}
    monkeypatch.setattr(checkpoint, "read_meta", lambda folder, which: meta)
    with pytest.raises(StorageError, match="archive/model cannot be written: .*; give another --out"):
        export.export("run", "main", read_only / "model")


def test_an_experts_answers_are_not_paid_for_and_lost(read_only):
    from configs import coding

    config = coding.get_config("smoke")
    config.expert.model = "wise"
    with pytest.raises(StorageError, match="expert/answer.json cannot be written: .*; give --config.expert.cache=<f"):
        experts.expert_options(config, read_only)
    config.expert.offline = True
    assert experts.expert_options(config, read_only)["cache"] == str(read_only / "expert")


@pytest.mark.parametrize("name, argv, flag_values, message", [
    ("evaluate", [], dict(workdir="archive"), "archive/evaluation.json cannot be .*; give --out=<file>"),
    ("evaluate", [], dict(workdir="archive", out="archive/a/b.json"), "archive/a/b.json cannot be .*; give --out"),
    ("crossplay", [], dict(workdirs=["archive", "b"]), "archive/crossplay/crossplay.json .*; give --out"),
    ("rescore", [], dict(workdir="run", reward="a.b", out="archive/x"), "archive/x cannot be .*; give another"),
    ("ranking", ["archive/sweep.json"], dict(), "archive/ranking.png cannot be written: .*; give --out=<picture>"),
    ("conventions", [], dict(workdir="archive"), "archive/conventions.json cannot be written: .*; copy the folder"),
    ("compare", [], dict(workdir="archive", task="coding"), "archive/coding/compare.json cannot be .*; give another"),
])
def test_commands_say_it_first(read_only, monkeypatch, name, argv, flag_values, message):
    command = {
        "evaluate": evaluate, "crossplay": crossplay, "rescore": rescore, "ranking": ranking,
        "conventions": conventions, "compare": compare,
    }[name]  # fmt: skip
    from configs import coding

    monkeypatch.setattr(evaluate.run_folder, "load_run", lambda workdir: coding.get_config("smoke"))
    monkeypatch.setattr(evaluations, "evaluate_run", begun)
    for place, function in ((crossplay, "play"), (rescore, "rescore"), (conventions, "rows"), (compare, "compare_all")):
        monkeypatch.setattr(place, function, begun)
    monkeypatch.setattr(sweep_ranking, "read", begun)
    monkeypatch.chdir(read_only.parent)
    of_agents = {"config": None, "step": "best", "team": "", "base": "", "have": ""}
    values = of_agents | {"out": "", "samples": 0, "k": ["1"], "split": "test"}
    monkeypatch.setattr(command.flags, "FLAGS", types.SimpleNamespace(**values | flag_values))
    with pytest.raises(StorageError, match=message):
        command.main(["command", *argv])


def test_a_sweep_says_it_first(read_only, monkeypatch):
    monkeypatch.setattr(sweep, "check_workdir", lambda workdir, members: None)
    monkeypatch.setattr(sweep.sweeps, "load", lambda path: None)
    monkeypatch.setattr(sweep.sweeps, "collect", lambda *arguments: [])
    flag = type("Flag", (), {"config_filename": "configs/a.py", "override_values": {}})()
    holder = type("Flags", (), {"workdir": str(read_only), "config": None, "__getitem__": lambda self, name: flag})()
    monkeypatch.setattr(sweep.flags, "FLAGS", holder)
    with pytest.raises(StorageError, match="archive/sweep.json cannot be written: .*; take another --workdir"):
        sweep.main(["command"])
