"""Results of searches for programs, problem by problem, and the file that holds them.

A results file is JSON: a list with a dict for each search, first the baseline.

    method, task, seed   names of method and task, and the seed
    models               {agent: model}
    measure              what scores are: 'speed-up', 'tests' or 'answers'
    problems             for each: item, category, agent, round, turn, program, unchanged, searched and
                         held_out ({status, score, low, high, total, log}), rounds and executed (so far,
                         by round), tests, spent (by round, [] if not measured); see
                         `metrics.ItemResult`. unchanged: no program was faster
                         than the source, which is kept (its score is 1)
    metrics              {'total' or a category: {name: {mean, low, high}}}, see `metrics`
    progress             by round: {executed, mean, low, high}, see `metrics.progress`
    against              {method, seed, metrics: {name: {mean, low, high, p}}}: the baseline on the same
                         problems, with the same seed if available, and the differences from it; {}
                         for the baseline, and without a comparable baseline
    ledger               `ledger.Ledger.as_dict`
    bank                 lessons: the fields of `lessons.bank.Entry`, and ``led_to``; [] without lessons

null is an unknown value, such as the interval of a single problem.
"""

import collections
import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxmarl_llm.analysis.search import metrics as search_metrics
from jaxmarl_llm.analysis.search.metrics import ItemResult, Spent
from jaxmarl_llm.analysis.search.spending import Read, spent_by_round
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.tasks.outcomes import STATUSES, Outcome
from jaxmarl_llm.utils import files, formats
from jaxmarl_llm.utils.errors import UserError

_OUTCOME = ("status", "score", "low", "high", "total", "log")
_FIELDS = {"method": str, "task": str, "seed": int, "models": dict, "measure": str, "problems": list,
           "ledger": dict, "bank": list}  # fmt: skip


class Attempt(NamedTuple):
    """A judged program: index of its item in the forest, author, round, id of the turn, outcome."""

    item: int
    agent: str
    round: int
    turn: int
    outcome: Outcome


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """The result of a search with one method and one seed; the module docstring describes the fields."""

    method: str
    task: str
    seed: int
    models: Mapping[str, str]
    measure: str
    problems: tuple[ItemResult, ...]
    ledger: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bank: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self):
        if self.measure not in search_metrics.MEASURES:
            raise UserError(
                f"{self.method}: measure={self.measure!r}; allowed: {', '.join(search_metrics.MEASURES)}"
            )
        names = [problem.item for problem in self.problems]
        if not names or len(set(names)) < len(names):
            twice = ", ".join(sorted({name for name in names if names.count(name) > 1}))
            raise UserError(f"{self.method}: there must be one or more problems, each once; twice: {twice}")


def attempts(forest: Forest) -> list[Attempt]:
    """All programs of a forest of `ProgramJudgement`s, each once, in the order of judging."""
    by_turn = {}
    for joint in forest.joints:
        for turn in (forest.turns[i] for i in joint.turns):
            outcome = joint.judgement.outcomes[turn.agent]
            by_turn.setdefault(turn.id, Attempt(joint.item, turn.agent, joint.turn, turn.id, outcome))
    return list(by_turn.values())


def by_item(forest: Forest) -> dict[int, list[Attempt]]:
    """The attempts at each item."""
    of_items: dict[int, list[Attempt]] = {}
    for attempt in attempts(forest):
        of_items.setdefault(attempt.item, []).append(attempt)
    return of_items


def best(forest: Forest) -> dict[int, Attempt]:
    """`best_of` of the attempts at each item, over all its chains."""
    return {i: best_of(tries) for i, tries in by_item(forest).items()}


def best_of(tries: Sequence[Attempt]) -> Attempt:
    """The attempt with the highest score.

    Among equal scores a wrong program is preferred to one that could not be run, then the first attempt.
    """
    return max(tries, key=_worth)


def voted(tries: Sequence[Attempt]) -> Attempt:
    """The first attempt with the most frequent answer (of ties the first answer), regardless of scores."""
    texts = [attempt.outcome.program for attempt in tries]
    votes = collections.Counter(filter(None, texts))
    return tries[texts.index(max(votes, key=votes.__getitem__))] if votes else tries[0]


