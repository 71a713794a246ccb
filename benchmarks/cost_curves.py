"""Seconds per iteration against group size, agents over one base, completion length, and turns.

    python -m benchmarks.cost_curves --json=curves.json --plot=curves.png

One problem, adapters over one base, as in `benchmarks.iteration`; every curve changes one number and keeps
the others at their defaults. Every point is the median over rounds in which the points of a curve take turns.
A turn costs as much as an iteration whose prompt contains all earlier turns, so such iterations are summed.
"""

import argparse
import functools
import json
import pathlib
import statistics
from collections.abc import Sequence

import numpy as np

from benchmarks import machine, ours, rounds
from benchmarks.tables import markdown
from jaxmarl_llm.utils import host_memory
from jaxmarl_llm.weights import model_files

BASE = {"group": 4, "agents": 2, "new_tokens": 64, "prompt_tokens": 96}
FEEDBACK = 64  # tokens between an answer and the next
TURNS = (1, 2, 3, 4)
CURVES = {
    "group": (2, 4, 8, 16, 32),
    "agents": (1, 2, 4, 8),
    "new_tokens": (32, 64, 128, 256),
    "prompt_tokens": tuple(BASE["prompt_tokens"] + (t - 1) * (BASE["new_tokens"] + FEEDBACK) for t in TURNS),
}


def of_turns(by_prompt: Sequence[float]) -> list[float]:
    """Seconds of 1, 2, .. turns, from the seconds of iterations with each turn's prompt."""
    return np.cumsum(by_prompt).tolist()


def fit(x: Sequence[float], seconds: Sequence[float]) -> tuple[float, float, float]:
    """Least squares: intercept and slope of seconds = intercept + slope * x, and the explained variance."""
    slope, intercept = np.polyfit(x, seconds, 1)
    rest = np.var(np.asarray(seconds) - (intercept + slope * np.asarray(x)))
    return float(intercept), float(slope), float(1 - rest / np.var(seconds))


def measure(curve: str, values: Sequence[int], model: str, mode: str, number: int) -> list[float]:
    """Seconds per iteration at each value of a setting."""
    units = {}
    for value in values:
        sizes = BASE | {curve: value}
        names = tuple(f"agent{n + 1}" for n in range(sizes.pop("agents")))
        config = ours.make_config(model=model, mode=mode, sampling_dtype="float32", agents=names, **sizes)
        ask = functools.partial(ours.Ours(config).ask, "iteration", sizes["new_tokens"])
        units[str(value)] = ask
    seconds = rounds.alternate(units, number)
    return [statistics.median(sum(phases.values()) for phases in seconds[str(value)]) for value in values]


def plot(curves: dict[str, tuple[Sequence[float], Sequence[float]]], path: pathlib.Path) -> None:
    """The curves side by side, each with its fitted line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(curves), 2.8), layout="constrained")
    axes = figure.subplots(1, len(curves))
    for axis, (name, (x, seconds)) in zip(axes, curves.items(), strict=True):
        intercept, slope, _ = fit(x, seconds)
        axis.plot(x, seconds, "o", color="#1f6f8b")
        axis.plot(x, [intercept + slope * value for value in x], color="#99a8b2", linewidth=1)
        axis.set_xlabel(name.replace("_", " "))
        axis.set_ylim(0)
        axis.set_title(f"{intercept:.1f} + {slope:.3g} x", fontsize=9)
    axes[0].set_ylabel("seconds per iteration")
    figure.savefig(path, dpi=130)


def main(arguments=None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", default="adapters", choices=("full", "adapters"), help="what is trained")
    parser.add_argument("--model", default=model_files.DEFAULT, help="as config.model")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count, after one that does not")
    parser.add_argument("--json", type=pathlib.Path, help="write the numbers there")
    parser.add_argument("--plot", type=pathlib.Path, help="draw them there")
    args = parser.parse_args(arguments)
    host_memory.keep()  # as in every command
    print(machine.describe())
    curves = {}
    for name, values in CURVES.items():
        seconds = measure(name, values, args.model, args.mode, args.rounds)
        curves[name] = values, seconds
    curves["turns"] = TURNS, of_turns(curves.pop("prompt_tokens")[1])
    rows = []
    for name, (x, seconds) in curves.items():
        intercept, slope, explained = fit(x, seconds)
        points = ", ".join(f"{value}: {s:.2f}" for value, s in zip(x, seconds, strict=True))
        rows.append((name, points, f"{intercept:.2f} + {slope:.3g} x", f"{100 * explained:.1f} %"))
    print(markdown(("against", "seconds", "fit", "explained"), rows))
    if args.json:
        args.json.write_text(json.dumps(curves, indent=1) + "\n")
    if args.plot:
        plot(curves, args.plot)


if __name__ == "__main__":
    main()
