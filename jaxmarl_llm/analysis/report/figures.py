"""Draw the pictures of a report: means over the runs with their intervals, against the iterations.

One group of runs: a colour per metric of the panel. Several: a colour per group, a dash pattern per metric.
"""

import io
import warnings
from collections.abc import Callable, Iterator, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxmarl_llm import plots
from jaxmarl_llm.analysis.report.grouping import Group
from jaxmarl_llm.analysis.report.metric_names import Line, is_evaluated
from jaxmarl_llm.analysis.report.panels import Panel, Picture
from jaxmarl_llm.utils.statistics.bootstrap import Interval, interval
from jaxmarl_llm.utils.statistics.series import Curve, curve, series

WINDOW = 5  # iterations of the running mean of training metrics
LONGEST = 60  # characters of a line of text in a picture
FEW = 4  # groups of runs; with more groups, single runs would hide the means
COLORS = (plots.TRAIN, plots.SAMPLED, plots.GREEDY, "#CC79A7", "#E69F00", "#56B4E9", "#8A8A8A", "#A0522D")
MARKERS = {"eval/": "o", "eval_greedy/": "s", "test/": "D"}  # of evaluation metrics, by prefix
DASHES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (8, 3)), (0, (1, 3)), (0, (3, 5)))


def png(picture: Picture, groups: Sequence[Group]) -> bytes:
    """The picture as a PNG file."""
    return as_png(lambda: draw(picture, groups))


