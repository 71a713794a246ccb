"""Figure of a sweep's settings, best first: mean final returns with their 95 % intervals."""

import json
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmarl_llm import plots
from jaxmarl_llm.analysis.report.figures import plain
from jaxmarl_llm.analysis.report.sweep_results import SCORES
from jaxmarl_llm.utils import formats
from jaxmarl_llm.utils.errors import UserError

# Colour, marker and vertical shift by score.
STYLES = {"return": (plots.SAMPLED, "o", 0.14), "return_greedy": (plots.GREEDY, "s", -0.14)}


def read(path: Path) -> list[dict]:
    """Read the settings of a sweep.json; ValueError names a file that is invalid or has no return yet."""
    try:
        settings = formats.upgraded(json.loads(path.read_text(encoding="utf-8")), path)["settings"]
        with_return = ranked(settings)
    except formats.NewerFormatError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no sweep.json ({type(error).__name__}: {error})") from error
    if not with_return:
        raise UserError(f"{path}: no setting has a return yet")
    return settings


def ranked(settings: Sequence[dict]) -> list[dict]:
    """Settings that have a sampled return, the highest first; ``settings``: of `sweep_results.as_json`."""
    with_return = [each for each in settings if each["return"]["mean"] is not None]
    return sorted(with_return, key=lambda each: -each["return"]["mean"])


def draw(settings: Sequence[dict]) -> Figure:
    """Draw a row per setting: points for the means, bars for the intervals; the baseline's name is bold.

    A dashed line at the baseline's mean shows which settings are above it. Whether an interval crosses it
    is weaker evidence than the paired test of the table, which compares runs of the same seed.
    """
    rows = ranked(settings)
    figure = Figure(figsize=(9, 0.32 * len(rows) + 1.4), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    for y, row in enumerate(reversed(rows)):
        _draw_row(axes, y, row)
    labels = axes.set_yticks(range(len(rows)), [plain(row["setting"]) for row in reversed(rows)])
    for label, row in zip(labels, reversed(rows), strict=True):
        if row["baseline"]:
            label.label1.set_fontweight("bold")
            style = {"color": "#8A8A8A", "linestyle": "--", "linewidth": 1, "label": "baseline"}
            axes.axvline(row["return"]["mean"], zorder=0, **style)
    axes.set(xlabel="test return of the latest state", ylim=(-0.6, len(rows) - 0.4))
    axes.grid(axis="y", visible=False)
    names = {label: f"{kind}, mean and 95 % interval" for label, kind in SCORES.items()}
    names["baseline"] = "baseline, sampled"
    handles, labels = axes.get_legend_handles_labels()
    options = {"loc": "outside upper center", "ncols": 3, "fontsize": 9}
    figure.legend(handles, [names[label] for label in labels], **options)
    return figure


def _draw_row(axes: Axes, y: float, row: dict) -> None:
    for score, (color, marker, shift) in STYLES.items():
        estimate = row[score]
        if estimate["mean"] is None:
            continue
        if estimate["low"] is not None:
            axes.hlines(y + shift, estimate["low"], estimate["high"], color=color, linewidth=1.6)
        used_labels = axes.get_legend_handles_labels()[1]
        label = {} if score in used_labels else {"label": score}
        axes.plot(estimate["mean"], y + shift, marker, color=color, markersize=5, **label)


def in_words(settings: Sequence[dict]) -> str:
    """Text alternative of the figure."""
    sentences = []
    for row in ranked(settings):
        baseline = ", the baseline" if row["baseline"] else ""
        sentences.append(f"{row['setting']}{baseline}: {row['return']['mean']:.3g}")
    return "Sampled, best first. " + ". ".join(sentences) + "."
