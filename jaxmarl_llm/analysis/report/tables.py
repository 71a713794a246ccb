"""The tables of a report, as texts: what was run, results before and after, cost."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxmarl_llm.analysis.report import metric_names
from jaxmarl_llm.analysis.report.grouping import Group, flatten
from jaxmarl_llm.analysis.report.runs import EvaluationData, RunData
from jaxmarl_llm.utils.statistics.bootstrap import interval

NONE = "–"
FIRST = ("return", "return_greedy", "pass@1", "hack_gap")


class Table(NamedTuple):
    """Texts in rows; the first cell of a row is its header."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def number(value: float | None) -> str:
    """A number with one or two decimals; a dash for None and non-finite values."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def signed(value: float) -> str:
    """A difference with its sign."""
    return number(value) if not math.isfinite(value) or value < 0 else f"+{number(value)}"


def ends(low: float | None, high: float | None) -> str:
    """An interval in brackets; empty if there is none."""
    finite = None not in (low, high) and math.isfinite(low) and math.isfinite(high)
    return f"[{number(low)}, {number(high)}]" if finite else ""


def overview(groups: Sequence[Group]) -> Table:
    """A row per group: what was trained on what, with which seeds, for how long."""
    headers = ("group", "runs", "task", "model", "agents", "seeds", "iterations", "minutes")
    return Table("What was run", headers, tuple(_overview_row(group) for group in groups))


def _overview_row(group: Group) -> tuple[str, ...]:
    config = group.runs[0].config
    team = config.get("team", {})
    models = list(team.get("models") or [config.get("model", NONE)])
    minutes = [run.summary.get("seconds", math.nan) / 60 for run in group.runs]
    task = flatten(config.get("task", {}))
    return (
        group.label,
        ", ".join(run.name for run in group.runs),
        ", ".join(f"{name}: {value}" for name, value in task.items() if value),
        ", ".join(map(str, models)),
        ", ".join(group.runs[0].agents) or NONE,
        ", ".join(str(run.seed) for run in group.runs),
        ", ".join(dict.fromkeys(_iterations(run) for run in group.runs)),
        ", ".join(map(number, minutes)),
    )


def _iterations(run: RunData) -> str:
    done, planned = run.iterations, run.config.get("train", {}).get("steps")
    return str(done) if planned in (None, done) else f"{done} of {planned}"


def changes(group: Group) -> Table:
    """Results on the test before and after training, a column per run; means and gains with their intervals.

    Below a run's score is its own interval over the test problems, where the summary has one.
    """
    names = score_names([run.summary for run in group.runs])
    headers = ["score", *(f"{run.name} (seed {run.seed})" for run in group.runs)]
    rows = [[name, *(_change(run.summary, name) for run in group.runs)] for name in names]
    if len(group.runs) > 1:
        headers += ["mean before", "mean after", "mean gain"]
        for row, name in zip(rows, names, strict=True):
            row += _means(group, name)
    return Table(group.label, tuple(headers), tuple(map(tuple, rows)))


def score_names(summaries: Sequence[dict]) -> list[str]:
    """Scores of the summaries: first returns and pass@1, then the reward's parts, then the rest."""
    entries = [s[when] for s in summaries for when in ("before", "after") if when in s]
    names = dict.fromkeys(n for e in entries for n, v in e.items() if v is not None)
    scores = [n for n in names if "/" not in n and n != "step" and not n.endswith(("_low", "_high"))]
    parts = [n for n in scores if metric_names.is_part(n)]
    return list(dict.fromkeys([*(n for n in FIRST if n in scores), *parts, *scores]))


def scores(summary: dict, name: str) -> tuple[float, float]:
    """A score before and after training; NaN where the summary has none."""
    values = (summary.get(when, {}).get(name) for when in ("before", "after"))
    before, after = (math.nan if value is None else float(value) for value in values)
    return before, after


def _change(summary: dict, name: str) -> str:
    before, after = map(number, scores(summary, name))
    entries = [summary.get(when, {}) for when in ("before", "after")]
    intervals = [ends(entry.get(f"{name}_low"), entry.get(f"{name}_high")) or NONE for entry in entries]
    return f"{before} → {after}" + ("" if intervals == [NONE, NONE] else f"\n{intervals[0]} → {intervals[1]}")


def _means(group: Group, name: str) -> list[str]:
    """Mean before, mean after and mean gain over the runs that have both."""
    pairs_SW = np.array([scores(run.summary, name) for run in group.runs])
    pairs_SW = pairs_SW[~np.isnan(pairs_SW).any(axis=1)]
    if not len(pairs_SW):
        return [NONE] * 3
    stats = [interval(values) for values in (pairs_SW[:, 0], pairs_SW[:, 1], pairs_SW[:, 1] - pairs_SW[:, 0])]
    means = [number(stats[0].mean), number(stats[1].mean), signed(stats[2].mean)]
    return [f"{mean}\n{ends(stat.low, stat.high)}".rstrip() for mean, stat in zip(means, stats, strict=True)]


def costs(groups: Sequence[Group]) -> Table:
    """A row per run: totals, and means over its iterations."""
    runs = [run for group in groups for run in group.runs]
    phases = metric_names.phases(metric_names.all_names(groups))
    headers = ("run", "minutes", "seconds per iteration", *(f"{phase.label}, s" for phase in phases))
    headers += ("tokens/s", "completion tokens", "expert's tokens", "programs judged", "executed")
    headers += ("peak memory, MB",)
    return Table("Cost", headers, tuple(_cost_row(run, [phase.metric for phase in phases]) for run in runs))


def _cost_row(run: RunData, phases: Sequence[str]) -> tuple[str, ...]:
    def column(name: str) -> list[float]:
        return [row[name] for row in run.rows if row.get(name) is not None]

    tokens = [
        row["tokens_per_s"] * row["seconds"]
        for row in run.rows
        if None not in (row.get("tokens_per_s"), row.get("seconds"))
    ]
    expert = [value for name in metric_names.EXPERT for value in column(name)[-1:]]  # cumulative counts
    totals = map(_total, (tokens, expert, column("executor/programs"), column("executor/runs")))
    means = (column(name) for name in ("seconds", *phases, "tokens_per_s"))
    means = (number(float(np.mean(values))) if values else NONE for values in means)
    minutes = number(run.summary.get("seconds", math.nan) / 60)
    peak = number(max(column("memory/peak_rss_mb"), default=None))
    return run.name, minutes, *means, *totals, peak


def _total(values: Sequence[float]) -> str:
    return f"{sum(values):.0f}" if values else NONE


def evaluations(evaluated: Sequence[EvaluationData]) -> Table:
    """A row per evaluation and mode, a column per score."""
    scored = [(e, mode, e.report[mode].get("scores", {})) for e in evaluated for mode in e.actions]
    names = list(dict.fromkeys(name for *_, entries in scored for name in entries))
    rows = tuple(
        (f"{e.name}, {mode}", _checkpoint(e.report), *(_score(entries.get(name)) for name in names))
        for e, mode, entries in scored
    )
    return Table("Evaluations", ("evaluation", "of", *names), rows)


def _checkpoint(report: dict[str, Any]) -> str:
    workdir = report.get("workdir")
    state = {"best": ", best on validation", "latest": ", latest"}.get(report.get("state"), "")
    team = f"{workdir}, step {report['step']}{state}" if workdir else "the untrained team"
    return f"{team}, {report['split']} problems" if "split" in report else team


def _score(entry: dict | None) -> str:
    entry = entry or {}
    return f"{number(entry.get('mean'))}\n{ends(entry.get('low'), entry.get('high'))}".rstrip()
