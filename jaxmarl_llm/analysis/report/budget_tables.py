"""What searches have solved within equal budgets of executed programs, tokens and expansions, as tables.

Of every problem the last round counts that had cost at most so much, in all that is limited; without one the problem
is not solved. So a method cannot gain by drawing more tokens than another to the same number of programs, or the
other way round.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from jaxmarl_llm.analysis.report.search_tables import Search, labels
from jaxmarl_llm.analysis.report.sweep_page import p_value
from jaxmarl_llm.analysis.report.tables import Table, ends, number, signed
from jaxmarl_llm.utils.statistics.bootstrap import interval
from jaxmarl_llm.utils.statistics.significance import sign_flips

MOST_COLUMNS = 6


def tables(searches: Sequence[Search]) -> list[Table]:
    """The tables; [] unless all searches have measured what was solved by budget, of the same problems.

    Columns of all methods end where the one with the least of it, on average, does. Differences are from the first
    search's, problem by problem, at the last column.
    """
    if not searches or not all(problem.get("spent") for search in searches for problem in search["problems"]):
        return []
    if len({frozenset(problem["item"] for problem in search["problems"]) for search in searches}) > 1:
        return []
    executed, drawn = (least(searches, name) for name in ("executed", "drawn"))
    programs = _table(
        f"Solved, %, by executed programs, with at most {drawn} tokens drawn", searches, "executed",
        doubling(executed), {"drawn": drawn},
    )  # fmt: skip
    tokens = []
    for name, words in (("drawn", "tokens drawn"), ("tokens", "tokens drawn and read")):
        title, most = (
            f"Solved, %, by {words}, with at most {executed} executed programs",
            least(searches, name),
        )
        points = sorted({max(most // part, 1) for part in (8, 4, 2, 1)})
        tokens.append(_table(title, searches, name, points, {"executed": executed}))
    over_steps = [search for search in searches if least([search], "expansions") > 0]
    made = [programs, *tokens]
    if over_steps:
        most = least(over_steps, "expansions")
        title = f"Solved, %, by expansions, with at most {executed} executed programs"
        made.append(_table(title, over_steps, "expansions", doubling(most), {"executed": executed}))
    return [*made, costs(searches)]


def least(searches: Sequence[Search], name: str) -> int:
    """The smallest of the methods' means over problems of what was spent at the end, as a whole number."""
    means = [
        np.mean([_spent(problem["spent"][-1], name) for problem in search["problems"]]) for search in searches
    ]
    return int(min(means))


def doubling(most: int) -> list[int]:
    """1, 2, 4, .. and ``most`` itself; the last ones, if these are too many.

    >>> doubling(6), doubling(0)
    ([1, 2, 4, 6], [0])
    """
    points = [2**n for n in range(40) if 2**n < most] + [most]
    return points[-MOST_COLUMNS:]


def solved(problem: Mapping, limits: Mapping[str, int]) -> float:
    """100 if a problem was solved when its search had spent at most so much of each, else 0."""
    within = [
        row for row in problem["spent"] if all(_spent(row, name) <= most for name, most in limits.items())
    ]
    return 100.0 * bool(within and within[-1]["solved"])


def _spent(row: Mapping, name: str) -> int:
    return row["drawn"] + row["read"] if name == "tokens" else row[name]


def _table(
    title: str, searches: Sequence[Search], name: str, points: Sequence[int], limits: Mapping[str, int]
) -> Table:
    rows, first = [], {}
    for n, (label, search) in enumerate(zip(labels(searches), searches, strict=True)):
        cells = []
        for point in points:
            own = {p["item"]: solved(p, {**limits, name: point}) for p in search["problems"]}
            mean, low, high = interval(np.array(list(own.values())))
            cells.append(f"{number(mean)} {ends(low, high)}".rstrip())
        first = first or own
        gaps = np.array([value - first[item] for item, value in own.items()])
        mean, low, high = interval(gaps)
        compared = f"{signed(mean)} {ends(low, high)}, p {p_value(sign_flips(gaps))}" if n else ""
        rows.append((label, *cells, compared))
    against = f"last column against {labels(searches)[0]}"
    return Table(title, ("method", *map(str, points), against), tuple(rows))


def costs(searches: Sequence[Search]) -> Table:
    """Means over the problems of what a search has spent until its last answer."""
    names = {
        "expansions": "expansions", "executed": "executed programs", "drawn": "tokens drawn", "read": "tokens read",
    }  # fmt: skip
    rows = [
        (label, *(number(np.mean([p["spent"][-1][name] for p in search["problems"]])) for name in names))
        for label, search in zip(labels(searches), searches, strict=True)
    ]
    return Table("Spent for a problem, mean, until its last answer", ("method", *names.values()), tuple(rows))
