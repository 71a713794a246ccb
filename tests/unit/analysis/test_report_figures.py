"""The pictures of a report: lines that are the data."""

import pytest
import report_runs
from matplotlib.collections import LineCollection
from report_runs import rows, write_run

from jaxmarl_llm.analysis.report import figures, metric_names, page, panels
from jaxmarl_llm.analysis.report.grouping import Group


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    return report_runs.two_seeds(tmp_path_factory.mktemp("seeds"))


def test_names_come_from_the_data(seeds):
    actual = report_runs.groups(*seeds)
    names = metric_names.all_names(actual)
    assert metric_names.parts(names) == ["rhyme", "metre"]
    assert metric_names.agents(actual) == ["poet", "critic"]
    measured = ["completion_length", "entropy", "zero_signal", "ratio0"]
    assert metric_names.of_agents(names, ["poet"]) == measured
    assert [line.label for line in metric_names.phases(names)] == ["sample", "update"]


def test_there_is_a_picture_for_what_was_measured_only(seeds, tmp_path):
    shown = [picture.name for picture in panels.pictures(report_runs.groups(*seeds))]
    assert shown == ["return", "parts", "agents", "verdicts", "cost"]
    gap = [row | {"train/hack_gap": 3.0} for row in rows() if "train/return" in row]
    actual = {p.name: p for p in panels.pictures(report_runs.groups(write_run(tmp_path / "x", metrics=gap)))}
    assert [line.metric for line in actual["hack_gap"].panels[0].lines] == ["train/hack_gap"]
    bare = write_run(tmp_path / "y", metrics=[{"step": 0, "train/return": 1.0}])
    assert [picture.name for picture in panels.pictures(report_runs.groups(bare))] == ["return"]


def test_credit_has_a_picture_of_its_own(tmp_path):
    seen = {"step": 0, "train/return": 1.0, "credit/sign_agreement": 0.5, "credit/interaction": 0.25}
    seen |= {"poet/main_effect": 0.5, "critic/main_effect": 0.25}
    seen |= {f"poet/{name}": 0.5 for name in ("marginal", "free_rider", "dominance", "entropy")}
    groups = report_runs.groups(write_run(tmp_path / "z", metrics=[seen]))
    actual = {p.name: p for p in panels.pictures(groups)}
    credit = actual["credit"].panels
    shown = {panel.title: {line.label: line.metric for line in panel.lines} for panel in credit}
    effects = {agent: f"{agent}/main_effect" for agent in ("poet", "critic")}
    effects |= {"combination": "credit/interaction"}
    assert shown == {
        "signs that agree": {"all agents": "credit/sign_agreement"},
        "variance explained": effects, "marginal": {"poet": "poet/marginal"},
        "free rider": {"poet": "poet/free_rider"}, "dominance": {"poet": "poet/dominance"},
    }  # fmt: skip
    styles = {line.label: line.style for panel in credit for line in panel.lines}
    assert sorted(styles.values()) == [0, 1, 2, 3]  # a colour means the same in all panels
    assert [panel.title for panel in actual["agents"].panels] == ["entropy"]
    figures.png(actual["credit"], groups)


def test_every_metric_is_in_one_panel_or_left_out(tmp_path):
    """Names as the systems log them, and two of a user's own credit; what is left out is named here too."""
    system = ["team/critic_explained", "team/critic_loss", "team/critic_grad_norm", "preference/pairs"]
    system += ["preference/gap", "madpo/loss", "madpo/accuracy", "madpo/margin", "reward_model/loss"]
    system += ["reward_model/accuracy", "reward_model/correlation", "mine/novelty", "novelty", "lessons/mine"]
    drawn = ["train/return", "train/turn1/return", "train/rhyme", "train/hack_gap", "eval/return"]
    drawn += ["eval_greedy/return", "eval/return_turn1", "eval/rhyme", "poet/entropy", "poet/critic_loss"]
    drawn += ["poet/marginal", "lessons/effect", "lessons/told", "executor/verdict/pass"]
    drawn += ["eval/verdict/pass", "seconds", "seconds/update", "tokens_per_s", "executor/runs"]
    drawn += ["expert/input_tokens"]
    left_out = ["step", "eval/return_low", "eval_greedy/return_high", "eval/pass@1", "eval/return_greedy"]
    left_out += ["eval/length/poet", "eval/truncated/poet", "eval/tokens/answer", "eval/speed/tokens_per_s"]
    left_out += ["executor/cached_share", "eval_executor/runs", "memory/peak_rss_mb", "seconds/evaluate"]
    left_out += ["train/turn1/rhyme", "eval/verdict/fail"]
    row = {name: 1.0 for name in (*system, *drawn, *left_out)} | {"step": 0, "eval/verdict/fail": 0}
    groups = report_runs.groups(write_run(tmp_path / "x", metrics=[row]))
    actual = {p.name: panels.metrics(p) for p in panels.pictures(groups)}
    shown = [name for names in actual.values() for name in names]
    assert {name: shown.count(name) for name in row} == {name: int(name not in left_out) for name in row}
    assert actual["system"] == system
    assert [name for name in left_out if not metric_names.LEFT_OUT.fullmatch(name)] == []


