"""plots.py: the picture exists, its axes are labelled, its curves are the rows."""

import pytest
from matplotlib.image import imread

from jaxmarl_llm.plots import PARTS, draw, learning_curve


def run_rows() -> list[dict]:
    """40 training steps, evaluations at 0, 20 and 40, one training value that was not finite."""
    rows = []
    for step in range(41):
        row = {"step": step, "train/return": 20.0 + step if step != 7 else None}
        row |= {f"train/{part}": 10.0 + step for part in PARTS}
        rows.append(row)
        if step % 20 == 0:
            held_out = {"step": step, "eval/return": 25.0 + step, "eval/return_low": 20.0 + step,
                        "eval/return_high": 32.0 + step, "eval/return_greedy": 40.0 + step / 2}
            for part in PARTS:
                held_out |= {f"eval/{part}": 15.0 + step, f"eval_greedy/{part}": 25.0 + step}
            rows.append(held_out)
    return rows


def test_picture_is_written_and_not_blank(tmp_path):
    path = learning_curve(run_rows(), tmp_path / "plots" / "learning_curve.png")
    pixels = imread(path)
    assert pixels.shape[0] > 500 and pixels.shape[1] > 1000
    assert pixels[..., :3].std() > 0.02


def test_axes_are_labelled_on_the_scale_and_share_the_steps():
    figure = draw(run_rows(), "title", PARTS, 10)
    main, *small = figure.axes
    assert (main.get_title(), main.get_ylabel()) == ("title", "return (0..100)")
    assert [axes.get_title() for axes in small] == list(PARTS)
    for axes in (main, *small):
        low, high = axes.get_ylim()
        assert low <= 0 and high >= 100
        assert axes.get_xlim() == main.get_xlim()
        assert axes.get_xlabel() == "training step"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "training, each step", "training, mean of 10 steps",
        "validation, sampled", "95 % interval", "validation, greedy"]


def test_curves_are_the_rows():
    main = draw(run_rows(), "", (), 5).axes[0]
    curves = {line.get_label(): line.get_xydata().tolist() for line in main.lines}
    assert curves["validation, sampled"] == [[0, 25], [20, 45], [40, 65]]
    assert curves["validation, greedy"] == [[0, 40], [20, 50], [40, 60]]
    assert [7, 27] not in curves["training, each step"] and len(curves["training, each step"]) == 40
    band = main.collections[0].get_paths()[0].vertices.tolist()
    assert all([x, y] in band for x, y in ([0, 20], [0, 32], [20, 40], [20, 52], [40, 60], [40, 72]))


def test_what_is_missing_is_left_out(tmp_path):
    rows = [{"step": 0, "eval/return": 3.0}]
    assert len(draw(rows, "", (), 10).axes[0].lines) == 1
    assert learning_curve(rows, tmp_path / "a.png").exists()
    with pytest.raises(ValueError, match="nothing to draw"):
        learning_curve([{"step": 0, "train/return": None}], tmp_path / "b.png")
    assert not (tmp_path / "b.png").exists()


def test_two_evaluations_are_points_with_bars():
    rows = [row for row in run_rows() if "eval/return" not in row or row["step"] != 20]
    main = draw(rows, "", (), 5).axes[0]
    lines = {line.get_label(): line for line in main.lines}
    for label in ("validation, sampled", "validation, greedy"):
        assert lines[label].get_linestyle() == "None" and len(lines[label].get_xdata()) == 2
    bars = main.collections[0].get_segments()
    assert [bar.tolist() for bar in bars] == [[[0, 20], [0, 32]], [[40, 60], [40, 72]]]


def test_the_test_is_read_at_both_ends():
    ends = [
        {"step": step, "test/return": 10.0 + step, "test/return_low": step, "test/return_high": 20.0 + step}
        for step in (0, 40)
    ]
    main = draw(ends + run_rows(), "", (), 5).axes[0]
    (line,) = (line for line in main.lines if line.get_label() == "test, sampled")
    assert line.get_xydata().tolist() == [[0, 10], [40, 50]] and line.get_linestyle() == "None"
    bars = [bar.tolist() for bar in main.collections[-1].get_segments()]
    assert bars == [[[0, 0], [0, 20]], [[40, 40], [40, 60]]]
    labels = main.get_legend_handles_labels()[1]
    assert labels.count("95 % interval") == 1 and "test, sampled" in labels
