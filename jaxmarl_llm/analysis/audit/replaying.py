"""Compare a repeated iteration with the run's record of it."""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jaxmarl_llm.transcripts import AgentRecord, JointAction

# Values that are compared: those of a joint answer, and those of each of its completions.
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
# Prefix of metrics of one of several processes; a replay may use another number of processes.
_OF_PROCESS = re.compile(r"^process\d+/")
ABSENT = "(absent)"


@dataclasses.dataclass(frozen=True)
class Difference:
    """A value that differs from the record: its place, and the value on both sides."""

    where: str
    recorded: Any
    again: Any


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How many values of a kind agree, out of how many, and the first difference."""

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
    """Compare joint answers: an `Agreement` per kind of `ANSWER` and `COMPLETION`, and for remarks and
    heard messages if the record has any.

    Args:
      recorded, again: all joint answers of an iteration, in order. An answer that only one side has counts as
        different, and so do its completions.
      per_node, cross: number of joint answers of one node, and whether they share completions. A shared
        completion counts once (see `rescoring.forest_of`) and must agree in all places where it is recorded.
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
    """The first record of a value that differs; the first record if none differs."""
    return next((row for row in rows if not same(*row[1:], tolerance)), rows[0])


def compare_metrics(recorded: Mapping, again: Mapping, tolerance: float = 0.0) -> Agreement:
    """Compare an iteration's metrics by name, without `VARYING`; non-finite numbers are None."""
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
    """Whether trees of dicts, sequences, strings, numbers and None are equal, numbers within a tolerance."""
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
