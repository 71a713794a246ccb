"""The table of a convention sweep: numbers by hand, and what is refused."""

import json

import pytest
from repository import ROOT

from experiments import conventions
from jaxmarl_llm.analysis.report import convention_figure

HALF = {"aux_first": 0.4, "aux_second": 0.5, "main_first": 0.45, "main_second": 0.45}
ONE = {"aux_first": 0.9, "aux_second": 0.0, "main_first": 0.8, "main_second": 0.1}
HALF |= {"aux_alone": 0.0, "main_alone": 0.0}
ONE |= {"aux_alone": 0.01, "main_alone": 0.02}


def test_an_agent_that_settles_gains_beside_one_partner_what_it_loses_beside_the_other():
    before = conventions.team({"return": 41.0} | HALF)
    after = conventions.team({"return": 80.0} | ONE)
    assert before.able == pytest.approx(90) and after.able == pytest.approx(90)
    assert before.beside_fixed == after.beside_fixed == pytest.approx(45)
    assert [before.convention(n) for n in (0, 1)] == ["both", "both"]
    assert [after.convention(n) for n in (0, 1)] == ["first", "first"]
    nothing = conventions.team({"return": 0.0} | dict.fromkeys(HALF, 0.0))
    assert nothing.convention(0) == "both"
    with pytest.raises(ValueError, match="no 'aux_first': the run is not of the convention task"):
        conventions.team({"return": 3.0})


def run(folder, joint: float, problems: list[float]):
    """A run folder with what the table reads."""
    (folder / "test").mkdir(parents=True)
    ends = {"warm": {"step": 0, "return": 41.0} | HALF, "after": {"step": 3, "return": joint} | ONE}
    (folder / "summary.json").write_text(json.dumps(ends))
    for state, returns in {"warm": [40.0, 42.0], "after": problems}.items():
        items = {"sampled": {"items": [{"return": x} for x in returns]}}
        (folder / "test" / f"{state}.json").write_text(json.dumps(items))
    spent = {"spent/tokens": 10.0, "spent/optimizer_tokens": 8.0}
    rows = [spent | {"step": i, "seconds": 9.0 - i, "spent/answers": 256.0 * (i + 1)} for i in range(3)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def sweep(workdir, joints: dict[str, list[float]]):
    """Folders and sweep.json of variants with the joint success of each of their seeds."""
    settings = []
    for name, values in joints.items():
        members = [{"seed": 9, "folder": "x", "state": "failed"}]
        for seed, joint in enumerate(values):
            folder = workdir / name / f"seed{seed}"
            run(folder, joint, [joint - 10, joint + 10])
            members.append({"seed": seed, "folder": str(folder), "state": "finished"})
        settings.append({"setting": name, "members": members})
    (workdir / "sweep.json").write_text(json.dumps({"settings": settings}))


def test_the_rows_of_a_sweep(tmp_path):
    sweep(tmp_path, {"cross": [80.0]})
    rows = conventions.rows(tmp_path)
    assert [(row["state"], row["aux"], row["answers"], row["seconds"]) for row in rows] == [
        ("warm", "both", 0, 0), ("after", "first", 768, 8),
    ]  # fmt: skip
    headers, texts = conventions.table(rows)
    # By skill alone: each is able in 90 % of the cases, and half of these fit.
    assert texts[1] == ("cross", "0", "after", "80.0", "90.0", "40.5", "45.0", "2.0", "first", "first")
    assert len(headers) == len(texts[0])
    with pytest.raises(ValueError, match="there is no sweep.json; run experiments.sweep first"):
        conventions.rows(tmp_path / "cross")
    (tmp_path / "cross" / "seed0" / "summary.json").unlink()
    with pytest.raises(ValueError, match="seed0: this run of sweep.json is gone"):
        conventions.rows(tmp_path)


def test_a_variant_has_the_means_of_its_seeds_with_intervals(tmp_path):
    sweep(tmp_path, {"cross": [80.0, 84.0], "fixed convention": [90.0, 90.0]})
    headers, texts = conventions.summary(conventions.rows(tmp_path))
    actual = {row[0]: dict(zip(headers, row, strict=True)) for row in texts}
    assert list(actual) == ["warmed up", "cross", "fixed convention"]
    # Student's interval of 80 and 84: 82 +- 12.706 sqrt(8) / sqrt(2) / sqrt(2); of two problems 72 and 92.
    assert actual["cross"]["joint success"] == "82.0 (56.6, 107.4) [72.0, 92.0]"
    assert (
        actual["cross"]["share of fixed convention"] == "91 %"
        and actual["cross"]["conventions"] == "first, first"
    )
    assert actual["cross"]["answers judged"] == "768" and actual["warmed up"]["answers judged"] == "0"
    assert actual["warmed up"]["joint success"].startswith("41.0 (41.0, 41.0) [40.0, 42.0]")
    assert actual["warmed up"]["conventions"] == "none, none"


def test_the_warmed_up_team_is_not_that_of_another_start(tmp_path):
    sweep(tmp_path, {"fixed convention": [90.0], "c3": [70.0]})
    entries = conventions.rows(tmp_path)
    assert list(conventions.by_variant(entries)) == ["fixed convention", "c3"]


def test_runs_that_were_finished_elsewhere_are_added():
    def row(setting, seed, joint):
        return {"setting": setting, "seed": seed, "state": "after", "joint": joint}

    have = [row("cross", 0, 1.0), row("cross", 1, 2.0), row("aligned", 0, 3.0)]
    both = conventions.merged([row("aligned", 1, 4.0), row("cross", 1, 5.0)], have)
    assert [(r["setting"], r["seed"], r["joint"]) for r in both] == [
        ("cross", 0, 1.0), ("cross", 1, 5.0), ("aligned", 0, 3.0), ("aligned", 1, 4.0),
    ]  # fmt: skip


def test_files_that_are_no_conventions(tmp_path):
    sweep(tmp_path, {"cross": [80.0]})
    rows, path = conventions.rows(tmp_path), tmp_path / "have.json"
    path.write_text(json.dumps(rows))
    assert conventions.read(str(path)) == rows
    for bad, message in (
        ([{"a": 1}], "'setting' of row 0 is None"),
        ([rows[0], 7], "row 1 is 7"),
        ([rows[0], rows[1] | {"joint": "80"}], "'joint' of row 1 is '80'"),
    ):
        path.write_text(json.dumps(bad))
        with pytest.raises(ValueError, match=f"have.json: is no conventions.json, {message}"):
            conventions.read(str(path))
    assert conventions.read(str(ROOT / "docs" / "convention_runs.json"))


def test_the_picture_has_a_bar_a_dot_per_seed_and_the_skill_of_each_variant():
    variants = {"cross": [{"joint": 80.0, "by_skill": 40.0}, {"joint": 84.0, "by_skill": 42.0}]}
    figure = convention_figure.draw(variants)
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [82.0]
    dots, skill = axes.lines
    assert list(dots.get_xdata()) == [80.0, 84.0] and list(skill.get_xdata()) == [41.0, 41.0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cross"]
