"""Methods side by side at an equal budget: `python -m experiments.compare --task=coding`.

Runs what `configs/compare.py` lists and what is not finished yet, each in a process of its own, and writes
the table of all that is finished as compare.md, its numbers as compare.json, its picture as compare.png.
Stopped, it goes on where it was; ``--have=docs/compare_coding_tokens.json`` takes from such a file what was
finished elsewhere.
"""

import json
import pathlib
import subprocess
import sys

import matplotlib
import numpy as np
from absl import flags
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from configs import compare
from experiments import cli
from jaxmarl_llm import console, files, metrics, plots
from jaxmarl_llm.statistics import bootstrap

# Of the numbers of an evaluation those that are no scores of their own.
SKIPPED = ("step", "return_low", "return_high", "return_greedy")
COST = {  # of an answer with what led to it, and of training
    "answer_tokens": "tokens per answer",
    "answer_tokens_per_s": "tokens/s",
    "answer_seconds": "seconds per answer",
    "tokens": "training tokens",
    "tokens_per_s": "training tokens/s",
    "minutes": "training minutes",
}
# Of the runs: a machine that does other work slows down only some of them.
FASTEST = {
    "answer_tokens_per_s": max,
    "answer_seconds": min,
    "tokens_per_s": max,
    "minutes": min,
}

# Scores in the picture, and what their axes are called.
DRAWN = {"return": "test return (0..100), sampled", "pass@1": "test pass@1 (%), sampled"}
COLORS, DOT = {"trained": plots.TRAIN, "untrained": "#8A8A8A"}, plots.SAMPLED


def command(task: str, unit: str, name: str, seed: int, folder: pathlib.Path) -> list[str]:
    """What trains, or evaluates, one member."""
    config = [f"--config=configs/compare.py:task={task},unit={unit},member={name}", f"--config.seed={seed}"]
    if compare.MEMBERS[task][name].trained:
        return [sys.executable, "-m", "experiments.train", *config, f"--workdir={folder}"]
    return [sys.executable, "-m", "experiments.evaluate", *config, f"--out={folder / 'evaluation.json'}"]


def result(folder: pathlib.Path) -> dict:
    """Scores (0..100) and cost of a finished member; {} if it is not finished."""
    summary, evaluation = folder / "summary.json", folder / "evaluation.json"
    if evaluation.is_file():
        found = json.loads(evaluation.read_text())
        means = {name: ends["mean"] for name, ends in found["sampled"]["scores"].items()}
        means["greedy"] = found["greedy"]["scores"]["return"]["mean"]
        lengths = [agent["completion_length"] for agent in found["sampled"]["agents"].values()]
        tokens = found["sampled"].get("answer_tokens", sum(lengths))  # the sum is of the last answers only
        return {"scores": means, "answer_tokens": tokens} | _speed(found.get("speed", {}))
    if not summary.is_file() or "after" not in (found := json.loads(summary.read_text())):
        return {}
    after, rows = found["after"], metrics.read_metrics(folder)
    means = {name: value for name, value in after.items() if "/" not in name and name not in SKIPPED}
    lengths = [value for name, value in after.items() if name.startswith("length/")]
    rows = [row for row in rows if "tokens_per_s" in row]
    seconds, drawn = sum(row["seconds"] for row in rows), sum(r["tokens_per_s"] * r["seconds"] for r in rows)
    return {
        "scores": means | {"greedy": after["return_greedy"]},
        "answer_tokens": after.get("tokens/answer", sum(lengths)),
        "tokens": round(drawn),
        "tokens_per_s": drawn / seconds,
        "minutes": found["seconds"] / 60,
        "steps": after["step"],
    } | _speed({name.removeprefix("speed/"): value for name, value in after.items()})


def _speed(found: dict) -> dict:
    """How fast answers come, where that was measured."""
    names = {"answer_tokens_per_s": "tokens_per_s", "answer_seconds": "seconds_per_answer"}
    return {ours: found[theirs] for ours, theirs in names.items() if theirs in found}


def table(results: dict[str, dict[str, dict]]) -> tuple[list[str], list[list[str]]]:
    """Headers and a row per method: means over its runs, with their 95 % bootstrap intervals in brackets.

    Speed and time are those of the fastest run.
    """
    runs_of = {method: list(by_seed.values()) for method, by_seed in results.items()}
    names = dict.fromkeys(name for runs in runs_of.values() for run in runs for name in run["scores"])
    parts = [n for n in names if n not in ("return", "greedy") and not n.startswith("return_")]
    rows = []
    for method, runs in runs_of.items():
        means = [_mean([run["scores"].get(name) for run in runs]) for name in ("return", "greedy", *parts)]
        cost = [_cost(name, [run[name] for run in runs if name in run]) for name in COST]
        rows.append([method, str(len(runs)), *means, *cost])
    return ["method", "runs", "return", "greedy", *parts, *COST.values()], rows


