"""Cross-play: teams of agents from several runs, and the return lost with partners from another run."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxmarl_llm.utils.statistics import significance
from jaxmarl_llm.utils.statistics.bootstrap import Interval, interval

CELL, CHARACTER = 0.6, 0.085  # inches: side of a cell with a number; width of a character of a name


class Table(NamedTuple):
    """Returns of R x R teams: ``agent`` is from the column's run, all other agents from the row's run.

    Attributes:
      returns_RRB: return of each team on each of B items.
      means_RR: mean over the items of each team, with its interval (`bootstrap.interval`).
      own, mixed: mean over the diagonal (teams of one run) and over all other teams, each with its interval.
      gap: their difference, computed item by item, with its interval.
      p: p-value of the gap, by `significance.sign_flips`.
    """

    agent: str
    returns_RRB: np.ndarray
    means_RR: list[list[Interval]]
    own: Interval
    mixed: Interval
    gap: Interval
    p: float


def exchanged_agents(agents: Sequence[str]) -> tuple[str, ...]:
    """Agents to exchange, one per table. Of two only the second: the first's table is the transpose."""
    return tuple(agents[1:] if len(agents) == 2 else agents)


def teams(runs: int, agents: Sequence[str], agent: str) -> list[list[tuple[int, ...]]]:
    """For each row and column of a `Table`, the indices of the runs of the team's agents, in order."""
    return [
        [tuple(column if name == agent else row for name in agents) for column in range(runs)]
        for row in range(runs)
    ]


def table(agent: str, returns_RRB) -> Table:
    """Build the `Table` of the returns of teams with one agent exchanged; R is at least 2.

    Suppose a return is a row term plus a column term, plus a bonus if both are the same run. Then the gap is
    that bonus, because every run occurs in equally many mixed teams on both sides. Items with a NaN
    anywhere are left out of the comparison.
    """
    returns_RRB = np.asarray(returns_RRB, np.float64)
    same_RR = np.eye(len(returns_RRB), dtype=bool)
    own_B, mixed_B = returns_RRB[same_RR].mean(axis=0), returns_RRB[~same_RR].mean(axis=0)
    gap_B = own_B - mixed_B
    means_RR = [[interval(values_B) for values_B in row] for row in returns_RRB]
    known_B = ~np.isnan(gap_B)
    intervals = (interval(values_B[known_B]) for values_B in (own_B, mixed_B, gap_B))
    return Table(agent, returns_RRB, means_RR, *intervals, significance.sign_flips(gap_B[known_B]))


def corner(agents: Sequence[str], agent: str) -> tuple[str, str]:
    """Name the rows and the columns of a table: ("run of agent aux", "run of agent main")."""
    others = [name for name in agents if name != agent]
    return f"run of agent{'s' if len(others) > 1 else ''} {', '.join(others)}", f"run of agent {agent}"


def draw(
    tables: Mapping[str, Sequence[Table]], agents: Sequence[str], names: Sequence[str], path: pathlib.Path
) -> None:
    """Draw heat maps as a PNG: a column per mode (sampled, greedy), a row per table, one colour scale.

    Args:
      tables: tables by mode.
      agents: agents of a team.
      names: names of the runs.
      path: path of the picture; its folder must exist.
    """
    # Imported only for drawing, so that --help and the games do not wait for matplotlib.
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    from jaxmarl_llm import plots

    height, means = len(next(iter(tables.values()))), _all_means(tables)
    scale = Normalize(means.min(), means.max()) if means.size else Normalize(0, 1)
    with matplotlib.rc_context({**plots.STYLE, "axes.grid": False}):
        size = figure_size(names, len(tables), height)
        figure = Figure(figsize=size, dpi=130, layout="constrained")
        grid = figure.subplots(height, len(tables), squeeze=False)
        for panels, (mode, tables_of_mode) in zip(grid.T, tables.items(), strict=True):
            for axes, result in zip(panels, tables_of_mode, strict=True):
                image = _panel(axes, result, mode, corner(agents, result.agent), names, scale)
        figure.colorbar(image, ax=grid, label="test return", shrink=0.8)
        FigureCanvasAgg(figure).print_png(str(path))


def figure_size(names: Sequence[str], columns: int, rows: int) -> tuple[float, float]:
    """Figure size (width, height) in inches, such that cells have the side `CELL` for names of any length.

    Names are drawn beside the rows and, slanted, below the columns.
    """
    cells, longest = max(CELL * len(names), 2.4), CHARACTER * max(map(len, names))
    panel = cells + longest + 0.9, cells + 0.5 * longest + 1.1  # plus axis labels and a title
    return columns * panel[0] + 1.2, rows * panel[1]


def _all_means(tables: Mapping[str, Sequence[Table]]) -> np.ndarray:
    """The finite means of all teams as one array."""
    rows = [row for column in tables.values() for result in column for row in result.means_RR]
    means = np.array([cell.mean for row in rows for cell in row])
    return means[np.isfinite(means)]


def _panel(axes, result: Table, mode: str, labels: tuple[str, str], names: Sequence[str], scale):
    """Draw one table with its numbers in the cells and colours by ``scale``; return the image."""
    means_RR = np.array([[cell.mean for cell in row] for row in result.means_RR])
    image = axes.imshow(means_RR, cmap="viridis", norm=scale)
    for (row, column), mean in np.ndenumerate(means_RR):
        bright = image.norm(mean) > 0.6  # a dark number is readable on it
        weight = "bold" if row == column else "normal"
        color = "black" if bright else "white"
        axes.text(column, row, f"{mean:.1f}", ha="center", va="center", color=color, fontweight=weight)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set(title=f"test return, {mode}", ylabel=labels[0], xlabel=labels[1])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return image
