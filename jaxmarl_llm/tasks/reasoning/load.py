"""Questions of a named source, and those of a split."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Sequence

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.reasoning import benchmarks, generated, riddles, routes, tables
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem, load_jsonl
from jaxmarl_llm.utils.errors import UserError

GENERATED = {"sums": generated.sums, "words": generated.words}


def load_items(source: str, split: str = "all", grades: Collection[int] = ()) -> list[ReasoningItem]:
    """Items of a named split of a source.

    source: 'sums' or 'words' (`generated`), 'clues', 'trust', 'lock3' and others (`riddles`), 'routes' and
        'routes:two_step' (`routes`), 'tables' (`tables`), 'modelco:gsm8k' and others (`benchmarks`), or the
        path of a JSONL file, with an optional slice that is applied after the split, such as 'sums[:40]'.
    split: 'all', 'train', 'validation' or 'test'. In generated sources and files without a field `split`, the
        4th, 12th, 20th, … question of each grade is for validation, the 8th, 16th, … for the test. Riddles
        are too few to split: they only have the split 'all'.
    grades: of the questions; empty: all. A slice is taken of the questions of these grades.
    Errors: UserError for an unknown source or split, bad rows, or a selection without questions.
    """
    sources.check_split(split)
    name, chosen = sources.parse(source)
    if name in GENERATED:
        items = sources.of_split(GENERATED[name](), split, group=lambda item: item.grade)
    elif name in riddles.SOURCES:
        if split != "all":
            raise UserError(f"split is {split!r}, which is empty: {name} are too few to divide; allowed: all")
        items = riddles.load(name)
    elif name == tables.SOURCE:
        items = tables.load(split)
    elif name in routes.SOURCES:
        items = sources.of_split(routes.load(name), split, group=lambda item: item.grade)
    elif name.startswith(benchmarks.PREFIX):
        items = benchmarks.load(name.removeprefix(benchmarks.PREFIX), split)
    elif name.endswith(".jsonl") or pathlib.Path(name).is_file():
        items = _of_file(name, split)
    else:
        known = (
            *GENERATED,
            *riddles.SOURCES,
            *routes.SOURCES,
            tables.SOURCE,
            *(f"{benchmarks.PREFIX}{name}" for name in benchmarks.SETS),
        )
        raise UserError(
            f"source is {source!r}; allowed: {', '.join(known)} or the path of a .jsonl file, each with an "
            "optional slice such as 'sums[:40]'"
        )
    if grades and not (items := _of_grades(items, grades)):
        raise UserError(
            f"source {source!r}, split {split!r} holds no questions of the grades {tuple(grades)!r}"
        )
    items = items[chosen]
    if not items:
        raise UserError(f"source {source!r}, split {split!r} holds no questions; choose a larger slice")
    return items


def _of_grades(items: Sequence[ReasoningItem], grades: Collection[int]) -> list[ReasoningItem]:
    return [item for item in items if item.grade in grades]


def _of_file(name: str, split: str) -> list[ReasoningItem]:
    if not pathlib.Path(name).exists():
        raise UserError(
            f"{name}: there is no such file; it must have a JSON object on each line, with question and answer"
        )
    return sources.of_own_split(load_jsonl(name), split, name)
