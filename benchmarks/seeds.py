"""Compare runs that differ in their seed: a Markdown table of test results by state, and a picture.

Command:   python -m benchmarks.seeds runs/seed0 runs/seed1 runs/seed2 --picture=docs/coding.png
A number is the mean over the runs. Round brackets have its 95 % interval over the runs, square brackets that
over the test problems, which are the same in all runs.
"""

import argparse
import itertools
import json
import pathlib
import statistics

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.tables import markdown
from jaxmarl_llm import metrics, plots
from jaxmarl_llm.analysis.report.methods import with_intervals
from jaxmarl_llm.cli import entry
from jaxmarl_llm.runs import begin, final_table, run_folder
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.statistics.series import running_mean, series

STATES = final_table.TITLES | {"best": "trained, best on validation"}


def load(folder: pathlib.Path) -> dict:
    """The summary of a finished run; ValueError if it has none."""
    path = folder / "summary.json"
    summary = json.loads(path.read_text()) if path.is_file() else {}
    if not {"before", "after"} <= set(summary):
        raise UserError(f"{folder} holds no finished run")
    return summary


def table(folders: list[pathlib.Path]) -> str:
    """A row per number and a column per state of the runs, and below it the minutes of a run."""
    summaries = [load(folder) for folder in folders]
    states = [state for state in STATES if all(state in summary for summary in summaries)]
    after = summaries[0]["after"]
    run_seconds = [seconds(folder, summary) for folder, summary in zip(folders, summaries, strict=True)]
    shown = (*final_table.PARTS, "return_greedy", "pass@1", *final_table.kinds_of_items(after))
    names = [name for name in shown if name in after]
    rows = [(name, *(_cell(folders, summaries, state, name) for state in states)) for name in names]
    text = markdown(("test, 0..100", *(STATES[state] for state in states)), rows)
    minutes = statistics.mean(run_seconds) / 60
    return f"{text}\n\nruns: {len(folders)}; minutes of each, evaluations and warm-up included: {minutes:.0f}"


def _cell(folders: list[pathlib.Path], summaries: list[dict], state: str, name: str) -> str:
    """Mean and intervals of a number of one state; empty if a run does not have it."""
    values = [summary[state].get(name) for summary in summaries]
    if None in values:
        return ""
    items = [final_table.sampled_items(folder, state) for folder in folders]
    known = all(rows and all(name in row for row in rows) for rows in items)
    return with_intervals(values, [[row[name] for row in rows] for rows in items] if known else ())


def seconds(folder: pathlib.Path, summary: dict) -> float:
    """Seconds of a run, including the warm-up that it begins from, even if other runs share it."""
    config = run_folder.load_run(folder)
    warm_up = begin.source(config, folder) if config.warm_up.steps else None
    return summary["seconds"] + (load(warm_up)["seconds"] if warm_up else 0)


def draw(folders: list[pathlib.Path], path: pathlib.Path) -> None:
    """The running mean of the training return, and the test return of every state, of every run."""
    figure = Figure(figsize=(9, 4.2), dpi=150, layout="constrained")
    colors = (plots.TRAIN, plots.SAMPLED, plots.GREEDY, "#CC79A7", "#000000")
    train, test = figure.subplots(1, 2, sharey=True, width_ratios=(2, 1))
    summaries = [load(folder) for folder in folders]
    shown = [state for state in final_table.TITLES if state in summaries[0]]
    for folder, summary, color in zip(folders, summaries, itertools.cycle(colors), strict=False):
        rows = metrics.read_metrics(folder)
        steps, values = series(rows, "train/return")
        train.plot(steps, values, ".", color=color, alpha=0.35, markersize=4)
        train.plot(steps, running_mean(values, 5), color=color, label=f"seed {summary['seed']}")
        for name, style in (("return", "o-"), ("return_greedy", "s:")):
            test.plot(range(len(shown)), [summary[state][name] for state in shown], style, color=color)
    train.set(title="training return, mean of 5 iterations", xlabel="iteration", ylabel="return (0..100)")
    test.set(title="test return", ylim=(0, 100))
    test.set_xticks(range(len(shown)), [final_table.TITLES[state] for state in shown])
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
    args = parser.parse_args()
    print(table(args.folders))
    if args.picture:
        with matplotlib.rc_context(plots.STYLE):
            draw(args.folders, args.picture)


if __name__ == "__main__":
    entry.run_script(main)
