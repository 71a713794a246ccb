"""Helpers of all item loaders: source names with slices, splits, and the lines of JSONL files."""

from __future__ import annotations

import collections
import json
import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from jaxmarl_llm.utils.errors import UserError

SPLITS = ("train", "validation", "test", "all")
_PLACES = {4: "validation", 0: "test"}  # of every eight consecutive items of a group, by number modulo 8
_SOURCE = re.compile(r"(?P<name>.+?)(?:\[(?P<start>-?\d*):(?P<stop>-?\d*)(?::(?P<step>[1-9]\d*))?\])?")
_NAMED = 5  # rows that an error lists
T = typing.TypeVar("T")


def parse(source: str) -> tuple[str, slice]:
    """'name[10:50]' or 'name[::2]' as name and slice; without a valid slice, `source` is the name."""
    match = _SOURCE.fullmatch(source)
    if not match or match["start"] is None:
        return source, slice(None)
    bounds = (int(match[name]) if match[name] else None for name in ("start", "stop", "step"))
    return match["name"], slice(*bounds)


def check_split(split: str) -> None:
    """Raise ValueError unless `split` is one of SPLITS."""
    if split not in SPLITS:
        raise UserError(f"split is {split!r}; allowed: {', '.join(SPLITS)}")


def of_split(items: Sequence[T], split: str, group: Callable[[T], object] = lambda item: None) -> list[T]:
    """Items that belong to `split`, in order, by their place in their group.

    Of each group the 4th, 12th, 20th, … are for validation, the 8th, 16th, 24th, … for the test, and all
    others for training; so a group of less than eight items has none for the test.
    """
    seen: collections.Counter = collections.Counter()
    chosen = []
    for item in items:
        seen[group(item)] += 1
        if split in ("all", _PLACES.get(seen[group(item)] % 8, "train")):
            chosen.append(item)
    return chosen


def of_own_split(items: Sequence[typing.Any], split: str, source: str) -> list:
    """Items that belong to `split` by the field ``split`` of their rows, or, if none has it, as `of_split` by grade.

    Items have ``split``, ``grade`` and ``task_id``. UserError with the ids of rows without one where others have one.
    """
    if not any(item.split for item in items):
        return of_split(items, split, group=lambda item: item.grade)
    without = [item.task_id for item in items if not item.split] if split != "all" else []
    if without:
        named = f"{', '.join(map(str, without[:_NAMED]))}{', ..' if len(without) > _NAMED else ''}"
        raise UserError(
            f"{source}: {len(without)} row(s) have no field 'split' where others have one, and are in none: {named}"
        )
    return [item for item in items if split in ("all", item.split)]


def other_columns(row: Mapping[str, T], known: Sequence[str]) -> dict[str, T]:
    """The fields of a row other than the `known` ones, by name."""
    return {name: value for name, value in row.items() if name not in known}


def without_nulls(row: Mapping[str, T], names: Collection[str]) -> dict[str, T]:
    """A row without those of these fields that are null, which means "not given" in JSON."""
    return {name: value for name, value in row.items() if value is not None or name not in names}


def id_complaints(row: Mapping, names: Sequence[str] = ("task_id",)) -> list[str]:
    """Complaints about identifying fields of a row that are neither text nor a whole number."""
    wrong = [name for name in names if name in row and not _is_id(row[name])]
    return [f"field {name!r} is {row[name]!r:.40}, expected text or a whole number" for name in wrong]


def _is_id(value) -> bool:
    return bool(value.strip()) if isinstance(value, str) else type(value) is int


def column_complaints(row: Mapping, made: Sequence[str]) -> list[str]:
    """Complaints about fields of a row whose names a reward function already uses for other arguments.

    made: fields of the item that do not come from the row.
    """
    taken = [name for name in ("completions", *made) if name in row]
    return [f"field {name!r} has a name that is taken, rename it" for name in taken]


def json_lines(text: str) -> Iterator[tuple[int, dict, list[str]]]:
    """Number (from 1), JSON object and complaints of every line that is not blank.

    A line that is not a JSON object gives {} with one complaint; all others have no complaint.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, {}, [f"invalid JSON ({error})"]
            continue
        if isinstance(row, dict):
            yield number, row, []
        else:
            yield number, {}, [f"a JSON {type(row).__name__}, expected an object"]
