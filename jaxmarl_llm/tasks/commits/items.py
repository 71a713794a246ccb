"""The data of a commit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from jaxmarl_llm.tasks.coding import row_checks
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class Commit:
    """A change of a program with the message that its author wrote.

    Attributes:
      diff: its lines, see `diffs`.
      message: the reference.
      kind: kind of the mutation, '' if the change is not a mutation.
      repository, time: where and when; times of one source can be ordered. For mutants the file of the
        problem, and the problem's position.
      before, after: the programs, '' if the source has only diffs.
      entry_point, test, prelude: as in a `CodingItem`; ``test`` is '' if there are no tests.
      passed_before, passed_after: number of tests in ``test`` that the programs pass.
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
        """A key that mutants of one program share; for other commits see `families`."""
        return self.problem.task_id if self.problem else self.task_id


def families(commits: Iterable[Commit]) -> dict[str, str]:
    """By program the program that represents its family: a commit's two programs are in one family.

    So a history, in which commits begin where others ended, is one family, in whatever order they come.
    """
    parent: dict[str, str] = {}

    def root(program: str) -> str:
        while parent.setdefault(program, program) != program:
            parent[program] = parent[parent[program]]
            program = parent[program]
        return program

    for commit in commits:
        if commit.before.strip() and commit.after.strip():
            parent[root(commit.before.strip())] = root(commit.after.strip())
    return {program: root(program) for program in list(parent)}


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
