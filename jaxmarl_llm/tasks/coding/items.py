"""Coding problems, and how they are read from rows of a JSONL file. Bad rows are reported all at once."""

from __future__ import annotations

import ast
import dataclasses
import functools
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from jaxmarl_llm.executor.judging import units
from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.coding import needs
from jaxmarl_llm.tasks.coding.signature import arguments_of, arguments_text, passed_text, read_signature
from jaxmarl_llm.tasks.judgement import is_statement
from jaxmarl_llm.tasks.program_text.python_text import parse
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

_FIELDS = ("task_id", "prompt", "test", "entry_point")
_OPTIONAL = ("canonical_solution", "grade", "statement", "split")
_MADE = ("params", "prelude", "columns")  # read from the prompt; a column of the same name would hide them
_SPLITS = tuple(split for split in sources.SPLITS if split != "all")
_log = logging.getLogger("jaxmarl_llm.tasks")


@dataclasses.dataclass(frozen=True)
class CodingItem:
    """One problem.

    prompt: signature and docstring, after imports and helpers if any. test: defines `check(candidate)`.
    params: the entry point's parameter names ('*args' with its star). prelude: what precedes the entry point
    in the prompt. canonical_solution: as the data gives it, or ''. grade: difficulty, 0 if the data has none.
    statement: how the problem is stated, '' if the data does not say; evaluations report each statement
      separately.
    In the starter set: "steps" (names the steps), "goal" (says only what to return), "written" (by hand).
    split: "train", "validation" or "test", '' if the data does not say.
    columns: the other fields of its row, by name; a user's own reward function gets them.
    """

    task_id: str
    prompt: str
    entry_point: str
    test: str
    params: tuple[str, ...]
    prelude: str = ""
    canonical_solution: str = ""
    grade: int = 0
    statement: str = ""
    split: str = ""
    columns: Mapping[str, object] = dataclasses.field(default_factory=dict, hash=False)

    @functools.cached_property
    def arguments(self) -> str:
        """The argument list of a header, without annotations: ``x, *, by=2``."""
        return arguments_text(self._signature) if self._signature else ", ".join(self.params)

    @functools.cached_property
    def passed(self) -> str:
        """The arguments with which such a function calls another one that takes the same: ``x, by=by``."""
        return passed_text(self._signature) if self._signature else ", ".join(self.params)

    @functools.cached_property
    def _signature(self) -> ast.arguments | None:
        """None for an item that was made without a prompt."""
        return arguments_of(self.prompt, self.entry_point)


@dataclasses.dataclass(frozen=True)
class RowRules:
    """How to treat rows whose tests cannot judge answers.

    modules: what tests may import besides the standard library. check: problems -> {task_id: what is wrong},
    see `row_checks.faults`; None: tests are not run. drop: leave bad rows out, with a warning that names
    them, instead of raising a ValueError.
    """

    modules: Collection[str] = ()
    check: Callable[[Sequence[CodingItem]], Mapping[str, str]] | None = None
    drop: bool = False


RULES = RowRules()


def load_jsonl(path, rules: RowRules = RULES) -> list[CodingItem]:
    """Items of a JSONL file in the CoopHumanEval / MBPP schema: task_id, prompt, test, entry_point and, if
    there, canonical_solution, grade, statement and split; other fields become `columns`. Either all rows have
    a split or none. One ValueError lists all bad rows with their line numbers and task_ids."""
    return parse_lines(files.read_text(path), str(path), rules)


def parse_lines(text: str, name: str, rules: RowRules = RULES) -> list[CodingItem]:
    """Items of JSONL `text`; `name` is what an error calls it. See `load_jsonl`."""
    items, bad, first_line = [], {}, {}
    lines = list(sources.json_lines(text))
    with_split = any("split" in row for _, row, _ in lines)
    for number, row, complaints in lines:
        complaints = complaints or _complaints(row, with_split, rules.modules)
        if not complaints and row["task_id"] in first_line:
            complaints = [f"task_id {row['task_id']!r} was already used in line {first_line[row['task_id']]}"]
        if complaints:
            task_id = f" ({row['task_id']})" if isinstance(row.get("task_id"), str) else ""
            bad[number] = f"line {number}{task_id}: {'; '.join(complaints)}"
        else:
            first_line[row["task_id"]] = number
            items.append(item_from_row(row))
    if not items and not bad:
        raise UserError(f"{name}: no rows; expected one JSON object per line with {', '.join(_FIELDS)}")
    for task_id, fault in (rules.check(items) if rules.check and items else {}).items():
        number = first_line[task_id]
        bad[number] = f"line {number} ({task_id}): {fault}"
    good = [item for item in items if first_line[item.task_id] not in bad]
    return accepted(good, [bad[number] for number in sorted(bad)], name, rules)


