"""Commits: what they are made of, and which source has them."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
import pathlib
from collections.abc import Mapping

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.coding import data_files, row_checks
from jaxmarl_llm.tasks.coding.items import RULES, CodingItem, RowRules
from jaxmarl_llm.utils.errors import UserError

MUTANTS, SIX = "mutants", "six"
MADE = "commits/mutants.jsonl"  # in tasks/data, by `commits.making`


@dataclasses.dataclass(frozen=True)
class Commit:
    """A change of a program with the message that its author wrote.

    Attributes:
      diff: its lines, see `diffs`.
      message: the reference.
      kind: of the mutation, '' where the change is none.
      repository, time: where and when; times of one source can be ordered. Of mutants the file of the problem, and its
        place among the problems.
      before, after: the programs, '' where the source has diffs alone.
      entry_point, test, prelude: as of a `CodingItem`; ``test`` is '' where there are no tests.
      passed_before, passed_after: tests that the programs pass, of those of ``test``.
      problem: the coding problem that ``after`` solves.
      choices: programs by the word that names a change of ``before``, for an agent that can only choose among them.
    """

    task_id: str
    diff: str
    message: str
    kind: str = ""
    repository: str = ""
    time: float = 0.0
    before: str = ""
    after: str = ""
    entry_point: str = ""
    test: str = ""
    prelude: str = ""
    passed_before: int = 0
    passed_after: int = 0
    problem: CodingItem | None = None
    choices: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def family(self) -> str:
        """What commits of one program have in common: none is an example for another."""
        return self.problem.task_id if self.problem else self.task_id


def load_items(source: str, split: str, executor=None, rules: RowRules = RULES) -> list[Commit]:
    """Commits of a split of a source.

    source: 'mutants' (of the package's own problems), 'mutants:<file>' (made now, of the problems in a JSONL file of
        `coding.data_files`), 'six' (six mutants of one program, which are too few to divide), or the path of a JSONL
        file of commits, see `files`; a slice may follow, which is taken after the split.
    split: 'all', 'train', 'validation' or 'test'; of mutants that of their problem, of commits by repository and time.
    executor: runs the tests of what was not run before; None: nothing is run, and mutants of a file are refused.
    rules: for the rows of files.

    Raises:
      UserError: for an unknown source or split, bad rows, and a selection without commits.
    """
    from jaxmarl_llm.tasks.commits import files, making, six

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


@functools.cache  # one process asks for every split
def _own() -> tuple[Commit, ...]:
    """All mutants of the package's own problems that change a test's result, in the order of the problems."""
    from jaxmarl_llm.tasks.commits import making

    text = (importlib.resources.files("jaxmarl_llm.tasks") / "data" / MADE).read_text("utf-8")
    problems = {item.task_id: (place, item) for place, item in enumerate(data_files.load_starter())}
    return tuple(
        making.of_row(json.loads(line), *problems[json.loads(line)["problem"]]) for line in text.splitlines()
    )


def program_of(problem: CodingItem) -> str:
    """The program that solves a problem.

    Raises:
      UserError: for a problem without a solution or without tests.
    """
    if not problem.test.strip():
        raise UserError(f"problem {problem.task_id!r} has no tests, so nobody knows what a change of it does")
    program = row_checks.reference(problem) if problem.canonical_solution.strip() else None
    if program is None:
        raise UserError(
            f"problem {problem.task_id!r} has no canonical_solution, so there is no program to change"
        )
    return program.strip("\n") + "\n"
