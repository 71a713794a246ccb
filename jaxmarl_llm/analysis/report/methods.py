"""Compare methods: a table and a picture of the test results of several runs of each.

Results are {method: {seed: {mark: point}}}; a point has "scores" (0..100), "problems" (scores by test
problem) and costs, as `experiments.compare` reads them from run folders. A method that was not trained has
one point, under the mark `UNTRAINED`, which is in every table.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from jaxmarl_llm import plots
from jaxmarl_llm.utils.statistics.bootstrap import interval
from jaxmarl_llm.utils.statistics.significance import t_interval

UNTRAINED = "untrained"
SCORES = (
    "return", "pass@1", "structure", "syntax", "tests", "cooperation", "style", "coherence", "return_greedy",
    "return_turn1", "return_turn2",
)  # fmt: skip
COSTS = {  # of training up to the mark, evaluations not counted
    "tokens": "tokens drawn",
    "answers": "answers judged",
    "optimizer_tokens": "optimizer tokens",
    "minutes": "minutes",
    "steps": "iterations",
}
LEGEND = (
    "Means over the seeds on the test split, 0..100, sampled at the training settings, of the latest state: "
    "no best one is chosen. (a, b): 95 % "
    "t-interval over the seeds; [a, b]: 95 % bootstrap interval over the test problems, of the means over "
    "the seeds. Costs are means of what was really spent, without evaluations and without a warm-up before. "
    "Returns of one agent and of a team are shares of different sums: one agent's has no cooperation part."
)
DRAWN = {"return": "test return (0..100), sampled", "pass@1": "test pass@1 (%), sampled"}
COLORS = {"trained": plots.TRAIN, "evaluated only": "#8A8A8A"}


def at(results: Mapping, mark: str) -> dict[str, list[dict]]:
    """The points of every method at a mark, in the order of the seeds.

    A method without a point there (a warm-up has no budget) has its last one instead, an untrained method its
    only one.
    """
    points: dict[str, list[dict]] = {}
    for method, by_seed in results.items():
        rows = [marks.get(mark) or marks.get("after") or marks.get(UNTRAINED) for marks in by_seed.values()]
        points[method] = [row for row in rows if row]
    return points


def table(results: Mapping, mark: str) -> tuple[list[str], list[list[str]]]:
    """Headers and a row per method at a mark: scores with intervals (see `LEGEND`), then costs."""
    points = at(results, mark)
    present = dict.fromkeys(name for rows in points.values() for row in rows for name in row["scores"])
    of_statements = sorted(n for n in present if n.startswith(("return_", "pass@1_")) and _is_statement(n))
    names = [*(n for n in SCORES if n in present), *of_statements]
    rows = [
        [
            method,
            str(len(runs)),
            *(_score(name, runs) for name in names),
            *(_cost([run[cost] for run in runs if cost in run]) for cost in COSTS),
        ]
        for method, runs in points.items()
    ]
    return ["method", "runs", *names, *COSTS.values()], rows


def _is_statement(name: str) -> bool:
    """Whether a score is that of the problems of one statement, as `return_goal`."""
    ending = name.partition("_")[2]
    return not ending.startswith(("grade", "turn", "low", "high", "greedy"))


def _score(name: str, runs: Sequence[Mapping]) -> str:
    """Mean over the runs; its interval over the seeds, and over the problems where their scores are known."""
    values = [run["scores"][name] for run in runs if run["scores"].get(name) is not None]
    per_problem = [run["problems"][name] for run in runs if name in run["problems"]]
    return with_intervals(values, per_problem if len(per_problem) == len(runs) else ())


def with_intervals(values: Sequence[float], per_problem: Sequence[Sequence[float | None]] = ()) -> str:
    """``mean (low, high) [low, high]``: a mean of runs with its intervals over seeds and over problems.

    Args:
      values: one of each run; a single one has no interval over seeds.
      per_problem: scores by problem of each run, None where unknown; used only if all have the same number.
    """
    if not values:
        return ""
    text = f"{np.mean(values):.1f}"
    if len(values) > 1:
        over_seeds = t_interval(values)
        text += f" ({over_seeds.low:.1f}, {over_seeds.high:.1f})"
    if per_problem and len({len(row) for row in per_problem}) == 1:
        scores_SB = np.array(per_problem, float)  # None becomes NaN
        over_problems = interval(scores_SB.mean(axis=0))
        text += f" [{over_problems.low:.1f}, {over_problems.high:.1f}]"
    return text


def _cost(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean = float(np.mean(values))
    return f"{mean:,.0f}" if mean >= 100 else f"{mean:.3g}"


def draw(results: Mapping, mark: str = "at_tokens") -> Figure:
    """Draw the means of the scores of `DRAWN` that the runs have: a panel per score, bars; dots are seeds."""
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
