"""The table of runs that differ in their seed: means, intervals and minutes by hand."""

import json

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from benchmarks import seeds
from configs import coding


def run(folder, before, after, warm=None, seconds=60.0, warm_up=()):
    """The files of a finished run that the table reads; a state is the returns of two problems."""
    config = coding.get_config("smoke")
    config.warm_up.update(dict(warm_up))
    states = {"before": before, "warm": warm, "after": after}
    summary = {"seed": 0, "seconds": seconds}
    (folder / "test").mkdir(parents=True)
    for name, returns in states.items():
        if returns:
            summary[name] = {"return": sum(returns) / 2, "return_greedy": 1.0, "return_grade2": 7.0}
            kept = {"sampled": {"items": [{"return": value} for value in returns]}}
            (folder / "test" / f"{name}.json").write_text(json.dumps(kept))
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    return folder


def cells(table):
    """By the name in its first column the rest of each row, as texts."""
    lines = [line.strip("|").split("|") for line in table.splitlines() if "|" in line]
    rows = [[cell.strip() for cell in line] for line in lines]
    return {row[0]: row[1:] for row in rows}


def test_means_over_the_runs_with_both_intervals(tmp_path):
    folders = [run(tmp_path / "a", (0, 20), (30, 50)), run(tmp_path / "b", (10, 30), (50, 70))]
    actual = cells(seeds.table(folders))
    assert actual["test, 0..100"] == ["untrained", "trained"]
    # Means 10 and 20: 15, and t(1 degree of freedom) = 12.706 times 7.07 / sqrt(2) = 5 on both sides.
    assert actual["return"][0].startswith("15.0 (-48.5, 78.5) [")
    assert actual["return"][0].endswith("[5.0, 25.0]")  # of two problems, with means of 5 and 25
    assert actual["return_grade2"] == ["7.0 (7.0, 7.0)"] * 2  # the kept answers have no such number


@pytest.mark.parametrize("shared", [False, True])
def test_a_warm_up_is_a_state_and_its_time_counts(tmp_path, shared):
    place = str(tmp_path / "warm" / "{seed}") if shared else ""
    folder = run(tmp_path / "a", (0, 20), (30, 50), warm=(20, 40), warm_up={"steps": 3, "folder": place})
    run(tmp_path / "warm" / "0" if shared else folder / "warm_up", (0, 20), (20, 40), seconds=120.0)
    text = seeds.table([folder])
    assert cells(text)["test, 0..100"] == ["untrained", "warmed up", "trained"]
    assert cells(text)["return"][1].startswith("30.0 [20.0")
    assert text.endswith("included: 3")


def test_an_unfinished_run_is_named(tmp_path):
    with pytest.raises(ValueError, match="nothing holds no finished run"):
        seeds.table([tmp_path / "nothing"])


def test_every_run_is_drawn(tmp_path, monkeypatch):
    folders = [run(tmp_path / str(number), (0, 20), (30, 50)) for number in range(7)]
    for folder in folders:
        (folder / "metrics.jsonl").write_text(json.dumps({"step": 0, "train/return": 1.0}) + "\n")
    drawn = []
    monkeypatch.setattr(seeds, "FigureCanvasAgg", lambda figure: drawn.append(figure) or FigureCanvasAgg(figure))
    seeds.draw(folders, tmp_path / "runs.png")
    (figure,) = drawn
    assert len(figure.axes[0].get_legend().get_texts()) == 7
