"""Compare methods: a picture of the test results of several runs per method, see `methods`."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from jaxmarl_llm import plots
from jaxmarl_llm.analysis.report.methods import UNTRAINED, at

DRAWN = {"return": "test return (0..100), sampled", "pass@1": "test pass@1 (%), sampled"}
COLORS = {"trained": plots.TRAIN, "evaluated only": "#8A8A8A"}


def draw(results: Mapping, mark: str = "at_tokens") -> Figure:
    """Draw the scores of `DRAWN` that the runs have: a panel per score, bars for means, dots for seeds."""
    points = at(results, mark)
    runs = [run for rows in points.values() for run in rows]
    panels = {name: label for name, label in DRAWN.items() if any(name in run["scores"] for run in runs)}
    size = (4.2 * max(len(panels), 1) + 1.6, 0.42 * len(points) + 1.4)
    figure = Figure(figsize=size, dpi=130, layout="constrained")
    grid = figure.subplots(1, max(len(panels), 1), squeeze=False, sharey=True)[0]
    for axes, (score, label) in zip(grid, panels.items(), strict=False):
        _draw_bars(axes, points, results, score)
        axes.set(xlabel=label)
        axes.grid(axis="y", visible=False)
    grid[0].set_yticks(range(len(points)), list(reversed(points)))
    handles = [Patch(color=color, alpha=0.5, label=label) for label, color in COLORS.items()]
    dots = dict(linestyle="none", marker="o", markersize=5, color=plots.SAMPLED)
    handles.append(Line2D([], [], **dots, label="dots: seeds"))
    figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=9)
    return figure


def _draw_bars(axes: Axes, points: Mapping, results: Mapping, score: str) -> None:
    for y, (method, runs) in enumerate(reversed(points.items())):
        values = [run["scores"][score] for run in runs if run["scores"].get(score) is not None]
        if not values:
            continue
        trained = not any(UNTRAINED in marks for marks in results[method].values())
        axes.barh(y, np.mean(values), color=COLORS["trained" if trained else "evaluated only"], alpha=0.5)
        if trained:  # an untrained method has one evaluation, which the bar shows
            axes.plot(values, [y] * len(values), "o", color=plots.SAMPLED, markersize=5)