def test_the_picture_of_the_system_has_units(tmp_path):
    metrics = [{"step": s, "train/return": 1.0, "madpo/accuracy": s / 4, "mine": 2.0 * s} for s in range(3)]
    groups = report_runs.groups(write_run(tmp_path / "x", metrics=metrics))
    picture = {p.name: p for p in panels.pictures(groups)}["system"]
    axes = figures.draw(picture, groups).axes[:2]
    labels = [(each.get_title(), each.get_ylabel()) for each in axes]
    assert labels == [("madpo/accuracy", "share of pairs"), ("mine", "")]


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
    sampled = [line for line in axes.lines if line.get_color() == figures.COLORS[1]]
    assert [line.get_linestyle() for line in sampled] == ["None"]  # nothing is known between two evaluations
    bars = [c for c in axes.collections if isinstance(c, LineCollection)][0].get_segments()
    assert [bar.tolist() for bar in bars] == [[[0, 20], [0, 26]], [[3, 60], [3, 66]]]
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
    assert len(thin) == (2 * number if number == figures.FEW else 0)  # of training; of two evaluations none
    assert len(axes.lines) - len(thin) == number * lines


def test_evaluations_in_between_make_a_line(tmp_path):
    more = [*rows(), {"step": 1, "eval/return": 30.0, "eval_greedy/return": 31.0}]
    groups = report_runs.groups(write_run(tmp_path / "x", metrics=sorted(more, key=lambda row: row["step"])))
    picture = {p.name: p for p in panels.pictures(groups)}["return"]
    figure = figures.draw(picture, groups)
    drawn = {line.get_marker(): line for line in figure.axes[0].lines}
    assert drawn["o"].get_xydata().tolist() == [[0, 20], [1, 30], [3, 60]]
    assert drawn["o"].get_linestyle() == "-" and drawn["s"].get_linestyle() == "-"
    markers = [handle.get_marker() for handle in figure.legends[0].legend_handles]
    assert markers == ["", "o", "s"]  # training, sampled and greedy are told apart


def test_a_panel_that_never_changes_is_told_and_not_drawn(tmp_path):
    """zero_signal is 0.25 and ratio0 1 in every row that `report_runs` writes."""
    groups = report_runs.groups(write_run(tmp_path / "x"))
    agents = {p.name: p for p in panels.pictures(groups)}["agents"]
    assert [panel.title for panel in agents.panels] == ["completion_length", "entropy"]
    assert agents.caption.endswith("it is the same in every iteration: zero_signal (0.25), ratio0 (1).")
    once = report_runs.groups(write_run(tmp_path / "y", metrics=rows()[:2]))  # one iteration
    agents = {p.name: p for p in panels.pictures(once)}["agents"]
    assert len(agents.panels) == 4 and "Not drawn" not in agents.caption


def test_axes_have_their_units_once(seeds):
    (group,) = report_runs.groups(*seeds)
    groups = [Group(f"setting {i}", group.runs) for i in range(5)]
    actual = {p.name: p for p in panels.pictures(groups)}
    figure = figures.draw(panels.for_each(actual["return"], groups), groups)
    assert figure.get_supylabel() == "return (0..100)" and figure.get_supxlabel() == "iteration"
    shown = figure.axes[:5]
    assert not any(axes.get_ylabel() or axes.get_xlabel() for axes in shown)
    assert len({axes.get_ylim() for axes in shown}) == 1
    agents = figures.draw(actual["agents"], groups)
    assert agents.get_supylabel() == ""
    assert [axes.get_ylabel() for axes in agents.axes[:2]] == ["tokens", "nats per token"]


def test_times_are_on_a_logarithmic_scale(seeds):
    """The first iteration compiles and takes many times as long as the others."""
    groups = report_runs.groups(*seeds)
    picture = {p.name: p for p in panels.pictures(groups)}["cost"]
    scales = {axes.get_title(): axes.get_yscale() for axes in figures.draw(picture, groups).axes}
    assert scales == {"time": "log", "speed": "linear", "executions": "linear"}


def test_a_line_without_a_name_has_no_legend(tmp_path):
    metrics = [{"step": s, "train/return": 1.0, "lessons/effect": s / 4} for s in range(3)]
    groups = report_runs.groups(write_run(tmp_path / "x", metrics=metrics))
    picture = {p.name: p for p in panels.pictures(groups)}["lessons"]
    figure = figures.draw(picture, groups)
    assert not figure.legends and figure.axes[0].get_ylabel() == "reward with lessons less without"
    assert figures.in_words(picture, groups) == "what lessons are worth: 0 at 0, 0.25 at 2."