def _worth(attempt: Attempt) -> tuple[float, int]:
    return attempt.outcome.score, -STATUSES.index(attempt.outcome.status)


def item_results(
    forest: Forest,
    remeasure: Callable[[list, list[str]], Sequence[Outcome]],
    choose: Callable[[Sequence[Attempt]], Attempt] = best_of,
    by_round: bool = False,
    reads: Sequence[Read] = (),
) -> tuple[ItemResult, ...]:
    """The result for every item, with its best program measured again.

    Args:
      forest: forest of `ProgramJudgement`s.
      remeasure: (items, programs) -> outcomes, in one call, as a task's ``remeasure``. An attempt without a
        program is not measured: it stays 'no-program'.
      choose: the attempts at an item -> the chosen one.
      by_round: also measure the choice after each round, for ``ItemResult.spent``.
      reads: tokens that a value model read, for ``spent``.
    """
    of_items = by_item(forest)
    chosen: dict[int, list[Attempt]] = {}  # by item, after each round or after the last one
    for i, tries in of_items.items():
        ends = _rounds(tries) if by_round else _rounds(tries)[-1:]
        chosen[i] = [choose([a for a in tries if a.round <= t] or tries) for t in ends]
    different = dict.fromkeys((a.item, a.outcome.program) for each in chosen.values() for a in each)
    to_measure = [pair for pair in different if pair[1]]
    inputs = [forest.items[i] for i, _ in to_measure], [program for _, program in to_measure]
    held_out = dict(zip(to_measure, remeasure(*inputs) if to_measure else [], strict=True))
    results = []
    for i, tries in sorted(of_items.items()):
        attempt, item = chosen[i][-1], forest.items[i]
        executed = tuple(sum(a.outcome.executions for a in tries if a.round <= t) for t in _rounds(tries))
        solved = [
            held_out.get((i, a.outcome.program), Outcome("no-program")).status == "ok" for a in chosen[i]
        ]
        result = ItemResult(
            str(item.task_id),
            getattr(item, "category", ""),
            *attempt[1:],
            held_out=held_out.get((i, attempt.outcome.program), Outcome("no-program")),
            rounds=tuple(max(a.outcome.score for a in tries if a.round <= t) for t in _rounds(tries)),
            executed=executed,
            tests=getattr(item, "origin", ""),
            spent=spent_by_round(forest, i, executed, solved, reads) if by_round else (),
        )
        results.append(result)
    return tuple(results)


def _rounds(item_attempts: Sequence[Attempt]) -> range:
    return range(1 + max(attempt.round for attempt in item_attempts))


def bank_rows(entries: Sequence[Any], forest: Forest) -> list[dict[str, Any]]:
    """The lessons of a forest's bank as JSON data, each with the programs that followed from it.

    ``led_to``: agent, round, status and score of every program whose prompt showed the lesson (`Turn.shown`).
    """
    rows = []
    for entry in entries:
        shown = [a for a in attempts(forest) if entry.id in forest.turns[a.turn].shown]
        led_to = [
            dict(agent=a.agent, round=a.round, status=a.outcome.status, score=a.outcome.score) for a in shown
        ]
        rows.append(_plain(dataclasses.asdict(entry)) | {"led_to": led_to})
    return rows


def to_json(results: Sequence[SearchResult]) -> list[dict[str, Any]]:
    """Searches as JSON data, as in the module docstring; the first one's method is the baseline."""
    return [_search_json(result, _baseline(result, results)) for result in results]


def _baseline(result: SearchResult, results: Sequence[SearchResult]) -> SearchResult | None:
    """The search to compare with, of the same seed if possible; None for the baseline or if there is none."""
    if result.method == results[0].method:
        return None
    comparable = [other for other in results if comparison_key(other) == comparison_key(result)]
    candidates = [other for other in comparable if other.method == results[0].method]
    return next(
        (other for other in candidates if other.seed == result.seed), candidates[0] if candidates else None
    )


