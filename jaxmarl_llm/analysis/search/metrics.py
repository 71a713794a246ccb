"""Means over the problems of a search: of the scores measured in it, and of the same programs measured again.

The metrics are those of LessonL's evaluation (arXiv 2505.23946). For every problem the program
with the highest score counts, as measured again on held-out inputs or tests. With its speed-up s, 0 unless
it is right, the metrics are

    correct    % of all problems whose program is right
    compiled   % whose program could be run at all
    above_2x   % with s >= 2
    geomean    exp(mean log max(1, s)): the source is kept instead of a slower or wrong program
    mean       mean s

for programs whose score is the number of passed tests

    pass@1     % whose program passes all
    compiled   as above
    tests      mean % of the tests passed

and for answers to questions, where the most frequent answer of a search counts (the first one of ties)

    right      % whose answer is right
    answered   % with an answer

Names with the prefix ``searched_`` are for the scores measured in the search, which are biased upwards: the
best of noisy measurements was chosen. ``searched_right`` is the % with a right answer among all answers.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.statistics.bootstrap import Interval, interval
from jaxmarl_llm.utils.statistics.significance import sign_flips

MEASURES = ("speed-up", "tests", "answers")
TOTAL = "total"
LOGARITHMIC = ("geomean", "searched_geomean")  # means are over logarithms
_NOT_RUN = ("build-error", "no-program")


class Spent(NamedTuple):
    """Costs of a search for a problem so far, and whether it is solved.

    expansions: texts for which next lines were sampled. executed: programs executed or answers judged. drawn:
    tokens of all completions. read: tokens of prompts, once per request, and tokens that a value model read.
    solved: whether the current choice is right when measured again.
    """

    expansions: int
    executed: int
    drawn: int
    read: int
    solved: bool


@dataclasses.dataclass(frozen=True)
class ItemResult:
    """The result of a search for one problem.

    Attributes:
      item, category: name of the problem, and of its category ('' if it has none).
      agent, round, turn: author of the best program, its round, and the id of its turn.
      best: the best program, as measured in the search.
      held_out: the same program, measured again.
      rounds: best score so far after each round.
      executed: programs executed so far after each round.
      tests: origin of the tests used in the search, see `generation_items.GenerationItem`; '' without tests.
      spent: after each round, if that was measured (``search.by_budget``).
    """

    item: str
    category: str
    agent: str
    round: int
    turn: int
    best: Outcome
    held_out: Outcome
    rounds: tuple[float, ...]
    executed: tuple[int, ...]
    tests: str = ""
    spent: tuple[Spent, ...] = ()

    @property
    def searched(self) -> float:
        """Best score measured in the search."""
        return self.best.score


class Difference(NamedTuple):
    """Mean over the problems of one search minus that of another, with its 95 % bootstrap interval.

    For a geometric mean it is the ratio. p is the p-value of `significance.sign_flips` over the problems.
    """

    mean: float
    low: float
    high: float
    p: float


def values(results: Sequence[ItemResult], measure: str) -> dict[str, np.ndarray]:
    """All metrics of every result, (R,) by name; for metrics in LOGARITHMIC, their logarithm.

    ValueError for a measure that is not one of MEASURES.
    """
    if measure not in MEASURES:
        raise UserError(f"measure={measure!r}; allowed: {', '.join(MEASURES)}")
    searched, held_out = [r.best for r in results], [r.held_out for r in results]
    right_R = np.array([100.0 * (o.status == "ok") for o in held_out])
    compiled_R = np.array([100.0 * (o.status not in _NOT_RUN) for o in held_out])
    if measure == "answers":
        some_R = np.array([100.0 * max(r.rounds, default=0.0) for r in results])
        return {"right": right_R, "answered": compiled_R, "searched_right": some_R}
    if measure == "tests":
        shares = {"tests": _passed(held_out), "searched_tests": _passed(searched)}
        return {"pass@1": right_R, "compiled": compiled_R} | shares
    speed_R, searched_R = _speed(held_out), _speed(searched)
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
    """Mean value of each problem by its name, over its results of one or several seeds."""
    groups: dict[str, list[float]] = {}
    for result, value in zip(results, values_R, strict=True):
        groups.setdefault(result.item, []).append(value)
    return {item: float(np.mean(group)) for item, group in groups.items()}


def means(results: Sequence[ItemResult], measure: str) -> dict[str, dict[str, Interval]]:
    """Mean of each metric with its 95 % bootstrap interval over problems, by category; TOTAL: all problems.

    A problem with several results counts once, with their mean: another seed is not another problem.
    """
    groups = {TOTAL: list(results)}
    for category in sorted({r.category for r in results} - {""}):
        groups[category] = [r for r in results if r.category == category]
    return {
        group: {
            name: _mean(name, by_problem(rows, values_R)) for name, values_R in values(rows, measure).items()
        }
        for group, rows in groups.items()
    }


def differences(
    results: Sequence[ItemResult], baseline: Sequence[ItemResult], measure: str
) -> dict[str, Difference]:
    """Difference of each metric from that of another search, problem by problem, as in `means`.

    ValueError names the problems that only one search has.
    """
    if alone := sorted({r.item for r in results} ^ {r.item for r in baseline}):
        raise UserError(f"two searches are compared on the same problems; only one has {', '.join(alone)}")
    own_values, baseline_values, by_name = values(results, measure), values(baseline, measure), {}
    for name, values_R in own_values.items():
        baseline_means = by_problem(baseline, baseline_values[name])
        gaps = {item: value - baseline_means[item] for item, value in by_problem(results, values_R).items()}
        by_name[name] = Difference(*_mean(name, gaps), sign_flips(np.array(list(gaps.values()))))
    return by_name


def progress(results: Sequence[ItemResult], measure: str) -> list[tuple[float, Interval]]:
    """For each round, means over the problems: programs executed so far, and best score so far.

    The latter is ``searched_geomean``, ``searched_tests`` or ``searched_right`` if the search ended there. A
    problem with fewer rounds than others keeps its last values.
    """
    curve = []
    for t in range(max((len(r.rounds) for r in results), default=0)):
        last_rounds = [min(t, len(r.rounds) - 1) for r in results]
        executed = float(np.mean([r.executed[last] for r, last in zip(results, last_rounds, strict=True)]))
        best = [r.rounds[last] for r, last in zip(results, last_rounds, strict=True)]
        if measure != "speed-up":
            shares = [100.0 * n / max(r.best.total, 1) for r, n in zip(results, best, strict=True)]
            mean = _mean("searched_tests", by_problem(results, shares))
        else:
            mean = _mean("searched_geomean", by_problem(results, np.log(np.maximum(best, 1))))
        curve.append((executed, Interval(*map(float, mean))))
    return curve


def _mean(name: str, by_item: Mapping[str, float]) -> Interval:
    """Mean over problems with its interval; for metrics in LOGARITHMIC, exp of both.

    exp keeps the order of resamples, so the interval stays valid.
    """
    estimate = interval(np.array(list(by_item.values())))
    return Interval(*(float(np.exp(x) if name in LOGARITHMIC else x) for x in estimate))


def _speed(outcomes: Sequence[Outcome]) -> np.ndarray:
    return np.array([o.score if o.status == "ok" else 0.0 for o in outcomes])


def _passed(outcomes: Sequence[Outcome]) -> np.ndarray:
    return np.array([100.0 * o.score / max(o.total, 1) for o in outcomes])
