"""jaxmarl_llm/analysis/report/sweep_results.py and sweep_page.py: means and differences by hand, and the page."""

import json
import math
import re

import pytest
import report_runs

from jaxmarl_llm.analysis.report import comparable, figures, sweep_page, sweep_results

PROBLEMS = ("p0", "p1", "p2", "p3")


def member(place, setting, seed, returns, greedy=None, state="finished", problems=PROBLEMS, reason=""):
    """A member with one return per held-out problem; greedy ones are the same plus 1."""
    folder = place / setting / f"seed{seed}"
    if state != "finished":
        return sweep_results.read_member(setting, seed, folder, state, reason)
    greedy = [value + 1 for value in returns] if greedy is None else greedy
    report_runs.write_run(folder, report_runs.config(seed=seed), report_runs.rows(sum(returns) / 40))
    after = {"step": 3, "return": sum(returns) / len(returns), "return_greedy": sum(greedy) / len(greedy)}
    (folder / "summary.json").write_text(json.dumps({"after": after, "seconds": 60.0 * (seed + 1)}))
    held_out = {"step": 3, "items": problems, "return": returns, "return_greedy": greedy}
    (folder / "held_out.json").write_text(json.dumps(held_out))
    return sweep_results.read_member(setting, seed, folder, state)


@pytest.fixture
def actual(tmp_path):
    return [
        member(tmp_path, "lr=1", 0, [10.0, 20.0, 30.0, 40.0]),  # mean 25
        member(tmp_path, "lr=1", 1, [20.0, 20.0, 30.0, 50.0]),  # 30
        member(tmp_path, "lr=1", 2, [20.0, 20.0, 40.0, 60.0]),  # 35
        member(tmp_path, "lr=2", 0, [20.0, 20.0, 40.0, 24.0]),  # 26, +1: by problem 10, 0, 10, -16
        member(tmp_path, "lr=2", 1, [26.0, 20.0, 34.0, 48.0]),  # 32, +2: 6, 0, 4, -2
        member(tmp_path, "lr=2", 2, [28.0, 20.0, 44.0, 60.0]),  # 38, +3: 8, 0, 4, 0
        member(tmp_path, "lr=3", 1, [40.0, 40.0, 40.0, 40.0]),  # 40, +10
        member(tmp_path, "lr=3", 2, [], state="failed", reason="error: <b>disk</b> | full"),
    ]


def test_means_by_hand(actual):
    table = sweep_page.tables(actual)[0]
    assert table.headers == ("setting", "seeds", "return, sampled", "return, greedy", "minutes")
    # 25, 30, 35: s = 5, 4.30265 * 5 / sqrt(3) = 12.42; one, two and three minutes
    assert table.rows[0] == ("lr=1 (baseline)", "3", "30.0 [17.6, 42.4]", "31.0 [18.6, 43.4]", "2.00")
    # 26, 32, 38: s = 6, half 14.90
    assert table.rows[1] == ("lr=2", "3", "32.0 [17.1, 46.9]", "33.0 [18.1, 47.9]", "2.00")
    assert table.rows[2] == ("lr=3", "1 of 2", "40.0", "41.0", "2.00")


def test_differences_by_hand(actual):
    baseline, second, third = sweep_results.by_setting(actual).values()
    found_differences = sweep_results.compare(second, baseline, "return")
    assert found_differences.seeds == (0, 1, 2)
    # differences 1, 2, 3: see tests/unit/utils/test_significance.py
    assert found_differences.difference == pytest.approx((2, -0.48414, 4.48414), abs=1e-5)
    assert found_differences.p == pytest.approx(1 - math.sqrt(12 / 14))
    # by problem the means over the seeds: 8, 0, 6, -6; their mean is that of the seeds, 2
    assert found_differences.problems == 4 and found_differences.over_problems.mean == pytest.approx(2)
    # without the 0 the flips of 8, 6, -6 add up to ±20, ±8, ±8, ±4; 6 of 8 reach 8
    assert found_differences.p_problems == 6 / 8
    alone = sweep_results.compare(third, baseline, "return")
    assert alone.seeds == (1,) and alone.difference.mean == 10 and math.isnan(alone.p)
    # 40 - 20, 40 - 20, 40 - 30, 40 - 50: sums of flips reach 40 with 60, 40, 40 (20s or 10s swapped), ...
    assert alone.problems == 4 and alone.p_problems == pytest.approx(_share([20, 20, 10, -10]))


