"""jaxmarl_llm/runs/final_table.py and the first screen of a report: what a finished run says of itself."""

import dataclasses
import json

import pytest
import report_runs

from jaxmarl_llm.analysis.report import first_screen, page, runs
from jaxmarl_llm.runs import final_table, summaries

SUMMARY = {
    "before": {"step": 0, "return": 20.04, "return_low": 15.0, "return_high": 26.0, "return_greedy": 30.0},
    "after": {"step": 3, "return": 60.0, "return_low": 55.0, "return_high": 66.0, "return_greedy": 70.0},
    "best": {"step": 2, "return": 58.0, "return_low": 50.0, "return_high": None, "validation_return": 61.0},
}


@pytest.fixture
def folder(tmp_path):
    """A finished run with the answers of its tests: two problems, of two turns each."""
    report_runs.write_run(tmp_path)
    (tmp_path / "summary.json").write_text(json.dumps(SUMMARY | {"seconds": 90.0, "seed": 0}))
    for name, step, text in (("before", 0, "x = 1"), ("after", 3, "\n".join(map(str, range(14))))):
        first = report_runs.action(step, "ode", 0.5, "fail", "earlier")
        last = dataclasses.replace(report_runs.action(step, "ode", 2.0, "pass", text), turn=1, follows=0)
        other = report_runs.action(step, "sonnet", 1.0, "fail", "other")
        path = report_runs.write_evaluation(tmp_path / "test" / f"{name}.json", step, [first, other, last])
        path.write_text(json.dumps(json.loads(path.read_text()) | {"state": name, "split": "test"}))
    return tmp_path


def test_every_state_has_a_line_with_its_interval():
    _, *lines = final_table.state_lines(SUMMARY | {"warm": {"step": 0, "return": 33.0}})
    titles = ["untrained", "warmed up", "trained, latest state (iteration 3)"]
    titles += ["trained, best state on validation (iteration 2)"]
    values = ["   20.0  [15.0, 26.0]", "   33.0", "   60.0  [55.0, 66.0]", "   58.0"]
    width = max(map(len, titles))
    assert lines == [f"  {title:{width}}{value}" for title, value in zip(titles, values, strict=True)]


def test_the_first_problem_is_shown_before_and_after(folder):
    lines = final_table.example_lines(folder)
    assert lines[1] == "greedy answers to ode, the first of the test problems:"
    assert lines[3:5] == ["--- untrained: reward 2.00, pass", "[poet]"] and lines[5] == "  x = 1"
    after = lines.index("--- trained: reward 2.00, pass")
    assert lines[after + 1 : after + 4] == ["[poet]", "  0", "  1"]
    assert "  ... 2 more lines" in lines[after:] and "  12" not in lines[after:]
    assert final_table.example_lines(folder / "nowhere") == []


@pytest.mark.parametrize("total, verdict, text", [
    (1.234, "pass", "reward 1.23, pass"), (0.5, "", "reward 0.50"), (None, "", "reward none"),
])  # fmt: skip
def test_an_answer_without_a_verdict_has_a_reward_alone(total, verdict, text):
    assert report_runs.action(0, "ode", total, verdict, "x").outcome == text


def test_the_closing_table(folder, capsys):
    final_table.show(SUMMARY, folder)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["3", "iterations"] and lines[1] == ["test,", "0..100", "untrained", "trained", "gain"]
    assert lines[3] == ["return", "20.0", "60.0", "+40.0"]
    assert ["return_greedy", "30.0", "70.0", "+40.0"] in lines


def test_kinds_of_items_are_no_other_results():
    others = {"return", "return_low", "return_high", "return_greedy", "return_turn1", "return_turns", "pass@1", "step"}
    kinds = ["return_grade1", "return_low_level", "return_turned", "pass@1_grade1", "pass@1_low_level"]
    assert final_table.kinds_of_items(dict.fromkeys([*others, *kinds], 1.0)) == kinds


def test_the_time_of_the_warm_up_is_named_apart():
    assert summaries.minutes({"seconds": 90.0}) == "1.5 minutes"
    assert summaries.minutes({"seconds": 90.0, "warm_up_seconds": 660.0}) == "1.5 minutes after 11.0 of warm-up"


def test_a_page_begins_with_what_a_newcomer_asks(folder):
    evaluations = [folder / "test" / f"{name}.json" for name in ("before", "after")]
    actual = first_screen.first_screen([runs.read_run(folder)], runs.read_evaluations(evaluations))
    assert actual.sentences == (
        "poet and critic (tiny-model) learned to answer together on problems of 'poems': 3 iterations, "
        "in 1.50 minutes.",
        "Return on the test problems, which were not trained on (0..100, sampled answers): untrained 20.0 "
        "[15.0, 26.0], trained 60.0 [55.0, 66.0]. In brackets: 95 % interval over the problems. Trained is "
        "the latest state.",
        "The best state on validation is that of iteration 2: 58.0 on the test.",
    )
    assert actual.item == "ode"
    assert [(a.title, a.judgement) for a in actual.answers] == [
        ("untrained", "reward 2.00, pass"), ("trained", "reward 2.00, pass"),
    ]  # fmt: skip
    assert actual.answers[0].texts[0] == ("poet", "x = 1")
    path, *_ = page.write([folder], evaluations=evaluations)
    text = path.read_text()
    places = [text.index(part) for part in ('id="summary"', "tiny-model", 'id="runs"', 'id="curves"')]
    assert places == sorted(places) and "<pre>x = 1</pre>" in text


def test_pages_of_several_or_unfinished_runs_have_none(folder, tmp_path):
    one = runs.read_run(folder)
    assert first_screen.first_screen([one, one], []) is None
    begun = dataclasses.replace(one, summary={"before": SUMMARY["before"]})
    assert first_screen.first_screen([begun], []) is None
