"""What a search for programs found, problem by problem, and its results file.

A results file is JSON: a list with a dict for each search, one of the baseline first.

    method, task, seed   names of both, and the number
    models               {agent: model}
    measure              what scores are: 'speed-up' or 'tests'
    problems             for each: item, category, agent, round, turn, program, unchanged, searched and
                         held_out ({status, score, low, high, total, log}), rounds and executed (so far,
                         by round), tests; see `search_metrics.ItemResult`. unchanged: nothing was faster
                         than the source, which stays (its score is 1)
    metrics              {'total' or a category: {name: {mean, low, high}}}, see `search_metrics`
    progress             by round: {executed, mean, low, high}, see `search_metrics.progress`
    against              {method, seed, metrics: {name: {mean, low, high, p}}} of the baseline on the same
                         problems, with the same seed if there is one; {} without, and of the baseline
    ledger               `ledger.Ledger.as_dict`
    bank                 lessons, [] for methods without: the fields of `lessons.bank.Entry`, and ``led_to``

null stands for what is not known, such as the interval of a single problem.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxmarl_llm.analysis.search import metrics as search_metrics
from jaxmarl_llm.analysis.search.metrics import ItemResult
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.tasks.outcomes import STATUSES, Outcome
from jaxmarl_llm.utils import files

_OUTCOME = ("status", "score", "low", "high", "total", "log")
_FIELDS = {"method": str, "task": str, "seed": int, "models": dict, "measure": str, "problems": list,
           "ledger": dict, "bank": list}  # fmt: skip


class Attempt(NamedTuple):
    """A program that was judged: index of its item in the forest, author, round, id of the turn, outcome."""

    item: int
    agent: str
    round: int
    turn: int
    outcome: Outcome


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """A search with one method and seed; see the module for the fields."""

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
            raise ValueError(
                f"{self.method}: measure={self.measure!r}; allowed: {', '.join(search_metrics.MEASURES)}"
            )
        names = [each.item for each in self.problems]
        if not names or len(set(names)) < len(names):
            twice = ", ".join(sorted({name for name in names if names.count(name) > 1}))
            raise ValueError(f"{self.method}: there must be one or more problems, each once; twice: {twice}")


def attempts(forest: Forest) -> list[Attempt]:
    """All programs of a forest of `ProgramJudgement`s, each once, in the order in which they were judged."""
    found = {}
    for joint in forest.joints:
        for turn in (forest.turns[i] for i in joint.turns):
            outcome = joint.judgement.outcomes[turn.agent]
            found.setdefault(turn.id, Attempt(joint.item, turn.agent, joint.turn, turn.id, outcome))
    return list(found.values())


def best(forest: Forest) -> dict[int, Attempt]:
    """Per item the attempt of the greatest score; all its chains are one search.

    Of equal ones a wrong program counts more than one that could not be run, and then the first.
    """
    found: dict[int, Attempt] = {}
    for attempt in attempts(forest):
        if attempt.item not in found or _worth(attempt) > _worth(found[attempt.item]):
            found[attempt.item] = attempt
    return found


def _worth(attempt: Attempt) -> tuple[float, int]:
    return attempt.outcome.score, -STATUSES.index(attempt.outcome.status)


def item_results(
    forest: Forest, remeasure: Callable[[list, list[str]], Sequence[Outcome]]
) -> tuple[ItemResult, ...]:
    """What was found for every item, its best program measured again.

    remeasure: (items, programs) -> outcomes, in one call, as a task's ``remeasure``. An attempt without a
    program is not measured: it stays 'no-program'.
    """
    every, chosen = attempts(forest), best(forest)
    again = [attempt for attempt in chosen.values() if attempt.outcome.program]
    programs = [attempt.outcome.program for attempt in again]
    outcomes = remeasure([forest.items[attempt.item] for attempt in again], programs) if again else []
    held_out = {attempt.item: outcome for attempt, outcome in zip(again, outcomes, strict=True)}
    results = []
    for i, attempt in sorted(chosen.items()):
        own, item = [a for a in every if a.item == i], forest.items[i]
        result = ItemResult(
            str(item.task_id),
            getattr(item, "category", ""),
            *attempt[1:],
            held_out=held_out.get(i, Outcome("no-program")),
            rounds=tuple(max(a.outcome.score for a in own if a.round <= t) for t in _rounds(own)),
            executed=tuple(sum(a.outcome.executions for a in own if a.round <= t) for t in _rounds(own)),
            tests=getattr(item, "origin", ""),
        )
        results.append(result)
    return tuple(results)


def _rounds(found: Sequence[Attempt]) -> range:
    return range(1 + max(attempt.round for attempt in found))


def bank_rows(entries: Sequence[Any], forest: Forest) -> list[dict[str, Any]]:
    """The lessons of a forest's bank as JSON data, with what each led to.

    ``led_to``: agent, round, status and score of every program whose prompt showed it (`Turn.shown`).
    """
    rows = []
    for entry in entries:
        led = [a for a in attempts(forest) if entry.id in forest.turns[a.turn].shown]
        told = [
            dict(agent=a.agent, round=a.round, status=a.outcome.status, score=a.outcome.score) for a in led
        ]
        rows.append(_plain(dataclasses.asdict(entry)) | {"led_to": told})
    return rows


def to_json(results: Sequence[SearchResult]) -> list[dict[str, Any]]:
    """Searches as JSON data in the shape that the module describes; the first one's method is the
    baseline.
    """
    return [_search_json(result, _baseline(result, results)) for result in results]


def _baseline(result: SearchResult, results: Sequence[SearchResult]) -> SearchResult | None:
    """What a search is compared with."""
    if result.method == results[0].method:
        return None
    same = [each for each in results if asked(each) == asked(result)]
    found = [each for each in same if each.method == results[0].method]
    return next((each for each in found if each.seed == result.seed), found[0] if found else None)


def asked(result: SearchResult) -> tuple[str, str, frozenset[str]]:
    """What was searched for: searches can be compared where this is the same."""
    return result.task, result.measure, frozenset(each.item for each in result.problems)


def _search_json(result: SearchResult, baseline: SearchResult | None) -> dict[str, Any]:
    metrics = search_metrics.means(result.problems, result.measure)
    curve = search_metrics.progress(result.problems, result.measure)
    return _plain({
        "method": result.method,
        "task": result.task,
        "seed": result.seed,
        "models": result.models,
        "measure": result.measure,
        "problems": [_item_json(each, result.measure) for each in result.problems],
        "metrics": {group: {name: found._asdict() for name, found in row.items()}
                    for group, row in metrics.items()},
        "progress": [{"executed": executed} | mean._asdict() for executed, mean in curve],
        "against": _against(result, baseline),
        "ledger": result.ledger,
        "bank": result.bank,
    })  # fmt: skip


def _against(result: SearchResult, baseline: SearchResult | None) -> dict[str, Any]:
    if baseline is None:
        return {}
    found = search_metrics.differences(result.problems, baseline.problems, result.measure)
    metrics = {name: difference._asdict() for name, difference in found.items()}
    return {"method": baseline.method, "seed": baseline.seed, "metrics": metrics}


def _item_json(result: ItemResult, measure: str) -> dict[str, Any]:
    names = ("item", "category", "agent", "round", "turn", "rounds", "executed", "tests")
    return {name: getattr(result, name) for name in names} | {
        "program": result.found.program,
        "unchanged": measure == "speed-up" and result.searched <= 1,
        "searched": {name: getattr(result.found, name) for name in _OUTCOME},
        "held_out": {name: getattr(result.held_out, name) for name in _OUTCOME},
    }


def write(results: Sequence[SearchResult], path: Path) -> Path:
    """Write a results file."""
    return files.atomic_write_text(path, json.dumps(to_json(results), indent=1, allow_nan=False) + "\n")


def read(path: Path) -> list[SearchResult]:
    """The searches of a results file. ValueError names the file and what is wrong with it."""
    try:
        return from_json(json.loads(Path(path).read_text("utf-8")))
    except ValueError as error:  # also what is no JSON, or no UTF-8
        raise ValueError(f"{path} is no results file of searches: {error}") from error


def from_json(data: Any) -> list[SearchResult]:
    """The searches of a results file; what follows from the others' fields is not read.

    ValueError names the search and the field that is missing or not what it should be.
    """
    if not isinstance(data, list) or not data:
        raise ValueError(f"a results file holds a list of one or more searches, this {type(data).__name__}")
    return [_search(row, f"search {n}") for n, row in enumerate(data, 1)]


def _search(row: Any, where: str) -> SearchResult:
    if not isinstance(row, dict):
        raise ValueError(f"{where}: expected a dict, this is {type(row).__name__}")
    for name, kind in _FIELDS.items():
        if not isinstance(row.get(name), kind):
            raise ValueError(f"{where}: {name} is {row.get(name)!r:.40}; expected {kind.__name__}")
    problems = tuple(_item(each, f"{where}, problem {n}") for n, each in enumerate(row["problems"], 1))
    fields = {name: row[name] for name in _FIELDS} | {"problems": problems, "bank": tuple(row["bank"])}
    return SearchResult(**fields)


def _item(row: Any, where: str) -> ItemResult:
    try:
        found, again = (Outcome(program=row["program"], **row[name]) for name in ("searched", "held_out"))
        names = ("item", "category", "agent", "round", "turn")
        by_round = (tuple(row["rounds"]), tuple(row["executed"]))
        return ItemResult(*(row[name] for name in names), found, again, *by_round, row.get("tests", ""))
    except KeyError as error:
        raise ValueError(f"{where}: {error.args[0]} is missing") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error


def _plain(value: Any) -> Any:
    """JSON data of nested dicts and sequences: numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