def comparison_key(result: SearchResult) -> tuple[str, str, frozenset[str]]:
    """Task, measure and problems: searches are comparable if these are the same."""
    return result.task, result.measure, frozenset(problem.item for problem in result.problems)


def _search_json(result: SearchResult, baseline: SearchResult | None) -> dict[str, Any]:
    metrics = search_metrics.means(result.problems, result.measure)
    curve = search_metrics.progress(result.problems, result.measure)
    return _plain({
        "method": result.method,
        "task": result.task,
        "seed": result.seed,
        "models": result.models,
        "measure": result.measure,
        "problems": [_item_json(problem, result.measure) for problem in result.problems],
        "metrics": {group: {name: interval._asdict() for name, interval in row.items()}
                    for group, row in metrics.items()},
        "progress": [{"executed": executed} | mean._asdict() for executed, mean in curve],
        "against": _against(result, baseline),
        "ledger": result.ledger,
        "bank": result.bank,
    })  # fmt: skip


def _against(result: SearchResult, baseline: SearchResult | None) -> dict[str, Any]:
    if baseline is None:
        return {}
    differences = search_metrics.differences(result.problems, baseline.problems, result.measure)
    metrics = {name: difference._asdict() for name, difference in differences.items()}
    return {"method": baseline.method, "seed": baseline.seed, "metrics": metrics}


def _item_json(result: ItemResult, measure: str) -> dict[str, Any]:
    names = ("item", "category", "agent", "round", "turn", "rounds", "executed", "tests")
    return {name: getattr(result, name) for name in names} | {
        "spent": [each._asdict() for each in result.spent],
        "program": result.best.program,
        "unchanged": measure == "speed-up" and result.searched <= 1,
        "searched": {name: getattr(result.best, name) for name in _OUTCOME},
        "held_out": {name: getattr(result.held_out, name) for name in _OUTCOME},
    }


def write(results: Sequence[SearchResult], path: Path) -> Path:
    """Write a results file."""
    data = [formats.marked(row) for row in to_json(results)]
    return files.atomic_write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def read(path: Path) -> list[SearchResult]:
    """The searches of a results file. ValueError names the file and what is wrong with it."""
    try:
        return from_json(json.loads(Path(path).read_text("utf-8")))
    except ValueError as error:  # also for invalid JSON or UTF-8
        raise UserError(f"{path} is no results file of searches: {error}") from error


def from_json(data: Any) -> list[SearchResult]:
    """Searches from the data of a results file; derived fields are not read.

    ValueError names the search and the missing or invalid field.
    """
    if not isinstance(data, list) or not data:
        raise UserError(f"a results file holds a list of one or more searches, this {type(data).__name__}")
    return [_search(row, f"search {n}") for n, row in enumerate(data, 1)]


def _search(row: Any, where: str) -> SearchResult:
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected a dict, this is {type(row).__name__}")
    row = formats.upgraded(row, where)
    for name, kind in _FIELDS.items():
        if not isinstance(row.get(name), kind):
            raise UserError(f"{where}: {name} is {row.get(name)!r:.40}; expected {kind.__name__}")
    problems = tuple(_item(item, f"{where}, problem {n}") for n, item in enumerate(row["problems"], 1))
    fields = {name: row[name] for name in _FIELDS} | {"problems": problems, "bank": tuple(row["bank"])}
    return SearchResult(**fields)


def _item(row: Any, where: str) -> ItemResult:
    try:
        searched, held_out = (
            Outcome(program=row["program"], **row[name]) for name in ("searched", "held_out")
        )
        names = ("item", "category", "agent", "round", "turn")
        by_round = (tuple(row["rounds"]), tuple(row["executed"]))
        spent = tuple(Spent(**each) for each in row.get("spent", ()))
        fields = (searched, held_out, *by_round, row.get("tests", ""), spent)
        return ItemResult(*(row[name] for name in names), *fields)
    except KeyError as error:
        raise UserError(f"{where}: {error.args[0]} is missing") from error
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {error}") from error


def _plain(value: Any) -> Any:
    """JSON data of nested dicts and sequences: numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {key: _plain(element) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(element) for element in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