def as_png(drawn: Callable[[], Figure]) -> bytes:
    """The figure that ``drawn`` returns, as a PNG file."""
    with matplotlib.rc_context(plots.STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from font")  # the page has the names too
        file = io.BytesIO()
        FigureCanvasAgg(drawn()).print_png(file)
    return file.getvalue()


def draw(picture: Picture, groups: Sequence[Group]) -> Figure:
    """The picture as a figure."""
    number = len(picture.panels)
    columns = picture.columns or min(number, 4 if number % 4 == 0 else 3)
    rows = -(-number // columns)
    height = 4.2 if rows == columns == 1 else 2.7 * rows + 0.4
    figure = Figure(figsize=(10, height), dpi=110, layout="constrained")
    same_axes = number > 1 and len({(panel.unit, panel.lines) for panel in picture.panels}) == 1
    all_axes = figure.subplots(rows, columns, squeeze=False, sharex=same_axes, sharey=same_axes).ravel()
    legends = [_handles(panel, groups) for panel in picture.panels]
    for axes, panel, legend in zip(all_axes, picture.panels, legends, strict=False):
        for line in _drawn_lines(panel, groups):
            _draw_line(axes, *line, singles=len(groups) <= FEW)
        _finish(axes, panel, labels=not same_axes)
        if not picture.shared:
            axes.legend(legend.values(), legend, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    for axes in all_axes[number:]:
        axes.set_axis_off()
    for axes in all_axes[max(number - columns, 0) : number]:  # those without a panel below them
        axes.tick_params(labelbottom=True)
    if same_axes:
        figure.supxlabel("iteration", fontsize="medium")
        figure.supylabel(picture.panels[0].unit, fontsize="medium")
    if picture.shared:
        _legend(figure, {label: handle for legend in legends for label, handle in legend.items()})
    return figure


def _legend(figure: Figure, handles: dict[str, Line2D]) -> None:
    """One legend above all panels; no legend if no line has a label."""
    if handles:
        columns = max(1, 100 // (8 + max(map(len, handles))))
        options = {"loc": "outside upper center", "ncols": min(columns, len(handles)), "fontsize": 9}
        figure.legend(handles.values(), handles, **options)


def _drawn_lines(panel: Panel, groups: Sequence[Group]) -> Iterator[tuple[Group, Line, str, object]]:
    """Group, metric, colour and dash pattern of all the lines of a panel."""
    shown_groups = [panel.group] if panel.group else groups
    for g, group in enumerate(shown_groups):
        for line in panel.lines:
            color, dashes = (line.style, 0) if len(shown_groups) == 1 else (g, line.style)
            yield group, line, COLORS[color % len(COLORS)], _dashes(dashes, color)


def _dashes(number: int, color: int):
    """The dash pattern of a line; the next pattern once all colours are used."""
    return DASHES[(number + color // len(COLORS)) % len(DASHES)]


def _curve(group: Group, line: Line) -> Curve:
    return curve(group.rows, line.metric, 1 if is_evaluated(line.metric) else WINDOW)


def _draw_line(axes: Axes, group: Group, line: Line, color: str, dashes, singles: bool) -> None:
    """Draw mean, interval and single runs; if there are only two evaluations, as points without a line."""
    steps_T, values_ST = _curve(group, line)
    if not steps_T.size:
        return
    if _few_points(line, steps_T):
        _draw_points(axes, steps_T, interval(values_ST), color, _marker(line))
        return
    if len(group.runs) == 1 and not is_evaluated(line.metric):
        axes.plot(*series(group.rows[0], line.metric), ".", color=color, alpha=0.3, markersize=3)
    for values_T in values_ST if singles and len(group.runs) > 1 else ():
        axes.plot(steps_T, values_T, color=color, linestyle=dashes, linewidth=0.6, alpha=0.4)
    mean_T, low_T, high_T = interval(values_ST)
    if not np.isnan(low_T).all():
        axes.fill_between(steps_T, low_T, high_T, color=color, alpha=0.18, linewidth=0)
    style = {"linestyle": dashes, "linewidth": 1.6, "marker": _marker(line), "markersize": 3.5}
    axes.plot(steps_T, mean_T, color=color, zorder=3, **style)


def _few_points(line: Line, steps_T: np.ndarray) -> bool:
    return is_evaluated(line.metric) and len(steps_T) <= 2


def _draw_points(axes: Axes, steps_T: np.ndarray, estimates: Interval, color: str, marker: str) -> None:
    """Draw means as points, their intervals as bars; not clipped, as they are at the ends of the x axis."""
    if not np.isnan(estimates.low).all():
        axes.vlines(steps_T, estimates.low, estimates.high, color=color, linewidth=1.2, clip_on=False)
    style = {"linestyle": "none", "marker": marker, "markersize": 5, "clip_on": False}
    axes.plot(steps_T, estimates.mean, color=color, zorder=4, **style)


def _marker(line: Line | None) -> str:
    metric = line.metric if line else ""
    return next((marker for start, marker in MARKERS.items() if metric.startswith(start)), "")


def _handles(panel: Panel, groups: Sequence[Group]) -> dict[str, Line2D]:
    """Entries of the legend by label: the metrics, and the groups if there are several."""
    shown_groups = [panel.group] if panel.group else groups
    if len(shown_groups) == 1:
        styles = {
            line.label: ("none" if _few_points(line, _curve(group, line).steps_T) else dashes, color, line)
            for group, line, color, dashes in _drawn_lines(panel, shown_groups)
        }
    else:
        styles = {group.label: ("-", COLORS[g % len(COLORS)], None) for g, group in enumerate(shown_groups)}
        if len(panel.lines) > 1:
            styles |= {line.label: (_dashes(line.style, 0), "#8A8A8A", line) for line in panel.lines}
    return {
        plain(label): Line2D([], [], color=color, linestyle=dashes, marker=_marker(line), markersize=4)
        for label, (dashes, color, line) in styles.items()
        if label
    }


def _finish(axes: Axes, panel: Panel, labels: bool) -> None:
    """Set title and axes and, if ``labels``, the labels of the axes (otherwise the figure has them)."""
    low, high = axes.get_ylim()
    axes.set_title(plain(panel.title), fontsize=8 if panel.group else None)  # settings are long
    if labels:
        axes.set(xlabel="iteration", ylabel=panel.unit)
    if panel.percent and low > -20 and high < 120:
        axes.set_ylim(-2, 102)
    if panel.log:
        axes.set_yscale("log", nonpositive="mask")
    axes.xaxis.get_major_locator().set_params(integer=True)


def plain(text: str) -> str:
    """Text that matplotlib can show: without formulas and unprintable characters, not too long."""
    lines = [line if len(line) <= LONGEST else line[: LONGEST - 1] + "…" for line in text.split("\n")]
    text = "\n".join(lines)
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text).replace("$", r"\$")


def in_words(picture: Picture, groups: Sequence[Group]) -> str:
    """Text alternative of a picture: every mean at its first and last iteration."""
    sentences = []
    for panel in picture.panels:
        shown_groups = [panel.group] if panel.group else groups
        for group, line, *_ in _drawn_lines(panel, groups):
            steps_T, values_ST = _curve(group, line)
            if steps_T.size:
                mean_T = interval(values_ST).mean
                parts = (panel.title, line.label, group.label if len(shown_groups) > 1 else "")
                label = ", ".join(filter(None, parts))
                sentences.append(
                    f"{label}: {mean_T[0]:.3g} at {steps_T[0]}, {mean_T[-1]:.3g} at {steps_T[-1]}"
                )
    return ". ".join(sentences).replace("\n", ", ") + "."
