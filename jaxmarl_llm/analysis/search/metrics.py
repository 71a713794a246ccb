"""Means over the problems of a search for programs: of what was found in it, and of the same measured anew.

The numbers are those of LessonL's evaluation (arXiv 2505.23946). Of every problem the program of the greatest
score counts, as it was measured again on held-out inputs or tests; with s its speed-up, 0 unless it is right,

    correct    % of all problems whose program is right
    compiled   % whose program could be run at all
    above_2x   % with s >= 2
    geomean    exp(mean log max(1, s)): what is slower, or wrong, leaves the source as it is
    mean       mean s

and for programs whose score is the number of tests that they pass

    pass@1     % whose program passes all
    compiled   as above
    tests      mean % of the tests passed

The same of what was measured in the search is named ``searched_..``; picking the best of noisy measurements
makes it too good.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.utils.statistics.bootstrap import Interval, interval
from jaxmarl_llm.utils.statistics.significance import sign_flips

MEASURES = ("speed-up", "tests")
TOTAL = "total"
LOGARITHMIC = ("geomean", "searched_geomean")  # means are taken of logarithms
_NOT_RUN = ("build-error", "no-program")


@dataclasses.dataclass(frozen=True)
class ItemResult:
    """What a search found for one problem.

    Attributes:
      item, category: name of the problem, and of its kind ('' if it has none).
      agent, round, turn: who wrote the best program, when, and the number of the turn.
      found: the program with what was measured in the search.
      held_out: the same program, measured again.
      rounds: best score so far after each round.
      executed: programs executed so far after each round.
      tests: where those came from that the search went by, see `tasks.generation_items`; '' without tests.
    """

    item: str
    category: str
    agent: str
    round: int
    turn: int
    found: Outcome
    held_out: Outcome
    rounds: tuple[float, ...]
    executed: tuple[int, ...]
    tests: str = ""

    @property
    def searched(self) -> float:
        """Best score measured in the search."""
        return self.found.score


class Difference(NamedTuple):
    """Mean over the problems of one search less that of another, with its 95 % bootstrap interval.

    Of a geometric mean the ratio. p is of `significance.sign_flips` over the problems.
    """

    mean: float
    low: float
    high: float
    p: float


def values(results: Sequence[ItemResult], measure: str) -> dict[str, np.ndarray]:
    """Each number of every result, (R,) by name; of those in LOGARITHMIC the logarithm.

    ValueError for a measure that is not one of MEASURES.
    """
    if measure not in MEASURES:
        raise ValueError(f"measure={measure!r}; allowed: {', '.join(MEASURES)}")
    found, again = [r.found for r in results], [r.held_out for r in results]
    right_R = np.array([100.0 * (o.status == "ok") for o in again])
    compiled_R = np.array([100.0 * (o.status not in _NOT_RUN) for o in again])
    if measure == "tests":
        shares = {"tests": _passed(again), "searched_tests": _passed(found)}
        return {"pass@1": right_R, "compiled": compiled_R} | shares
    speed_R, searched_R = _speed(again), _speed(found)
    return {
        "correct": right_R,
        "compiled": compiled_R,
        "above_2x": 100.0 * (speed_R >= 2),
        "geomean": np.log(np.maximum(speed_R, 1)),
        "mean": speed_R,
        "searched_geomean": np.log(np.maximum(searched_R, 1)),
        "searched_mean": searched_R,
    }


def by_problem(results: Sequence[ItemResult], values_R: Sequence[float]) -> dict[str, float]:
    """A number of every result by the name of the problem: the mean, where it has several seeds' results."""
    found: dict[str, list[float]] = {}
    for result, value in zip(results, values_R, strict=True):
        found.setdefault(result.item, []).append(value)
    return {item: float(np.mean(each)) for item, each in found.items()}


def means(results: Sequence[ItemResult], measure: str) -> dict[str, dict[str, Interval]]:
    """Mean of each number with its 95 % bootstrap interval over the problems, by category; all as TOTAL.

    Where a problem has several results their mean counts: seeds are no further problems.
    """
    named = {TOTAL: list(results)}
    for category in sorted({r.category for r in results} - {""}):
        named[category] = [r for r in results if r.category == category]
    return {
        group: {name: _mean(name, by_problem(rows, each_R)) for name, each_R in values(rows, measure).items()}
        for group, rows in named.items()
    }


def differences(
    results: Sequence[ItemResult], baseline: Sequence[ItemResult], measure: str
) -> dict[str, Difference]:
    """Each number against that of another search, problem by problem, as in `means`.

    ValueError names the problems that only one of them has.
    """
    if alone := sorted({r.item for r in results} ^ {r.item for r in baseline}):
        raise ValueError(f"two searches are compared on the same problems; only one has {', '.join(alone)}")
    own, other, found = values(results, measure), values(baseline, measure), {}
    for name, each_R in own.items():
        theirs = by_problem(baseline, other[name])
        differ = {item: value - theirs[item] for item, value in by_problem(results, each_R).items()}
        found[name] = Difference(*_mean(name, differ), sign_flips(np.array(list(differ.values()))))
    return found


def progress(results: Sequence[ItemResult], measure: str) -> list[tuple[float, Interval]]:
    """By round: programs executed so far, mean over the problems, and the mean of the best scores so far.

    That mean is ``searched_geomean`` or ``searched_tests`` as if the search had ended there. A problem that
    has fewer rounds than others keeps its last values.
    """
    curve = []
    for t in range(max((len(r.rounds) for r in results), default=0)):
        places = [min(t, len(r.rounds) - 1) for r in results]
        executed = float(np.mean([r.executed[place] for r, place in zip(results, places, strict=True)]))
        best = [r.rounds[place] for r, place in zip(results, places, strict=True)]
        if measure == "tests":
            shares = [100.0 * n / max(r.found.total, 1) for r, n in zip(results, best, strict=True)]
            mean = _mean("searched_tests", by_problem(results, shares))
        else:
            mean = _mean("searched_geomean", by_problem(results, np.log(np.maximum(best, 1))))
        curve.append((executed, Interval(*map(float, mean))))
    return curve


def _mean(name: str, of: Mapping[str, float]) -> Interval:
    """Mean over problems with its interval, back from logarithms where they are taken: exp keeps the order of
    resamples.
    """
    found = interval(np.array(list(of.values())))
    return Interval(*(float(np.exp(x) if name in LOGARITHMIC else x) for x in found))


def _speed(outcomes: Sequence[Outcome]) -> np.ndarray:
    return np.array([o.score if o.status == "ok" else 0.0 for o in outcomes])


def _passed(outcomes: Sequence[Outcome]) -> np.ndarray:
    return np.array([100.0 * o.score / max(o.total, 1) for o in outcomes])
