"""Load commits: the package's own mutants, mutants and commits of a file, six mutants of one program."""

import functools
import importlib.resources
import json
import pathlib

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.coding import data_files
from jaxmarl_llm.tasks.coding.items import RULES, RowRules
from jaxmarl_llm.tasks.commits import files, making, six
from jaxmarl_llm.tasks.commits.items import Commit
from jaxmarl_llm.utils.errors import UserError

MUTANTS, SIX = "mutants", "six"
MADE = "commits/mutants.jsonl"  # in tasks/data, made by `commits.making`


def load_items(source: str, split: str, executor=None, rules: RowRules = RULES) -> list[Commit]:
    """Commits of a split of a source.

    source: 'mutants' (of the package's own problems), 'mutants:<file>' (made now from the problems in a JSONL
        file of `coding.data_files`), 'six' (six mutants of one program, which are too few to split), or the
        path of a JSONL file of commits, see `files`. An optional slice is applied after the split.
    split: 'all', 'train', 'validation' or 'test'; mutants have their problem's split, commits are split by
        repository and time.
    executor: runs tests that were not run before; None: nothing is run, and mutants of a file raise an error.
    rules: for rows of files.

    Raises:
      UserError: for an unknown source or split, bad rows, and a selection without commits.
    """
    sources.check_split(split)
    name, chosen = sources.parse(source)
    if name == MUTANTS:
        items = [item for item in _own() if split in ("all", item.problem and item.problem.split)]
    elif name.startswith(f"{MUTANTS}:"):
        items = making.of_file(name.removeprefix(f"{MUTANTS}:"), split, executor, rules)
    elif name == SIX:
        items = six.load(split)
    elif name.endswith(".jsonl") or pathlib.Path(name).is_file():
        items = files.load(name, split, executor, rules)
    else:
        raise UserError(
            f"source is {source!r}; allowed for commits: mutants, six, mutants:<file.jsonl> or the path of a .jsonl "
            "file of commits, each with an optional slice such as mutants[:40]"
        )
    if not (items := items[chosen]):
        raise UserError(f"source {source!r}, split {split!r} holds no commits; choose a larger slice")
    return items


@functools.cache  # one process loads every split
def _own() -> tuple[Commit, ...]:
    """All mutants of the package's own problems that change a test's result, in the order of the problems."""
    text = (importlib.resources.files("jaxmarl_llm.tasks") / "data" / MADE).read_text("utf-8")
    problems = {item.task_id: (place, item) for place, item in enumerate(data_files.load_starter())}
    return tuple(
        making.of_row(json.loads(line), *problems[json.loads(line)["problem"]]) for line in text.splitlines()
    )
