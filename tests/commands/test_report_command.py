"""experiments.report and experiments.ranking as commands: what they write, and a folder that is not there."""

import json
import subprocess

import command_flags
import pytest
import report_runs
import smoke_runs
from report_runs import THREE_SETTINGS, Elements, write_evaluation

from experiments import report
from jaxmarl_llm.utils.errors import UserError


def run(name, *arguments):
    command = smoke_runs.command(name, *arguments)
    return subprocess.run(command, cwd=smoke_runs.ROOT, capture_output=True, text=True)


def test_the_command(tmp_path):
    seeds = report_runs.two_seeds(tmp_path / "seeds")
    answers = write_evaluation(tmp_path / "other.json", 0, report_runs.actions(0))
    out = tmp_path / "out" / "page.html"
    given = [*map(str, seeds), f"--out={out}", f"--evaluations={answers}", "--transcript_steps=2"]
    done = run("report", *given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1] == f"written: {out}"
    text = out.read_text()
    assert "Report on a, b" in text and "a: 2 of the 3 iterations (0, 2)." in text
    assert {source["part"] for source in json.loads(Elements(text).text("script"))["sources"]} == {
        "sampled", "greedy", "iteration 0", "iteration 2",
    }  # fmt: skip
    done = run("report", tmp_path / "none")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: run folder {tmp_path / 'none'} does not exist")


def test_the_command_draws_a_file(tmp_path):
    (tmp_path / "sweep.json").write_text(json.dumps({"settings": THREE_SETTINGS}))
    done = run("ranking", tmp_path / "sweep.json")
    assert done.stdout == f"written: {tmp_path}/ranking.png\n", done.stderr
    assert (tmp_path / "ranking.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("flag, searches", [
    ("--baseline=full", False), ("--evaluations=a.json", True), ("--transcript_steps=8", True),
])
def test_a_flag_that_the_page_does_not_read_is_refused(flag, searches, monkeypatch):
    """Even with its default value: who gives it expects something."""
    own = command_flags.defined_apart(monkeypatch)
    report.define_flags()
    own(["report", flag])
    report.refuse_unread(own, not searches)
    kinds = ("run folders, and results files are given", "results files, and run folders are given")
    with pytest.raises(UserError, match=f"^{flag.partition('=')[0]} is for {kinds[0 if searches else 1]}$"):
        report.refuse_unread(own, searches)
