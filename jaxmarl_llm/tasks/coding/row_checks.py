"""Runs the tests of problems once before they judge answers, since data can be wrong."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import pathlib
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence

from jaxmarl_llm.executor import Executor, Program
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.program_text.python_text import defines

AT_A_TIME = 64  # problems between two reports of progress
_VERSION = 1  # version of these checks: a new one checks all rows again
# Test failures that no candidate can cause, by their description in a report.
_OWN_FAILURE = re.compile(r"-> ((?:ModuleNotFound|Import|Name)Error\b.*)")
_log = logging.getLogger("jaxmarl_llm.tasks")


def faults(
    items: Sequence[CodingItem],
    executor: Executor,
    folder: pathlib.Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, str]:
    """{task_id: what is wrong} of the problems whose tests cannot judge answers.

    The tests are compiled and imported in the sandbox. They run against the canonical solution if there is
    one, else against a function that raises.

    Args:
      items: the problems.
      executor: judges the answers later; its limits and modules apply.
      folder: stores hashes of problems that passed, which are not run again; None: nothing is stored.
      progress: called with the number of problems done and the number to run.
    """
    fault_by_id, programs = {}, {}
    remembered = _Remembered(folder, executor)
    for item in items:
        source = reference(item)
        if source is None:
            fault_by_id[item.task_id] = (
                "canonical_solution is no program that defines the function, and no body of it"
            )
            continue
        program = Program({"reference": source}, item.entry_point, item.test, item.prelude)
        if program not in remembered:
            programs[item.task_id] = program
    ids, good = list(programs), []
    solved = {item.task_id for item in items if item.canonical_solution.strip()}
    for start in range(0, len(ids), AT_A_TIME):
        chosen = ids[start : start + AT_A_TIME]
        for name, outcome in zip(chosen, executor.try_tests([programs[i] for i in chosen]), strict=True):
            if fault := _fault(outcome, name in solved):
                fault_by_id[name] = fault
            else:
                good.append(programs[name])
        progress(start + len(chosen), len(ids))
    remembered.add(good)
    return fault_by_id


def reference(item: CodingItem) -> str | None:
    """The canonical solution as a program; None if it is no program. Without one, a function that raises."""
    solution, header = item.canonical_solution, f"def {item.entry_point}({item.arguments}):\n"
    if not solution.strip():
        return f"def {item.entry_point}(*args, **kwargs):\n    raise NotImplementedError\n"
    body = textwrap.indent(textwrap.dedent(solution), "    ")
    attempts = [
        solution,
        f"{item.prompt}\n{solution}",
        f"{item.prompt}\n{body}",
        header + solution,
        header + body,
    ]
    return next((text for text in attempts if _is_program(text, item.entry_point)), None)


def _is_program(text: str, entry_point: str) -> bool:
    """Whether Python takes a text as a program that defines the function; `return` may be out of place."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<reference>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return defines(text, entry_point)


def _fault(outcome, solved: bool) -> str:
    """The fault of the tests in a run, '' if none. solved: a canonical solution ran, and must pass."""
    if isinstance(outcome, ValueError):
        return str(outcome)
    own = [match[1] for line in outcome.failures if (match := _OWN_FAILURE.search(line))]
    if solved and outcome.verdict != "pass":
        first = f": {outcome.failures[0]}" if outcome.failures else ""
        return f"canonical_solution does not pass the test, verdict {outcome.verdict}{first}"
    return f"test fails by itself: {own[0]}" if own and not solved else ""


class _Remembered:
    """Digests of programs whose tests were in order, one per line of a file that only grows."""

    def __init__(self, folder: pathlib.Path | None, executor: Executor):
        self._path = folder / "checked_rows.txt" if folder else None
        limits = json.dumps(dataclasses.astuple(executor.limits))
        self._context = (_VERSION, sys.version, limits, list(executor.modules))
        try:
            self._known = set(self._path.read_text("utf-8").split()) if self._path else set()
        except (OSError, UnicodeDecodeError):
            self._known = set()  # no file yet, or it cannot be read

    def _digest(self, program: Program) -> str:
        return hashlib.sha256(program.digest(*self._context).encode()).hexdigest()[:32]

    def __contains__(self, program: Program) -> bool:
        return self._digest(program) in self._known

    def add(self, programs: Sequence[Program]) -> None:
        """Remember programs; if the folder is not writable, they are run again next time."""
        if self._path is None or not programs:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(f"{self._digest(program)}\n" for program in programs))
        except OSError as error:
            _log.debug("%s: %s", self._path, error)