def _share(values):
    """Of all sign flips, those with a sum as far from 0 as that of the values."""
    sums = [0]
    for value in values:
        sums = [total + sign * value for total in sums for sign in (1, -1)]
    return sum(abs(total) >= abs(sum(values)) for total in sums) / len(sums)


def test_the_table_of_differences(actual):
    table = sweep_page.tables(actual)[1]
    rows = [dict(zip(table.headers, row, strict=True)) for row in table.rows]
    assert [(row["setting"], row["answers"], row["shared seeds"]) for row in rows] == [
        ("lr=2", "sampled", "3"), ("lr=2", "greedy", "3"), ("lr=3", "sampled", "1"), ("lr=3", "greedy", "1"),
    ]  # fmt: skip
    assert (rows[0]["difference"], rows[0]["p (seeds)"]) == ("+2.00 [-0.48, 4.48]", "0.074")
    assert (rows[0]["problems"], rows[0]["p (problems)"]) == ("4", "0.750")
    assert re.fullmatch(r"\[-\d\.\d\d, \d\.\d\d\]", rows[0]["over problems"])
    assert (rows[2]["difference"], rows[2]["p (seeds)"]) == ("+10.0", "fewer than 2 seeds")


def test_p_values_in_words():
    assert [sweep_page.p_value(p) for p in (1.0, 0.05, 0.0009, 0.0, math.nan)] == [
        "1.000", "0.050", "<0.001", "<0.001", "–",
    ]  # fmt: skip


def test_other_problems_are_not_compared(tmp_path):
    baseline = [member(tmp_path, "a", 0, [1.0, 2.0], problems=("p", "q"))]
    other = [member(tmp_path, "b", 0, [3.0, 3.0], problems=("p", "r"))]
    actual = sweep_results.compare(other, baseline, "return")
    assert actual.difference.mean == 1.5 and actual.problems == 0 and math.isnan(actual.p_problems)
    # an earlier version of the run left no results by problem
    (other[0].folder / "held_out.json").unlink()
    older = [sweep_results.read_member("b", 0, other[0].folder, "finished")]
    assert sweep_results.compare(older, baseline, "return").problems == 0


def test_settings_with_another_judge_are_not_compared(tmp_path):
    """The problems are the same, and the seeds; the reward, or the limit of time, is not."""
    actual = [member(tmp_path, name, seed, [1.0, 2.0]) for name in ("a", "b", "c") for seed in (0, 1)]

    def with_config(each, **changes):
        (each.folder / "config.json").write_text(json.dumps(report_runs.config(seed=each.seed, **changes)))
        return sweep_results.read_member(each.setting, each.seed, each.folder, "finished")

    members = [*actual[:2], *(with_config(each, task__reward="mine.x") for each in actual[2:4])]
    members += [with_config(each, task__feedback="passed", train__lr=1.0) for each in actual[4:]]
    baseline, other, fine = sweep_results.by_setting(members).values()
    compared = sweep_results.compare(other, baseline, "return")
    assert (compared.judged, compared.seeds) == (("task.reward",), ())
    assert math.isnan(compared.difference.mean)
    assert sweep_results.compare(fine, baseline, "return").seeds == (0, 1)  # feedback is a part of the method
    rows = {row[0]: row for row in sweep_page.tables(members)[1].rows}
    assert rows["b"][2:6] == ("0", "–", "judged differently: task.reward", "0")
    assert any("are not compared" in note for note in sweep_page.notes(members))
    assert not any("are not compared" in note for note in sweep_page.notes([*baseline, *fine]))
    against = sweep_results.as_json(members)[1]["against_baseline"]["return"]
    assert against["judged_differently"] == ["task.reward"] and against["over_seeds"]["mean"] is None


