"""report/statistics.py and the pictures: intervals by hand, lines that are the data."""

import numpy as np
import pytest
import report_runs
from report_runs import rows, write_run
from scipy import stats

from jaxmarl_llm.report import figures, metric_names, page, panels, statistics
from jaxmarl_llm.report.grouping import Group


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    return report_runs.two_seeds(tmp_path_factory.mktemp("seeds"))


@pytest.mark.parametrize("values, mean, low, high", [
    ([5.0], 5, np.nan, np.nan),  # nothing is known of other seeds
    ([1.0, 3.0], 2, 1, 3),  # means 1, 2, 2, 3: each of the ends has a quarter of the chance
    # 27 resamples: 000 and 666 have 1/27 = 3.7 % each, more than the 2.5 % that are cut off at an end
    ([0.0, 3.0, 6.0], 3, 0, 6),
    # 256 resamples: the number of 4s is binomial (4, 1/4): none 31.6 %, up to two 94.9 %, up to three 99.6 %
    ([0.0, 0.0, 0.0, 4.0], 1, 0, 3),
])  # fmt: skip
def test_intervals_by_hand(values, mean, low, high):
    np.testing.assert_allclose(statistics.interval(values), [mean, low, high])


def test_intervals_of_many_runs_are_scipys():
    values = np.random.default_rng(5).normal(50, 10, 12)
    ours = statistics.interval(values)
    other = stats.bootstrap((values,), np.mean, n_resamples=20000, method="percentile", random_state=1)
    ends = other.confidence_interval
    np.testing.assert_allclose(ours[1:], [ends.low, ends.high], atol=0.6)  # the interval is 11 wide
    assert ours.mean == pytest.approx(values.mean())


def test_columns_are_computed_from_the_runs_that_have_a_value():
    values_ST = [[1, np.nan, np.nan], [3, 7, np.nan], [np.nan, 9, np.nan]]
    # column 0: runs 1 and 3; column 1: 7 and 9; column 2: nothing
    expected = [[2, 8, np.nan], [1, 7, np.nan], [3, 9, np.nan]]
    np.testing.assert_allclose(statistics.interval(values_ST), expected)


def test_resampling_weights_are_all_resamples():
    # the shares of both runs in 00, 01, 10, 11
    assert statistics.resampling_weights(2).tolist() == [[1, 0], [0.5, 0.5], [0.5, 0.5], [0, 1]]
    assert statistics.resampling_weights(4).shape == (256, 4)
    np.testing.assert_allclose(statistics.resampling_weights(9).sum(axis=1), 1)


def test_curves_are_put_on_common_steps():
    first = [{"step": 0, "x": 1}, {"step": 1, "x": 3}, {"step": 2, "x": 8}]
    second = [{"step": 1, "x": 5}, {"step": 4, "x": None}, {"step": 2, "y": 1}]
    steps_T, values_ST = statistics.curve([first, second], "x", window=2)
    assert steps_T.tolist() == [0, 1, 2]
    # running means of two: 1, (1 + 3) / 2, (3 + 8) / 2
    np.testing.assert_array_equal(values_ST, [[1, 2, 5.5], [np.nan, 5, np.nan]])


def test_names_come_from_the_data(seeds):
    found = report_runs.groups(*seeds)
    names = metric_names.all_names(found)
    assert metric_names.parts(names) == ["rhyme", "metre"]
    assert metric_names.agents(found) == ["poet", "critic"]
    measured = ["completion_length", "entropy", "zero_signal", "ratio0"]
    assert metric_names.of_agents(names, ["poet"]) == measured
    assert [line.label for line in metric_names.phases(names)] == ["sample", "update"]


def test_there_is_a_picture_for_what_was_measured_only(seeds, tmp_path):
    shown = [picture.name for picture in panels.pictures(report_runs.groups(*seeds))]
    assert shown == ["return", "parts", "agents", "verdicts", "cost"]
    gap = [row | {"train/hack_gap": 3.0} for row in rows() if "train/return" in row]
    found = {p.name: p for p in panels.pictures(report_runs.groups(write_run(tmp_path / "x", metrics=gap)))}
    assert [line.metric for line in found["hack_gap"].panels[0].lines] == ["train/hack_gap"]
    bare = write_run(tmp_path / "y", metrics=[{"step": 0, "train/return": 1.0}])
    assert [picture.name for picture in panels.pictures(report_runs.groups(bare))] == ["return"]