def checked(items: list[CodingItem], name: str, rules: RowRules) -> list[CodingItem]:
    """Items of a data set that is not a file of lines, without those that `rules.check` rejects."""
    faults = rules.check(items) if rules.check else {}
    good = [item for item in items if item.task_id not in faults]
    return accepted(good, [f"{task_id}: {fault}" for task_id, fault in faults.items()], name, rules)


def accepted(good: list[CodingItem], bad: Sequence[str], name: str, rules: RowRules) -> list[CodingItem]:
    """The good items, if there are no bad rows or they may be dropped; else a ValueError that lists them."""
    if bad:
        listed = f"{name}: {len(bad)} bad row(s)\n" + "\n".join(f"  {line}" for line in bad)
        if not rules.drop or not good:
            raise UserError(listed)
        _warn_of(listed)
    return good


@functools.lru_cache(maxsize=64)
def _warn_of(listed: str) -> None:
    """Warn once, though all splits may be rows of one file."""
    _log.warning("left out, as task.bad_rows='drop' says: %s", listed)


def item_from_row(row: dict) -> CodingItem:
    """The item of a row that has been checked (see `load_jsonl`), or of a data set that is trusted
    (HumanEval)."""
    params, prelude = read_signature(row["prompt"], row["entry_point"])
    return CodingItem(
        task_id=str(row["task_id"]),
        prompt=row["prompt"],
        entry_point=row["entry_point"],
        test=row["test"],
        params=params,
        prelude=prelude,
        canonical_solution=row.get("canonical_solution", ""),
        grade=row.get("grade", 0),
        statement=row.get("statement", ""),
        split=row.get("split", ""),
        columns=sources.other_columns(row, (*_FIELDS, *_OPTIONAL)),
    )


def _complaints(row: dict, with_split: bool, modules: Collection[str]) -> list[str]:
    """All that is wrong with a row. A task_id that is a number becomes text: MBPP numbers its tasks."""
    if isinstance(row.get("task_id"), int):
        row["task_id"] = str(row["task_id"])
    if with_split and "split" not in row:
        return ["no field 'split', which other rows have"]
    return _field_complaints(row) or _content_complaints(row, modules)


def _field_complaints(row: dict) -> list[str]:
    complaints = [f"no field {field!r}" for field in _FIELDS if field not in row]
    for field in (*_FIELDS, "canonical_solution"):
        value = row.get(field, "ok")
        if not isinstance(value, str):
            complaints.append(f"field {field!r} is {value!r:.40}, expected text")
        elif field in _FIELDS and not value.strip():
            complaints.append(f"field {field!r} is empty")
    if not isinstance(row.get("grade", 0), int):
        complaints.append(f"field 'grade' is {row['grade']!r:.40}, expected a whole number")
    if row.get("split", _SPLITS[0]) not in _SPLITS:
        complaints.append(f"field 'split' is {row['split']!r:.40}, expected one of {', '.join(_SPLITS)}")
    statement = row.get("statement", "")
    if not (isinstance(statement, str) and re.fullmatch(r"\w*", statement)):
        complaints.append(f"field 'statement' is {statement!r:.40}, expected one word")
    elif not is_statement(statement):
        complaints.append(f"field 'statement' is {statement!r}: return_{statement} is another result")
    return complaints + sources.column_complaints(row, _MADE)


def _content_complaints(row: dict, modules: Collection[str]) -> list[str]:
    complaints, prelude = [], ""
    try:
        prelude = read_signature(row["prompt"], row["entry_point"])[1]
    except ValueError as error:
        complaints.append(str(error))
    return complaints_of_test(row["test"], prelude, row["entry_point"], modules) + complaints


def complaints_of_test(test: str, prelude: str, entry_point: str, modules: Collection[str] = ()) -> list[str]:
    """Why the text of a test cannot judge answers, as sentences without a period; see `load_jsonl`."""
    return list(_complaints_of_test(test, prelude, entry_point, tuple(modules)))


@functools.lru_cache(maxsize=1 << 14)  # every split of a run reads the same file
def _complaints_of_test(test: str, prelude: str, entry_point: str, modules: tuple[str, ...]) -> list[str]:
    tree = parse(test)
    check = None if tree is None else units.check_function(tree)
    if tree is None:
        return ["test does not parse"]
    if check is None:
        return [
            "test does not define check(candidate), a function that can be called with the candidate alone"
        ]
    complaints = []
    if not units.asserts(check, units.assertive_names(tree)):
        complaints.append("check() in test has no assert, and calls nothing that has one")
    if foreign := needs.foreign_modules(f"{prelude}\n{test}", modules):
        names = ", ".join(foreign)
        complaints.append(
            f"test imports {names}, which the sandbox does not have; allow it in executor.allow_modules"
        )
    if missing := needs.undefined(test, prelude, entry_point):
        names = ", ".join(missing)
        complaints.append(f"test uses {names}, which neither it nor what precedes the function defines")
    return complaints