@pytest.mark.parametrize("changes, fields", [
    ({}, []), ({"task__test_source": "poems"}, []), ({"task__test_source": "songs"}, ["task.test_source"]),
    ({"task__source": "songs"}, ["task.test_source"]), ({"task__kind": "tldr"}, ["task.kind"]),
    ({"executor__cpu_seconds": 5.0}, ["executor.cpu_seconds"]), ({"task__train_split": "all"}, []),
    ({"train__comlrl_compat": True}, ["train.comlrl_compat"]), ({"train__group": 9}, []),
    ({"commits": {"reward": "bleu"}, "timing": {"cap": 5.0}, "router": {"costs": [1.0]}}, []),
])  # fmt: skip
def test_what_judges(changes, fields):
    one, two = (comparable.judging_fields(report_runs.config(**given)) for given in ({}, changes))
    assert comparable.differences(one, two) == fields


@pytest.mark.parametrize("reader, section, name, values", [
    ({"task__kind": "commits"}, "commits", "reward", ("bleu", "round_trip")),
    ({"task__kind": "commits"}, "commits", "copy_share", (0.3, 1.0)),
    ({"task__kind": "optimisation"}, "timing", "cap", (10.0, 5.0)),
    ({"train__protocol": "routed"}, "router", "costs", ([], [0.1, 0.2])),
])  # fmt: skip
def test_what_judges_where_it_is_read(reader, section, name, values):
    one, two = (comparable.judging_fields(report_runs.config(**reader, **{section: {name: x}})) for x in values)
    assert comparable.differences(one, two) == [f"{section}.{name}"]


def test_a_problem_without_a_score_is_left_out(tmp_path):
    baseline = [member(tmp_path, "a", 0, [1.0, 2.0, 4.0, 0.0])]
    other = [member(tmp_path, "b", 0, [2.0, 4.0, 8.0, 0.0])]
    other[0].held_out["return"][2] = None
    actual = sweep_results.compare(other, baseline, "return")
    assert actual.problems == 3 and actual.over_problems.mean == pytest.approx((1 + 2 + 0) / 3)


def test_without_a_result_nothing_is_compared(tmp_path):
    members = [member(tmp_path, "a", 0, [], state="not begun"), member(tmp_path, "b", 0, [], state="failed")]
    table, differences, left = sweep_page.tables(members)
    assert table.rows[0] == ("a (baseline)", "0 of 1", "–", "–", "–")
    assert differences.rows[0][2:5] == ("0", "–", "fewer than 2 seeds")
    assert [row[:3] for row in left.rows] == [("a", "0", "not begun"), ("b", "0", "failed")]
    page = sweep_page.write(members, tmp_path / "sweep.html", "x").read_text()
    assert "No member has measured anything yet." in page and "<img" not in page


def test_a_damaged_summary_is_named(tmp_path):
    kept = member(tmp_path, "lr=1", 0, [1.0, 2.0, 3.0, 4.0])
    (kept.folder / "summary.json").write_text("[]")
    with pytest.raises(ValueError, match=r"seed0/summary\.json: holds a JSON list, expected a dict"):
        sweep_results.read_member("lr=1", 0, kept.folder, "finished")


