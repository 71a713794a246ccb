"""Figure of a convention sweep: joint success of each variant beside the success from skill alone."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from jaxmarl_llm import plots

SKILL = "#8A8A8A"


def draw(variants: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """Draw the mean joint success as bars, each seed as a dot, and the success from skill alone as a line.

    Args:
      variants: by variant name, ``joint`` and ``by_skill`` of each seed, in percent.
    """
    figure = Figure(figsize=(7.2, 0.42 * len(variants) + 1.4), dpi=130, layout="constrained")
    axes = figure.subplots()
    for y, runs in enumerate(reversed(variants.values())):
        joint = [run["joint"] for run in runs]
        axes.barh(y, np.mean(joint), color=plots.TRAIN, alpha=0.5)
        axes.plot(joint, [y] * len(joint), "o", color=plots.SAMPLED, markersize=5)
        axes.plot(
            [np.mean([run["by_skill"] for run in runs])] * 2, [y - 0.4, y + 0.4], color=SKILL, linewidth=2
        )
    axes.set_yticks(range(len(variants)), list(reversed(variants)))
    axes.set(xlabel="joint answers to test problems that earn the reward (%), sampled", xlim=(0, 100))
    axes.grid(axis="y", visible=False)
    handles = [
        Patch(color=plots.TRAIN, alpha=0.5, label="joint success"),
        Line2D([], [], linestyle="none", marker="o", markersize=5, color=plots.SAMPLED, label="dots: seeds"),
        Line2D([], [], color=SKILL, linewidth=2, label="by skill alone, without a convention"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=9)
    return figure
