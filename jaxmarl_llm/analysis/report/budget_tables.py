"""Tables of what searches solved within equal budgets of executed programs, tokens and expansions.

For every problem, the last round within all budgets counts; without such a round the problem is not solved.
So a method cannot gain by drawing more tokens than another for the same number of programs, or vice versa.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from jaxmarl_llm.analysis.report.search_tables import Search
from jaxmarl_llm.analysis.report.sweep_page import p_value
from jaxmarl_llm.analysis.report.tables import Table, ends, number, signed
from jaxmarl_llm.utils.statistics.bootstrap import interval
from jaxmarl_llm.utils.statistics.significance import sign_flips

MOST_COLUMNS = 6
Groups = dict[str, list[Search]]  # the searches of each method, one per seed


def tables(searches: Sequence[Search]) -> list[Table]:
    """The tables; [] unless all searches measured what was solved by budget, on the same problems.

    Columns end at the budget of the method that spent least on average. Differences are from the first
    search's method, problem by problem, in the last column. With several seeds, a problem counts with their
    mean.
    """
    if not searches or not all(problem.get("spent") for search in searches for problem in search["problems"]):
        return []
    if len({frozenset(problem["item"] for problem in search["problems"]) for search in searches}) > 1:
        return []
    groups: Groups = {}
    for search in searches:
        groups.setdefault(search["method"], []).append(search)
    executed, drawn = (least(groups, name) for name in ("executed", "drawn"))
    title = f"Solved, %, by executed programs, with at most {drawn} tokens drawn"
    made = [_table(title, groups, "executed", doubling(executed), {"drawn": drawn})]
    for name, words in (("drawn", "tokens drawn"), ("tokens", "tokens drawn and read")):
        title, most = f"Solved, %, by {words}, with at most {executed} executed programs", least(groups, name)
        points = sorted({max(most // part, 1) for part in (8, 4, 2, 1)})
        made.append(_table(title, groups, name, points, {"executed": executed}))
    over_steps = {method: group for method, group in groups.items() if _mean_spent(group, "expansions") > 0}
    if over_steps:
        points = doubling(least(over_steps, "expansions"))
        title = f"Solved, %, by expansions, with at most {executed} executed programs"
        made.append(_table(title, over_steps, "expansions", points, {"executed": executed}))
    return [*made, costs(groups)]


def least(groups: Groups, name: str) -> int:
    """Minimum over methods of the mean over problems of what was spent at the end, as an integer."""
    return int(min(_mean_spent(group, name) for group in groups.values()))


def doubling(most: int) -> list[int]:
    """1, 2, 4, .. and ``most`` itself; if these are too many, the last ones.

    >>> doubling(6), doubling(0)
    ([1, 2, 4, 6], [0])
    """
    points = [2**n for n in range(40) if 2**n < most] + [most]
    return points[-MOST_COLUMNS:]


def solved(problem: Mapping, limits: Mapping[str, int]) -> float:
    """100 if a problem was solved in the last round within all limits, else 0."""
    within = [
        row for row in problem["spent"] if all(_spent(row, name) <= most for name, most in limits.items())
    ]
    return 100.0 * bool(within and within[-1]["solved"])


def _spent(row: Mapping, name: str) -> int:
    return row["drawn"] + row["read"] if name == "tokens" else row[name]


def _mean_spent(group: Sequence[Search], name: str) -> float:
    return float(np.mean([_spent(p["spent"][-1], name) for search in group for p in search["problems"]]))


def _table(title: str, groups: Groups, name: str, points: Sequence[int], limits: Mapping[str, int]) -> Table:
    rows: list[tuple[str, ...]] = []
    baseline: dict[str, float] = {}
    for method, group in groups.items():
        cells, own = [], {}
        for point in points:
            own = {p["item"]: [] for p in group[0]["problems"]}
            for problem in (p for search in group for p in search["problems"]):
                own[problem["item"]].append(solved(problem, {**limits, name: point}))
            own = {item: float(np.mean(values)) for item, values in own.items()}
            mean, low, high = map(float, interval(np.array(list(own.values()))))
            cells.append(f"{number(mean)} {ends(low, high)}".rstrip())
        baseline = baseline or own
        gaps = np.array([value - baseline[item] for item, value in own.items()])
        mean, low, high = map(float, interval(gaps))
        compared = f"{signed(mean)} {ends(low, high)}, p {p_value(sign_flips(gaps))}" if rows else ""
        rows.append((method, *cells, compared))
    against = f"last column against {next(iter(groups))}"
    return Table(title, ("method", *map(str, points), against), tuple(rows))


def costs(groups: Groups) -> Table:
    """Means over the problems of what a search spent up to its last answer."""
    names = {
        "expansions": "expansions", "executed": "executed programs", "drawn": "tokens drawn", "read": "tokens read",
    }  # fmt: skip
    rows = [
        (method, *(number(_mean_spent(group, name)) for name in names)) for method, group in groups.items()
    ]
    return Table("Spent for a problem, mean, until its last answer", ("method", *names.values()), tuple(rows))