def test_json(actual):
    settings = json.loads(json.dumps(sweep_results.as_json(actual), allow_nan=False))
    assert [(each["setting"], each["baseline"]) for each in settings] == [
        ("lr=1", True), ("lr=2", False), ("lr=3", False),
    ]  # fmt: skip
    assert settings[0]["against_baseline"] == {} and settings[0]["return"]["mean"] == 30
    against = settings[1]["against_baseline"]["return"]
    assert against["seeds"] == [0, 1, 2]
    assert against["over_seeds"]["p_paired_t"] == pytest.approx(0.07418, abs=1e-5)
    assert settings[2]["against_baseline"]["return"]["over_seeds"]["p_paired_t"] is None
    failed = settings[2]["members"][1]
    assert (failed["state"], failed["reason"]) == ("failed", "error: <b>disk</b> | full")
    assert failed["return"] is None and failed["minutes"] is None


def test_the_page(actual, tmp_path):
    text = sweep_page.write(actual, tmp_path / "sweep.html", "Sweep of <x>").read_text()
    assert text.startswith("<!DOCTYPE html>") and "<title>Sweep of &lt;x&gt;</title>" in text
    assert "<script" not in text and "script-src" not in text and "http" not in re.sub("http-equiv", "", text)
    for cell in ("lr=1 (baseline)", "30.0 [17.6, 42.4]", "+2.00 [-0.48, 4.48]", "0.074", "fewer than 2 "):
        assert cell in text
    assert "&lt;b&gt;disk&lt;/b&gt;" in text and "<b>" not in text
    # final returns, and the curves of all settings in one picture
    assert text.count("<img") == 2
    ranks, words = re.findall(r"<summary>In words</summary><p>(.*?)</p>", text)
    assert ranks == "Sampled, best first. lr=3: 40. lr=2: 32. lr=1, the baseline: 30."
    # lr=1: returns on validation end at 60 and a shift of 100 / 40, 120 / 40, 140 / 40, in the mean 63
    assert "return, validation, sampled, lr=1: 23 at 0, 63 at 3" in words
    assert "p-values are not corrected for the 2 comparisons" in text
    assert "Members that are not finished are in it as far as they are" in text


def test_a_run_that_cannot_be_read_is_left_out_of_the_curves(actual, tmp_path):
    (actual[3].folder / "metrics.jsonl").write_text("nonsense\n")
    groups, unreadable = sweep_page.curves(actual)
    assert [len(group.runs) for group in groups] == [3, 2, 1] and len(unreadable) == 1
    text = sweep_page.write(actual, tmp_path / "sweep.html", "x").read_text()
    assert f"Left out: {actual[3].folder}/metrics.jsonl, line 1: not JSON" in text
    assert "26.0" in text  # its results count all the same


def test_one_setting_has_nothing_to_compare(actual, tmp_path):
    members = [each for each in actual if each.setting == "lr=1"]
    assert [table.title for table in sweep_page.tables(members)] == ["Settings"]
    assert len(sweep_page.notes(members)) == 1
    assert "Against" not in sweep_page.write(members, tmp_path / "x.html", "x").read_text()


def test_many_settings_have_a_panel_each(tmp_path, monkeypatch):
    names = [f"train.lr={i}, {'x' * 60}" for i in range(figures.FEW + 1)]
    pairs = [(i, seed) for i in range(len(names)) for seed in (0, 1)]
    actual = [member(tmp_path, names[i], seed, [10.0, 20.0 + i]) for i, seed in pairs]
    drawn = []
    monkeypatch.setattr(figures, "png", lambda picture, *args, **rest: drawn.append(picture) or b"")
    text = sweep_page.write(actual, tmp_path / "many.html", "many").read_text()
    assert "thin lines single seeds" not in text and "Where problems were evaluated before" in text
    assert "<p>A panel per setting: " in text
    assert [panel.group.label for panel in drawn[0].panels] == names
    title = drawn[0].panels[1].title  # lines of 30
    assert title == "train.lr=1, " + "x" * 18 + "\n" + "x" * 30 + "\n" + "x" * 12
    few = sweep_page.write(actual[:4], tmp_path / "few.html", "few").read_text()
    assert "<p>A colour per setting: " in few and len(drawn[-1].panels) == 1
