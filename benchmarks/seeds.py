"""Runs that differ in their seed, side by side: a Markdown table and a picture.

Command:   python -m benchmarks.seeds runs/seed0 runs/seed1 runs/seed2 --picture=docs/coding.png
"""

import argparse
import json
import pathlib
import statistics

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.tables import markdown
from jaxmarl_llm import metrics, plots
from jaxmarl_llm.statistics.series import running_mean, series

COLUMNS = ("return", "return_greedy", "tests", "cooperation", "pass@1")


def load(folder: pathlib.Path) -> dict:
    """The summary of a finished run; ValueError if it has none."""
    path = folder / "summary.json"
    summary = json.loads(path.read_text()) if path.is_file() else {}
    if not {"before", "after"} <= set(summary):
        raise ValueError(f"{folder} holds no finished run")
    return summary


def change(summary: dict, name: str) -> str:
    """Before, after and the gain of one number."""
    before, after = summary["before"][name], summary["after"][name]
    return f"{before:.1f} → {after:.1f} ({after - before:+.1f})"


def mean(summaries: list[dict], name: str) -> str:
    """Means over the runs and the mean gain."""
    both = [statistics.mean(s[when][name] for s in summaries) for when in ("before", "after")]
    return change({"before": {name: both[0]}, "after": {name: both[1]}}, name)


def tables(summaries: list[dict]) -> str:
    """A row per run and their mean; below, the sampled return by grade of the problems."""
    names = [name for name in COLUMNS if name in summaries[0]["after"]]
    rows = [
        (str(s["seed"]), *(change(s, name) for name in names), f"{s['seconds'] / 60:.1f}") for s in summaries
    ]
    minutes = f"{statistics.mean(s['seconds'] for s in summaries) / 60:.1f}"
    rows.append(("mean", *(mean(summaries, name) for name in names), minutes))
    text = markdown(("seed", *(name.replace("_", ", ") for name in names), "minutes"), rows)
    grades = sorted(name for name in summaries[0]["after"] if name.startswith("return_grade"))
    if not grades:
        return text
    by_grade = [(name.removeprefix("return_grade"), mean(summaries, name)) for name in grades]
    return f"{text}\n\n{markdown(('grade', 'return, mean of the runs'), by_grade)}"


def draw(folders: list[pathlib.Path], path: pathlib.Path) -> None:
    """Held-out returns before and after, and the running mean of the training return, of every run."""
    figure = Figure(figsize=(9, 4.2), dpi=150, layout="constrained")
    colors = (plots.TRAIN, plots.SAMPLED, plots.GREEDY, "#CC79A7", "#000000")
    train, test = figure.subplots(1, 2, sharey=True, width_ratios=(2, 1))
    for folder, color in zip(folders, colors, strict=False):
        summary, rows = load(folder), metrics.read_metrics(folder)
        steps, values = series(rows, "train/return")
        train.plot(steps, values, ".", color=color, alpha=0.35, markersize=4)
        train.plot(steps, running_mean(values, 5), color=color, label=f"seed {summary['seed']}")
        for name, style in (("return", "o-"), ("return_greedy", "s:")):
            test.plot([0, 1], [summary[when][name] for when in ("before", "after")], style, color=color)
    train.set(title="training return, mean of 5 iterations", xlabel="iteration", ylabel="return (0..100)")
    test.set(title="test return", xticks=[0, 1], xticklabels=["before", "after"], ylim=(0, 100))
    train.legend()
    test.plot([], [], "o-", color="grey", label="sampled")
    test.plot([], [], "s:", color="grey", label="greedy")
    test.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(str(path))


def main():
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=pathlib.Path, help="folders of finished runs")
    parser.add_argument("--picture", type=pathlib.Path, help="PNG to draw")
    given = parser.parse_args()
    print(tables([load(folder) for folder in given.folders]))
    if given.picture:
        with matplotlib.rc_context(plots.STYLE):
            draw(given.folders, given.picture)


if __name__ == "__main__":
    main()
