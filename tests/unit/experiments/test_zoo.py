"""experiments.zoo: every row is whole, the page is what the rows say, and what is missing is named."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest
import smoke_runs
from repository import HELPERS, ROOT

from configs import zoo as rows_file
from experiments import merge, zoo
from jaxmarl_llm.analysis.zoo import checks, commands, page
from jaxmarl_llm.cli import launch
from jaxmarl_llm.config import UserError
from jaxmarl_llm.config.zoo import NOT_SHOWN, SAME, Published, trained
from jaxmarl_llm.runs.results import finished, result_of

ROWS = rows_file.ROWS
CLUES = ROWS["maporl"]


def test_every_row_is_whole_and_the_page_is_what_they_say():
    assert zoo.check(ROWS) == []
    assert sum(map(len, rows_file.FAMILIES.values())) == len(ROWS)  # no name twice


@pytest.mark.parametrize("form", ["run", "smoke"])
def test_every_command_of_a_row_is_accepted_by_its_flags_and_checks(form, tmp_path):
    lines = [
        f"python -m experiments.{line.format(folder=tmp_path)}"
        for row in ROWS.values()
        for line in getattr(row, form)
    ]
    done = subprocess.run(
        [sys.executable, HELPERS / "shown_commands.py"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, input=json.dumps(lines), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wrong = [f"{line}\n{why}" for line, why in zip(lines, json.loads(done.stdout), strict=True) if why]
    assert not wrong, "\n".join(wrong)


def test_every_system_of_the_project_has_a_row():
    assert checks.uncovered(ROWS) == []
    less = {name: row for name, row in ROWS.items() if name != "c3"}
    assert checks.uncovered(less) == [
        "train.protocol=tree has no row in configs/zoo.py", "train.system=c3 has no row in configs/zoo.py",
    ]  # fmt: skip
    assert checks.MERGES == merge.METHODS


RESULT = CLUES.ours[0]


@pytest.mark.parametrize("fields, message", [
    ({"page": "gone.md"}, "maporl: page docs/gone.md is missing"),
    ({"page": "reasoning.md#gone"}, "maporl: page docs/reasoning.md has no heading #gone"),
    ({"test": "unit/gone.py"}, "maporl: test tests/unit/gone.py is missing"),
    ({"test": "helpers/repository.py"}, "maporl: test repository.py has no test"),
    ({"smoke": (trained("gone.py"),)}, "maporl: config configs/gone.py is missing"),
    ({"run": (trained("game.py:smoke"),)}, "maporl: config configs/game.py:smoke: unknown config option 'smoke'"),
    ({"run": (trained("game.py", "--config.train.rate=1"),)}, "there is no config field 'train.rate'"),
    ({"run": ("train --config=configs/game.py",)}, "nobody knows what this command leaves"),
    ({"smoke": ()}, "maporl: smoke is empty"),
    ({"level": "sound"}, "maporl: level='sound': allowed are none, api, text"),
    ({"covers": ("train.system=gone",)}, "maporl: covers 'train.system=gone', which there is not"),
    ({"published": Published(number="")}, "maporl: published.number is empty"),
    ({"ours": (dataclasses.replace(RESULT, after="98.8"),)}, ""),  # a number of the page, of another row
    ({"ours": (dataclasses.replace(RESULT, after="98.75, 1.5"),)},
     "maporl: ours.after: docs/reasoning.md does not have 98.75, 1.5"),
    ({"ours": (dataclasses.replace(RESULT, interval="over the seeds"),)},
     "ours.interval='over the seeds' has no number"),
    ({"ours": (dataclasses.replace(RESULT, sign="better"),)}, "ours.sign='better': allowed are same, opposite"),
    ({"ours": (dataclasses.replace(RESULT, seeds=""),)}, "maporl: ours.seeds is empty"),
    ({"ours": (dataclasses.replace(RESULT, page="gone.md"),)}, "maporl: page docs/gone.md is missing"),
])  # fmt: skip
def test_what_is_wrong_with_a_row_is_named(fields, message):
    actual = checks.problems("maporl", dataclasses.replace(CLUES, **fields), ROOT)
    assert (len(actual) == 1 and message in actual[0]) if message else actual == []


def test_without_pages_and_tests_nothing_is_checked(tmp_path):
    with pytest.raises(UserError, match="need a checkout"):
        zoo.check(ROWS, tmp_path)


def test_a_page_that_is_old_is_named(monkeypatch):
    monkeypatch.setattr(zoo_families := zoo.zoo, "FAMILIES", {"One": {"maporl": CLUES}})
    assert zoo_families is rows_file
    assert zoo.check(ROWS) == ["docs/zoo.md is not what the rows say: make zoo_page"]


@pytest.mark.parametrize("name, nearest", [
    ("mapporl", "maporl"), ("alphaumi", "alpha_umi"), ("Dr. MASS", "dr_mas"), ("MAReMaxx", "maremax"),
])  # fmt: skip
def test_an_unknown_row_is_refused_with_the_nearest(name, nearest):
    with pytest.raises(UserError, match=f"--row={name}: there is no such row; the nearest is {nearest}$"):
        checks.known(ROWS, name)
    assert checks.known(ROWS, nearest) is ROWS[nearest]


def test_rows_count_by_what_is_shown():
    shown = dataclasses.replace(RESULT, sign=SAME)
    hidden = dataclasses.replace(RESULT, sign=NOT_SHOWN)
    rows = {
        str(number): dataclasses.replace(CLUES, ours=ours)
        for number, ours in enumerate([(), (hidden,), (shown,), (hidden, shown)])
    }
    assert checks.counts(rows) == "4 rows: 2 measured, 1 not shown, 1 not measured"


def test_the_page_has_every_cell():
    unmeasured = dataclasses.replace(ROWS["sweet"], ours=())
    text = page.page({"Title": {"maporl": CLUES, "sweet": unmeasured}})
    assert "\n## Title\n" in text and "2 rows: 1 measured, 0 not shown, 1 not measured" in text
    rows = [line for line in text.splitlines() if line.startswith("| MAPoRL")]
    assert len(rows) == 5 and all(rows.count(row) == 1 for row in rows)
    for cell in (*dataclasses.astuple(RESULT), *dataclasses.astuple(CLUES.published)):
        assert cell in text
    assert "| SWEET-RL | not measured |" in text
    assert "| reasoning.py:clues | systems.py:maporl,smoke |" in text


@pytest.mark.parametrize("line, path", [
    ("train --config=x.py --workdir=a/run", "a/run/summary.json"),
    ("evaluate --workdir=a --out=b/c.json", "b/c.json"),
    ("merge --workdir=a --out=b", "b/merge.json"),
    ("levels --smoke --workdir=a", "a/levels.md"),
])  # fmt: skip
def test_what_a_command_leaves(line, path):
    assert result_of(line.split()) == pathlib.Path(path)


def test_a_training_is_finished_at_its_end_only(tmp_path):
    path = tmp_path / "summary.json"
    assert not finished(path)
    path.write_text('{"before": {}}')
    assert not finished(path)
    path.write_text('{"before": {}, "after": {}}')
    assert finished(path)


@pytest.fixture
def small_rows(tmp_path, monkeypatch):
    """Three rows whose commands are modules of a package that only write their file, but for the one that raises."""
    package = tmp_path / "pretended"
    package.mkdir()
    writes = "import pathlib, sys\nopen('called', 'a').write(sys.argv[1] + ' ')\n"
    (package / "__init__.py").write_text("")
    leaves = 'path = pathlib.Path(sys.argv[1].split("=")[1])\npath.mkdir(parents=True, exist_ok=True)\n'
    (package / "merge.py").write_text(f"{writes}{leaves}(path / 'merge.json').write_text('')\n")
    (package / "values.py").write_text(
        f"{writes}print('error: nothing to learn:', '  no text', sep=chr(10))\nsys.exit(1)\n"
    )
    monkeypatch.setattr(zoo, "__package__", "pretended")
    monkeypatch.chdir(tmp_path)
    lines = {
        "first": ("merge --out={folder}/a", "merge --out={folder}/b"),
        "bad": ("values --out={folder}/c", "merge --out={folder}/d"),
        "last": ("merge --out={folder}/e",),
    }
    return {name: dataclasses.replace(CLUES, smoke=each) for name, each in lines.items()}


def test_smoke_forms_run_one_after_the_other_and_what_fails_is_named(small_rows, tmp_path, capsys):
    bad = zoo.run_all(small_rows, pathlib.Path("work"), smoke=True)
    assert bad == ["bad: failed: error: nothing to learn: no text"]  # a colon has its reason below it
    called = [f"--out=work/{place}" for place in ("first/a", "first/b", "bad/c", "last/e")]
    assert (tmp_path / "called").read_text().split() == called  # d needs what c did not leave
    assert "3 rows, 0 of them finished" in capsys.readouterr().out
    log = (tmp_path / "work/first/log.txt").read_text()
    assert log.count("$ ") == 2 and "pretended.merge --out=work/first/a" in log
    assert zoo.run_all(small_rows, pathlib.Path("work"), smoke=True) == bad
    assert (tmp_path / "called").read_text().split() == [*called, called[2]]
    text = capsys.readouterr().out
    assert "3 rows, 2 of them finished" in text and "row 1/1" in text and "ETA" in text


def test_a_row_that_is_stopped_ends_the_others_and_goes_on(small_rows, monkeypatch):
    ended = []

    def stopped(jobs, places, tell):
        ended.append(jobs[0].name)
        return {jobs[0].folder: launch.Outcome(launch.STOPPED)}

    monkeypatch.setattr(commands.launch, "run_all", stopped)
    bad = zoo.run_all(small_rows, pathlib.Path("work"), smoke=True)
    assert bad == ["first: stopped; the same command goes on"] and ended == ["first, merge"]


def called(*flags):
    options = {
        "cwd": ROOT,
        "env": os.environ | {"PYTHONPATH": str(ROOT)},
        "capture_output": True,
        "text": True,
    }
    return subprocess.run([sys.executable, "-m", "experiments.zoo", *flags], **options)


def test_the_command_lists_checks_and_refuses():
    listed, checked = called(), called("--check")
    assert all(row.title in listed.stdout for row in ROWS.values()) and listed.returncode == 0
    assert (checked.stdout, checked.stderr, checked.returncode) == (f"{checks.counts(ROWS)}\n", "", 0)
    refused = called("--row=maporll", "--smoke")
    assert refused.returncode == 1 and refused.stderr.startswith(
        "error: --row=maporll: there is no such row; the nearest"
    )


@pytest.mark.slow
def test_a_smoke_form_runs_and_is_not_run_again(tmp_path):
    """The command itself, on the row that needs no model."""
    argv = [sys.executable, "-m", "experiments.zoo", "--row=der", "--smoke", f"--workdir={tmp_path}"]
    options = {
        "cwd": ROOT,
        "env": smoke_runs.environment(tmp_path / "cache"),
        "capture_output": True,
        "text": True,
    }
    done = subprocess.run(argv, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert finished(tmp_path / "smoke/der/run/summary.json")
    again = subprocess.run(argv, **options)
    assert again.returncode == 0 and "1 rows, 1 of them finished" in again.stdout
