"""The learning curves of a run as a PNG, from the rows of its metrics.jsonl."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.statistics.series import running_mean, series

PARTS = ("structure", "syntax", "tests", "cooperation", "style", "coherence")
# Blue, orange, green and purple of the Okabe-Ito palette, which differ to any colour vision, and in grey.
TRAIN, SAMPLED, GREEDY, TEST = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.formatter.useoffset": False,  # a ratio of 1.00002 is labelled as that
    "legend.frameon": False,
}


def write_png(draw: Callable[..., Figure], path, *data) -> None:
    """Write the figure that ``draw`` makes of some data, in the style of all pictures."""
    with matplotlib.rc_context(STYLE):
        FigureCanvasAgg(draw(*data)).print_png(str(path))


def learning_curve(
    rows: Sequence[Mapping],
    path,
    *,
    title: str = "Return in training, on validation and on the test",
    parts: Sequence[str] = PARTS,
    window: int = 10,
) -> Path:
    """Draw return and reward parts over the steps, on the 0..100 scale, and write a PNG.

    Args:
      rows: what `metrics.read_metrics` returns: 'train/return' per step; 'eval/return' (on validation,
        sampled at the training settings) with 'eval/return_low' and 'eval/return_high', the ends of its 95 %
        interval; 'eval/return_greedy'; 'test/return' with its interval; parts under 'train/', 'eval/' and
        'eval_greedy/'. Metrics that no row has are left out.
      path: the PNG file; its folder is created.
      parts: reward parts with a small panel each, if any row has them.
      window: steps of the running mean over training steps.

    Raises:
      ValueError: no row has a return.
    """
    returns = ("train/return", "eval/return", "eval/return_greedy", "test/return")
    if not any(series(rows, name)[0].size for name in returns):
        raise UserError(f"nothing to draw: no 'train/return' or 'eval/return' in {len(rows)} rows")
    names = ("train", "eval", "eval_greedy")
    shown = [part for part in parts if any(series(rows, f"{name}/{part}")[0].size for name in names)]
    with matplotlib.rc_context(STYLE):
        figure = draw(rows, title, shown, window)
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        FigureCanvasAgg(figure).print_png(str(path))
    return path


def draw(rows: Sequence[Mapping], title: str, parts: Sequence[str], window: int) -> Figure:
    """The figure itself: one large panel for the return, a row of small ones for the parts."""
    figure = Figure(figsize=(10, 7.2 if parts else 4.8), dpi=150, layout="constrained")
    heights = [2.2, 1] if parts else [1]
    grid = figure.add_gridspec(len(heights), max(len(parts), 1), height_ratios=heights)
    main = figure.add_subplot(grid[0, :])
    _draw_train(main, rows, "train/return", window)
    _draw_eval(main, rows, "eval/return", SAMPLED, "o", "validation, sampled", interval="95 % interval")
    _draw_eval(main, rows, "eval/return_greedy", GREEDY, "s", "validation, greedy")
    _draw_eval(main, rows, "test/return", TEST, "D", "test, sampled", interval="_as above")
    _finish(main, title, "return (0..100)")
    figure.legend(*main.get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=9)
    for column, part in enumerate(parts):
        axes = figure.add_subplot(grid[1, column], sharex=main)
        _draw_train(axes, rows, f"train/{part}", window)
        _draw_eval(axes, rows, f"eval/{part}", SAMPLED, "o", "validation, sampled")
        _draw_eval(axes, rows, f"eval_greedy/{part}", GREEDY, "s", "validation, greedy")
        _finish(axes, part, "part (0..100)" if column == 0 else "")
    return figure


def _draw_train(axes: Axes, rows: Sequence[Mapping], name: str, window: int) -> None:
    steps, values = series(rows, name)
    if not steps.size:
        return
    axes.plot(steps, values, ".", color=TRAIN, alpha=0.3, markersize=4, label="training, each step")
    axes.plot(
        steps,
        running_mean(values, window),
        color=TRAIN,
        linewidth=1.8,
        label=f"training, mean of {window} steps",
    )


def _draw_eval(
    axes: Axes, rows: Sequence[Mapping], name: str, color: str, marker: str, label: str, interval: str = ""
) -> None:
    """A line with its band, called ``interval`` in the legend unless that begins with _.

    Up to two evaluations are drawn as points with bars, as nothing is known in between.
    """
    steps, values = series(rows, name)
    if not steps.size:
        return
    few = len(steps) <= 2
    style = {"linestyle": "none" if few else "-", "linewidth": 1.4, "marker": marker, "markersize": 5}
    axes.plot(steps, values, color=color, label=label, zorder=3, **style)
    ends = [row for row in rows if row.get(f"{name}_low") is not None and row.get(f"{name}_high") is not None]
    if interval and ends:
        (steps, low), (_, high) = series(ends, f"{name}_low"), series(ends, f"{name}_high")
        if few:
            axes.vlines(steps, low, high, color=color, linewidth=1.2, label=interval)
        else:
            axes.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0, label=interval)


def _finish(axes: Axes, title: str, ylabel: str) -> None:
    axes.set(title=title, xlabel="training step", ylabel=ylabel, ylim=(-2, 102))
    axes.xaxis.get_major_locator().set_params(integer=True)
