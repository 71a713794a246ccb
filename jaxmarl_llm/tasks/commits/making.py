"""Makes commits with tests: mutants of verified programs, each changes the result of a test.

    python -m jaxmarl_llm.tasks.commits.making > jaxmarl_llm/tasks/data/commits/mutants.jsonl

writes those of the package's own problems; counts of omitted ones go to standard error. A row names its
problem, its program's mutant by number, and the tests that it passes.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import sys
from collections.abc import Mapping, Sequence

from jaxmarl_llm.executor import Executor, Program, Report
from jaxmarl_llm.tasks.coding import data_files
from jaxmarl_llm.tasks.coding.items import RULES, CodingItem, RowRules
from jaxmarl_llm.tasks.commits import diffs
from jaxmarl_llm.tasks.commits.items import Commit, program_of
from jaxmarl_llm.tasks.commits.mutations import Mutant, mutants
from jaxmarl_llm.utils.errors import UserError

MOST = 3  # mutants of a program, of different kinds if there are any
LONGEST = 600  # characters of a program
# If a mutant runs into a limit, which tests it passes depends on the machine.
VERDICTS = ("fail", "error")
# Kinds by how often programs have them, the most frequent first.
FREQUENT = ("constant", "operator", "call", "arguments", "condition", "boundary", "negation", "branch")
_log = logging.getLogger("jaxmarl_llm.tasks")


def rows(problems: Sequence[CodingItem], executor: Executor) -> tuple[list[dict], dict[str, int]]:
    """Rows of mutants of the problems' programs, and the number left out by reason.

    If problems share a program (two statements of one problem), the first counts. All programs run in one
    call.

    Raises:
      UserError: for a problem without tests or without a solution.
    """
    left_out: collections.Counter = collections.Counter()
    wanted: dict[str, CodingItem] = {}
    for problem in problems:
        text = program_of(problem)
        if text in wanted or len(text) > LONGEST:
            left_out["programs there twice" if text in wanted else "long programs"] += 1
        else:
            wanted[text] = problem
    made = {text: mutants(text) for text in wanted}
    texts = [
        *((text, text) for text in wanted),
        *((text, one.before) for text in wanted for one in made[text]),
    ]
    reports = dict(zip(texts, _run(texts, wanted, executor), strict=True))
    kept_rows = []
    for text, problem in wanted.items():
        own = reports[text, text]
        if own.verdict != "pass":
            left_out["programs that fail their tests"] += 1
            continue
        results = [(n, one, reports[text, one.before]) for n, one in enumerate(made[text])]
        changing = [row for row in results if row[2].passed < own.passed]
        good = [row for row in changing if row[2].verdict in VERDICTS]
        left_out["mutants that change no test"] += len(results) - len(changing)
        left_out["mutants that did not run to their end"] += len(changing) - len(good)
        left_out["more mutants of one program"] += max(0, len(good) - MOST)
        kept_rows += [
            {"problem": problem.task_id, "mutant": n, "kind": one.kind, "passed": [report.passed, own.passed]}
            for n, one, report in _unlike(good)
        ]
    return kept_rows, {name: number for name, number in left_out.items() if number}


def _run(
    texts: Sequence[tuple[str, str]], problem_of: Mapping[str, CodingItem], executor: Executor
) -> list[Report]:
    """Reports of programs on the tests of another commit's problem: pairs of that commit and a program."""
    programs = [
        Program({"program": text}, problem_of[own].entry_point, problem_of[own].test, problem_of[own].prelude)
        for own, text in texts
    ]
    return executor.run(programs) if programs else []


def _unlike(good: Sequence[tuple[int, Mutant, Report]]) -> list[tuple[int, Mutant, Report]]:
    """Up to `MOST` mutants in their order: one of each kind before any second one, rare kinds first."""
    seen: collections.Counter = collections.Counter()
    ranked = []
    for row in good:
        ranked.append((seen[row[1].kind], -FREQUENT.index(row[1].kind), row))
        seen[row[1].kind] += 1
    return sorted(
        (row for *_, row in sorted(ranked, key=lambda each: each[:2])[:MOST]), key=lambda row: row[0]
    )


def of_row(row: dict, place: int, problem: CodingItem) -> Commit:
    """The commit of a row of `rows`; ``place``: its problem's position among all, used as its time."""
    after = program_of(problem)
    mutant = mutants(after)[row["mutant"]]
    if mutant.kind != row["kind"]:
        raise UserError(
            f"mutant {row['mutant']} of {row['problem']!r} is {mutant.kind!r}, not {row['kind']!r}"
        )
    passed_before, passed_after = row["passed"]
    return Commit(
        task_id=f"{problem.task_id}/{row['mutant']}",
        diff=diffs.of_programs(mutant.before, after),
        message=mutant.message,
        kind=mutant.kind,
        repository=problem.task_id.rpartition("/")[0],
        time=float(place),
        before=mutant.before,
        after=after,
        entry_point=problem.entry_point,
        test=problem.test,
        prelude=problem.prelude,
        passed_before=passed_before,
        passed_after=passed_after,
        problem=problem,
    )


def of_file(path: str, split: str, executor, rules: RowRules = RULES) -> list[Commit]:
    """Mutants of the problems of a split of a JSONL file, see `coding.data_files.load_items`.

    Raises:
      UserError: without an executor, and where no mutant changes a test.
    """
    if executor is None:
        raise UserError(f"mutants of {path!r} are made by running their tests, and no executor is there")
    problems = data_files.load_items(path, split, rules)
    places = {problem.task_id: (place, problem) for place, problem in enumerate(problems)}
    kept_rows, left_out = rows(problems, executor)
    _log.warning("%d mutants of %s; left out: %s", len(kept_rows), path, listed(left_out))
    if not kept_rows:
        raise UserError(f"{path}: no mutant of its programs changes a test's result; {listed(left_out)}")
    return [of_row(row, *places[row["problem"]]) for row in kept_rows]


def listed(left_out: dict[str, int]) -> str:
    """A sentence about what was left out."""
    return ", ".join(f"{number} {name}" for name, number in left_out.items()) or "nothing"


def main() -> None:
    """Write the rows of the package's own problems."""
    argparse.ArgumentParser(
        description="Prints mutants of the package's own problems, a JSON line each."
    ).parse_args()
    with Executor() as executor:
        kept_rows, left_out = rows(data_files.load_starter(), executor)
    for row in kept_rows:
        print(json.dumps(row))
    print(f"{len(kept_rows)} mutants; left out: {listed(left_out)}", file=sys.stderr)


if __name__ == "__main__":
    main()
