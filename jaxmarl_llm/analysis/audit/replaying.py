"""Compare an iteration that was done again with the run's record of it."""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jaxmarl_llm.transcripts import AgentRecord, JointAction

# Values that are compared: of a joint answer, and of a completion in it.
ANSWER: dict[str, Callable[[JointAction], Any]] = {
    "items": lambda action: (action.item, action.turn, action.follows, tuple(action.agents)),
    "rewards": lambda action: (action.total, action.parts),
    "verdicts": lambda action: (action.verdict, action.failures, action.interactions),
    "heard": lambda action: [(agent, dataclasses.asdict(speech)) for agent, speech in action.heard],
}
COMPLETION: dict[str, Callable[[AgentRecord], Any]] = {
    "prompts": lambda speech: speech.prompt,
    "texts": lambda speech: speech.completion,
    "token lengths": lambda speech: (speech.prompt_length, speech.completion_length, speech.finish_reason),
    "advantages": lambda speech: speech.advantage,
    "remarks": lambda speech: speech.remark and dataclasses.asdict(speech.remark),
}
METRICS = "metrics"
# Prefixes of metrics that depend on a clock, the machine or an earlier process.
VARYING = ("seconds", "cpu_seconds", "tokens_per_s", "memory/", "executor/", "expert/", "spent/",
           "engine/publish_seconds", "engine/repeated")  # fmt: skip
# Before those of one of several processes, of which a replay may have another number.
_OF_PROCESS = re.compile(r"^process\d+/")
ABSENT = "(absent)"


@dataclasses.dataclass(frozen=True)
class Difference:
    """A value that differs from the record: where it is, and the value on both sides."""

    where: str
    recorded: Any
    again: Any


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Number of values of a kind that agree, of how many, and the first difference."""

    kind: str
    agree: int
    of: int
    first: Difference | None


def compare(
    recorded: Sequence[JointAction],
    again: Sequence[JointAction],
    per_node: int,
    cross: bool,
    tolerance: float = 0.0,
) -> list[Agreement]:
    """Compare joint answers: an `Agreement` per kind of `ANSWER` and `COMPLETION`, of remarks and of what was
    heard if there are any in the record.

    Args:
      recorded, again: all joint answers of an iteration, in order. One that only one side has is different,
        and so are the completions in it.
      per_node, cross: number of joint answers of one node, and whether they share completions, which then are
        counted once (see `rescoring.forest_of`) and agree if they agree wherever they are recorded.
      tolerance: numbers are equal if they differ by no more than this times the larger one.
    """
    answers, completions = [], {}
    for j, (old, new) in enumerate(itertools.zip_longest(recorded, again)):
        answer = old or new
        place = f"joint answer {j} (item {answer.item}, turn {answer.turn})"
        answers.append((place, old, new))
        for agent, speech in answer.agents.items():
            key = (j // per_node, agent, speech.sample if cross else j)
            sides = (side.agents.get(agent) if side else None for side in (old, new))
            completions.setdefault(key, []).append((f"{place}, {agent}", *sides))
    sources = (ANSWER, [[row] for row in answers]), (COMPLETION, list(completions.values()))
    table = []
    for kinds, places in sources:
        for kind, read in kinds.items():
            values = [[(at, _read(read, old), _read(read, new)) for at, old, new in rows] for rows in places]
            table.append(agreement(kind, [_most_different(rows, tolerance) for rows in values], tolerance))
    present = {
        "remarks": any(speech.remark for action in (*recorded, *again) for speech in action.agents.values()),
        "heard": any(action.heard for action in recorded),  # not in transcripts of earlier versions
    }
    return [part for part in table if present.get(part.kind, True)]


def _most_different(rows: list[tuple[str, Any, Any]], tolerance: float) -> tuple[str, Any, Any]:
    """Of the places where a value is recorded, the first at which it differs, or just the first."""
    return next((row for row in rows if not same(*row[1:], tolerance)), rows[0])


def compare_metrics(recorded: Mapping, again: Mapping, tolerance: float = 0.0) -> Agreement:
    """Compare an iteration's metrics by name, without `VARYING`; numbers that are not finite are None."""
    every = {**recorded, **again}
    names = [n for n in every if n != "step" and not _OF_PROCESS.sub("", n).startswith(VARYING)]
    rows = [(name, *(_finite(side.get(name, ABSENT)) for side in (recorded, again))) for name in names]
    return agreement(METRICS, rows, tolerance)


def agreement(kind: str, rows: Iterable[tuple[str, Any, Any]], tolerance: float) -> Agreement:
    """Count the rows (where, recorded, again) whose two sides are the same."""
    rows = list(rows)
    different = [Difference(*row) for row in rows if not same(*row[1:], tolerance)]
    return Agreement(kind, len(rows) - len(different), len(rows), different[0] if different else None)


def same(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Whether trees of dicts, sequences, texts, numbers and None are equal, numbers within a tolerance."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other, itertools.repeat(tolerance)))
    if isinstance(one, float | int) and isinstance(other, float | int):
        return abs(one - other) <= tolerance * max(abs(one), abs(other))
    return one == other


def _read(read: Callable, side: Any) -> Any:
    return ABSENT if side is None else read(side)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
