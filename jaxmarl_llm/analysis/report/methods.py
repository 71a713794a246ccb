"""Compare methods: a table of the test results of several runs of each (`methods_figure` has the picture).

Results are {method: {seed: {mark: point}}}; a point has "scores" (0..100), "problems" (scores by test
problem) and costs, as `experiments.compare` reads them from run folders. A method that was not trained has
one point, under the mark `UNTRAINED`, which is in every table.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from jaxmarl_llm.tasks.judgement import is_of_a_kind, is_statement
from jaxmarl_llm.utils.statistics.bootstrap import interval
from jaxmarl_llm.utils.statistics.significance import t_interval

UNTRAINED = "untrained"
SCORES = (
    "return", "pass@1", "structure", "syntax", "tests", "cooperation", "style", "coherence", "return_greedy",
    "return_turn1", "return_turn2",
)  # fmt: skip
GAINS = ("return", "pass@1")
COSTS = {  # of training up to the mark, without evaluations
    "tokens": "tokens drawn",
    "answers": "answers judged",
    "optimizer_tokens": "optimizer tokens",
    "cpu_minutes": "CPU minutes",
    "steps": "iterations",
}
LEGEND = (
    "Means over the seeds on the test split, 0..100, sampled at the training settings, of the latest state: "
    "no best one is chosen. (a, b): 95 % "
    "t-interval over the seeds; [a, b]: 95 % bootstrap interval over the test problems, of the means over "
    "the seeds. Costs are means of what was really spent, without evaluations and without a warm-up before; CPU "
    "minutes are those of the training process, all its threads, without the sandbox. "
    "Returns of one agent and of a team are shares of different sums: one agent's has no cooperation part."
)


def fault(results: Mapping) -> str:
    """The first place where parsed JSON does not have the form of results; empty if it has."""
    for method, by_seed in results.items():
        if not isinstance(by_seed, dict):
            return f"{method!r} holds {_short(by_seed)}, expected its runs by seed"
        for seed, marks in by_seed.items():
            where = f"seed {seed!r} of {method!r}"
            if not isinstance(marks, dict):
                return f"{where} holds {_short(marks)}, expected its points by mark, such as 'after'"
            for mark, point in marks.items():
                if not isinstance(point, dict) or not (_numbers(point.get("scores")) and point["scores"]):
                    return f"{mark!r} of {where} has no numbers under 'scores'"
                problems = point.get("problems")
                if not (isinstance(problems, dict) and all(map(_row, problems.values()))):
                    return f"{mark!r} of {where} has no lists of numbers under 'problems'"
                if not _numbers({cost: point[cost] for cost in COSTS if cost in point}, missing=False):
                    return f"{mark!r} of {where} has a cost that is no number"
    return ""


def _numbers(held, missing: bool = True) -> bool:
    """Whether it is a dict of numbers; also of None if numbers may be ``missing``."""
    return isinstance(held, dict) and all(
        type(x) in (int, float) or missing and x is None for x in held.values()
    )


def _row(held) -> bool:
    """Whether it is a list of numbers and None."""
    return isinstance(held, list) and _numbers(dict(enumerate(held)))


def _short(held) -> str:
    """A value in the form for messages."""
    return f"{held!r:.40}"


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
    of_statements = sorted(n for n in present if is_of_a_kind(n) and is_statement(n.partition("_")[2]))
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


def gains(results: Mapping, starts: Mapping[str, str], mark: str) -> tuple[list[str], list[list[str]]]:
    """Headers and a row per method: the gains of its scores at a mark over the method that it started from.

    Differences are between the same seed and the same test problem. A start without training that has one
    run, such as the untrained team, uses this run for every seed.

    Args:
      results: as in `table`.
      starts: method -> the method that it started from; other methods have no row.
      mark: mark of the method; starts are taken at their end.
    """
    rows = []
    for method, start in starts.items():
        pairs = _pairs(results.get(method, {}), results.get(start, {}), mark)
        if pairs:
            rows.append([method, start, str(len(pairs)), *(_gain(name, pairs) for name in GAINS)])
    return ["method", "began from", "runs", *GAINS], rows


def _pairs(runs: Mapping, starts: Mapping, mark: str) -> list[tuple[Mapping, Mapping]]:
    """The point of each seed's run, and the point of its start."""
    only = next(iter(starts.values())) if len(starts) == 1 else {}
    pairs = []
    for seed, marks in runs.items():
        point = marks.get(mark) or marks.get("after")
        own = starts.get(seed, {})
        start = own.get("after") or own.get(UNTRAINED) or only.get(UNTRAINED)
        if point and start:
            pairs.append((point, start))
    return pairs


def _gain(name: str, pairs: Sequence[tuple[Mapping, Mapping]]) -> str:
    """Mean difference of a score, with its intervals."""
    if any(name not in point["scores"] for pair in pairs for point in pair):
        return ""
    values = [point["scores"][name] - start["scores"][name] for point, start in pairs]
    problems = [[point["problems"].get(name, ()) for point in pair] for pair in pairs]
    paired = all(len(own) == len(before) > 0 for own, before in problems)
    changes = [np.subtract(*np.array(pair, float)) for pair in problems] if paired else ()  # None becomes NaN
    return with_intervals(values, changes, sign="+")


def _score(name: str, runs: Sequence[Mapping]) -> str:
    """Mean over the runs; its interval over the seeds, and over the problems if their scores are known."""
    values = [run["scores"][name] for run in runs if run["scores"].get(name) is not None]
    per_problem = [run["problems"][name] for run in runs if name in run["problems"]]
    return with_intervals(values, per_problem if len(per_problem) == len(runs) else ())


def with_intervals(
    values: Sequence[float], per_problem: Sequence[Sequence[float | None]] = (), sign: str = ""
) -> str:
    """``mean (low, high) [low, high]``: a mean of runs with its intervals over seeds and over problems.

    Args:
      values: one value per run; a single value has no interval over seeds.
      per_problem: scores by problem of each run, None where unknown; used only if all have the same number.
      sign: "+" shows the sign of positive numbers.
    """
    if not values:
        return ""

    def shown(*numbers: float) -> str:  # without the sign of a rounded zero
        return ", ".join(f"{round(float(number), 1) + 0.0:{sign}.1f}" for number in numbers)

    text = shown(np.mean(values))
    if len(values) > 1:
        over_seeds = t_interval(values)
        text += f" ({shown(over_seeds.low, over_seeds.high)})"
    if per_problem and len({len(row) for row in per_problem}) == 1:
        scores_SB = np.array(per_problem, float)  # None becomes NaN
        over_problems = interval(scores_SB.mean(axis=0))
        known = np.isfinite([over_problems.low, over_problems.high]).all()  # not of a single problem
        text += f" [{shown(over_problems.low, over_problems.high)}]" if known else ""
    return text


def _cost(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean = float(np.mean(values))
    return f"{mean:,.0f}" if mean >= 100 else f"{mean:.3g}"