def test_credit_has_a_picture_of_its_own(tmp_path):
    seen = {"step": 0, "train/return": 1.0, "credit/sign_agreement": 0.5, "credit/interaction": 0.25}
    seen |= {"poet/main_effect": 0.5, "critic/main_effect": 0.25}
    seen |= {f"poet/{name}": 0.5 for name in ("marginal", "free_rider", "dominance", "entropy")}
    groups = report_runs.groups(write_run(tmp_path / "z", metrics=[seen]))
    found = {p.name: p for p in panels.pictures(groups)}
    credit = found["credit"].panels
    shown = {panel.title: {line.label: line.metric for line in panel.lines} for panel in credit}
    effects = {agent: f"{agent}/main_effect" for agent in ("poet", "critic")}
    effects |= {"combination": "credit/interaction"}
    assert shown == {
        "signs that agree": {"team": "credit/sign_agreement"},
        "variance explained": effects, "marginal": {"poet": "poet/marginal"},
        "free rider": {"poet": "poet/free_rider"}, "dominance": {"poet": "poet/dominance"},
    }  # fmt: skip
    styles = {line.label: line.style for panel in credit for line in panel.lines}
    assert sorted(styles.values()) == [0, 1, 2, 3]  # a colour means the same in all panels
    assert [panel.title for panel in found["agents"].panels] == ["entropy"]
    figures.png(found["credit"], groups)


def test_turns_have_a_picture_of_their_own(tmp_path):
    trained = {f"train/turn{t}/return": 10.0 * t for t in (1, 2)}
    held_out = {f"{kind}/return_turn{t}": 7.0 for kind in ("eval", "eval_greedy") for t in (1, 2)}
    held_out |= {"eval/return_turns": 7.0}
    metrics = [{"step": 0, "train/return": 20.0} | trained, {"step": 1} | held_out]
    groups = report_runs.groups(write_run(tmp_path / "x", metrics=metrics))
    (picture,) = (picture for picture in panels.pictures(groups) if picture.name == "turns")
    assert [panel.title for panel in picture.panels] == ["turn 1", "turn 2", "mean of the turns"]
    for t, panel in enumerate(picture.panels[:2], 1):
        wanted = [f"train/turn{t}/return", f"eval/return_turn{t}", f"eval_greedy/return_turn{t}"]
        assert [line.metric for line in panel.lines] == wanted
    assert [line.metric for line in picture.panels[2].lines] == ["eval/return_turns"]
    figures.png(picture, groups)


def test_lines_are_means_and_bands_intervals(seeds):
    groups = report_runs.groups(*seeds)
    picture = {p.name: p for p in panels.pictures(groups)}["return"]
    (axes,) = figures.draw(picture, groups).axes
    thick = {line.get_color(): line.get_xydata().tolist() for line in axes.lines if line.get_linewidth() > 1}
    # training 30, 31, 32 and 36, 37, 38; running means of up to five: 30, 30.5, 31 and 36, 36.5, 37
    assert thick[figures.COLORS[0]] == [[0, 33], [1, 33.5], [2, 34]]
    assert thick[figures.COLORS[1]] == [[0, 23], [3, 63]]  # 20 and 26, 60 and 66
    band = axes.collections[0].get_paths()[0].vertices.tolist()
    assert all(corner in band for corner in ([0, 30], [0, 36], [2, 31], [2, 37]))
    assert figures.in_words(picture, groups).startswith("return, training: 33 at 0, 34 at 2. ")


def test_a_single_run_has_no_band_and_says_so(tmp_path):
    folder = write_run(tmp_path / "x", finished=False)
    groups = report_runs.groups(folder)
    for picture in panels.pictures(groups):
        assert not any(axes.collections for axes in figures.draw(picture, groups).axes)
    text = page.write([folder])[0].read_text()
    assert "There is one run: a single seed, so there is no interval over seeds" in text
    assert "x is not finished" in text


@pytest.mark.parametrize("number", [figures.FEW, figures.FEW + 1])
def test_single_runs_are_drawn_of_few_groups_only(seeds, number):
    (group,) = report_runs.groups(*seeds)
    groups = [Group(f"setting {i}", group.runs) for i in range(number)]
    picture = {p.name: p for p in panels.pictures(groups)}["return"]
    axes, *_ = figures.draw(picture, groups).axes
    lines = len(picture.panels[0].lines)
    thin = [line for line in axes.lines if line.get_linewidth() < 1]
    assert len(thin) == (2 * number * lines if number == figures.FEW else 0)
    assert len(axes.lines) - len(thin) == number * lines