def _mean(values, digits: int = 1) -> str:
    """Mean and interval of what is known; of one run there is no interval."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    mean, low, high = (f"{float(end):.{digits}f}" for end in bootstrap.interval(known))
    return mean if len(known) == 1 else f"{mean} [{low}, {high}]"


def _cost(name: str, known) -> str:
    if name in FASTEST:
        return f"{FASTEST[name](known):.3g}" if known else ""
    return _mean(known, digits=0)


def draw(task: str, results: dict[str, dict[str, dict]]) -> Figure:
    """Bars of the mean of each score of `DRAWN` that there is, in a panel each; dots are seeds."""
    runs = [run for by_seed in results.values() for run in by_seed.values()]
    drawn = {name: label for name, label in DRAWN.items() if any(name in run["scores"] for run in runs)}
    figure = Figure(
        figsize=(4.2 * len(drawn) + 1.6, 0.42 * len(results) + 1.4), dpi=130, layout="constrained"
    )
    grid = figure.subplots(1, len(drawn), squeeze=False, sharey=True)[0]
    for axes, (score, label) in zip(grid, drawn.items(), strict=True):
        _draw_bars(axes, task, results, score)
        axes.set(xlabel=label)
        axes.grid(axis="y", visible=False)
    names = [_drawn_name(task, name) for name in reversed(results)]
    grid[0].set_yticks(range(len(results)), names)
    handles = [Patch(color=color, alpha=0.5, label=label) for label, color in COLORS.items()]
    handles.append(Line2D([], [], linestyle="none", marker="o", markersize=5, color=DOT, label="dots: seeds"))
    figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=9)
    return figure


def _draw_bars(axes: Axes, task: str, results: dict[str, dict[str, dict]], score: str) -> None:
    for y, (name, by_seed) in enumerate(reversed(results.items())):
        known = [run["scores"][score] for run in by_seed.values() if run["scores"].get(score) is not None]
        if not known:
            continue
        trained = compare.MEMBERS[task][name].trained
        axes.barh(y, np.mean(known), color=COLORS["trained" if trained else "untrained"], alpha=0.5)
        if trained:  # one that is not is a single evaluation, and the bar is that
            axes.plot(known, [y] * len(known), "o", color=DOT, markersize=5)


def _drawn_name(task: str, name: str) -> str:
    """The method, and whether it is one agent: returns of one and of two are shares of different sums."""
    agents = compare.get_config(f"task={task},member={name}").team.agents
    return f"{name} (one agent)" if len(agents) == 1 else name


def compare_all(task: str, unit: str, workdir: pathlib.Path, have: dict) -> dict[str, dict[str, dict]]:
    """Run what is missing; returns the results by method and seed, which compare.json has at any time.

    ``have`` are results of the same kind that are finished. RuntimeError with the command of the first member
    that fails, ValueError for one that was finished with another budget; what is finished stays.
    """
    results: dict[str, dict[str, dict]] = {}
    for name, member in compare.MEMBERS[task].items():
        for seed in compare.SEEDS if member.trained else compare.SEEDS[:1]:
            folder = workdir / name / f"seed{seed}"
            found = have.get(name, {}).get(str(seed)) or result(folder)
            if not found:
                folder.mkdir(parents=True, exist_ok=True)
                asked = command(task, unit, name, seed, folder)
                print(f"\n{name}, seed {seed}: {' '.join(asked[1:])}", flush=True)
                if subprocess.run(asked).returncode:
                    raise RuntimeError(f"{name}, seed {seed} failed: {' '.join(asked)}")
                found = result(folder)
            if found:  # nothing where the run was stopped
                _check_budget(task, unit, name, seed, found)
                results.setdefault(name, {})[str(seed)] = found
                files.atomic_write_text(workdir / "compare.json", json.dumps(results, indent=2) + "\n")
    return results


def _check_budget(task: str, unit: str, name: str, seed: int, found: dict) -> None:
    """ValueError if a finished run had another number of iterations than the budget gives it now."""
    steps = compare.get_config(f"task={task},unit={unit},member={name}").train.steps
    if unit != "minutes" and found.get("steps", steps) != steps:
        raise ValueError(
            f"{name}, seed {seed} has {found['steps']} iterations, the budget gives it {steps}; "
            "take another --workdir, or leave it out of --have"
        )


def main(argv):
    """Command line entry."""
    cli.refuse_arguments(argv)
    task, unit = flags.FLAGS.task, flags.FLAGS.unit
    workdir = pathlib.Path(flags.FLAGS.workdir) / f"{task}_{unit}"
    have = json.loads(pathlib.Path(flags.FLAGS.have).read_text()) if flags.FLAGS.have else {}
    results = compare_all(task, unit, workdir, have)
    headers, rows = table(results)
    budget = f"at most {compare.BUDGET[task][unit]:,} {unit} in training"
    title = f"{task}, {budget}; in brackets 95 % intervals over the runs; speed of the fastest"
    console.table(rows, headers, title)
    files.atomic_write_text(workdir / "compare.md", console.markdown(rows, headers, title))
    with matplotlib.rc_context(plots.STYLE):
        FigureCanvasAgg(draw(task, results)).print_png(str(workdir / "compare.png"))
    print(f"compare.md, compare.json and compare.png are in {workdir}")


if __name__ == "__main__":
    flags.DEFINE_enum("task", "coding", list(compare.MEMBERS), "What is compared.")
    flags.DEFINE_enum("unit", "tokens", list(compare.UNITS), "What is equal.")
    flags.DEFINE_string("have", "", "compare.json of an earlier comparison: what it has is not run again.")
    flags.DEFINE_string("workdir", "runs/compare", "Folder with a run folder per method and seed.")
    cli.run(main)
