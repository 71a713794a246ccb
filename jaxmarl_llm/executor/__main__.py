"""Run a JSONL of programs and print their reports, one JSON object per line.

    python -m jaxmarl_llm.executor programs.jsonl > reports.jsonl
    python -m jaxmarl_llm.executor --level-here --table

A line holds the fields of `Program`: sources {agent: text}, entry_point, tests, and optionally prelude;
"id" is copied to the report. If the tests themselves are broken, or define no check(candidate), the line is
{"id": ..., "error": ...}. A summary of the run is printed on stderr.

Isolation levels: 1 is a separate process with limits, 2 adds filters of files and system calls, 3 adds
namespaces. The strongest level that this machine offers is used. If it is below --min-level nothing runs: a
message says why, what to do, and what a hostile program could do here.

Exit status: 0, or 2 if the input (even one line of it) or the machine cannot be used.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import sys
import time

from . import Executor, Limits, Program, available_level
from .errors import InputError
from .levels import DEFAULT_MIN_LEVEL, NAMES, probe_tables
from .types import from_plain

FIELDS = tuple(field.name for field in dataclasses.fields(Program))
BATCH = 256  # programs between two writes
BAD_TESTS = "bad tests"  # in place of a verdict


def read(lines) -> list[tuple[object, Program]]:
    """(id, program) of every line that is not blank; ValueError with the numbers of all bad lines."""
    programs, bad = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if type(row) is not dict:
                raise InputError("not an object")
            unknown = sorted(set(row) - {*FIELDS, "id"})
            if unknown:
                raise InputError(f"unknown fields {unknown}; allowed: id, {', '.join(FIELDS)}")
            name = row.pop("id", number)
            programs.append((name, from_plain(Program, row)))
        except (ValueError, TypeError) as error:
            bad.append(f"line {number}: {error}")
    if bad:
        raise InputError("\n".join(bad))
    return programs


def run(programs, executor: Executor, out) -> collections.Counter:
    """Write a report per program, or the error in its tests; return the count of each verdict."""
    verdicts = collections.Counter()
    for start in range(0, len(programs), BATCH):
        batch = programs[start : start + BATCH]
        outcomes = executor.try_tests([program for _, program in batch])
        for (name, _), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, ValueError):
                verdict, facts = BAD_TESTS, {"error": str(outcome)}
            else:
                verdict, facts = outcome.verdict, dataclasses.asdict(outcome)
            out.write(json.dumps({"id": name, **facts}) + "\n")
            verdicts[verdict] += 1
        out.flush()
    return verdicts


def parser() -> argparse.ArgumentParser:
    """The command line."""
    first, _, rest = __doc__.partition("\n")
    made = argparse.ArgumentParser(
        "python -m jaxmarl_llm.executor",
        description=first,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("programs", nargs="?", default="-", help="JSONL file; - or nothing: standard input")
    made.add_argument("--workers", type=int, help="programs at a time; default: one per CPU")
    default = "per program; default: %(default)s"
    made.add_argument("--cpu-seconds", type=float, default=Limits.cpu_seconds, help=default)
    made.add_argument("--memory-mb", type=int, default=Limits.memory_mb, help=default)
    text = "refuse to run below this isolation level; default: %(default)s"
    made.add_argument("--min-level", type=int, default=DEFAULT_MIN_LEVEL, help=text)
    made.add_argument("--level", type=int, help="run at this level; default: the strongest there is")
    made.add_argument("--level-here", action="store_true", help="only say which level this machine offers")
    text = "only attack it: a row for each attack, and what came of it at each level"
    made.add_argument("--table", action="store_true", help=text)
    return made


def show_level() -> None:
    """Print the level that this machine offers, and why it is not higher."""
    level, reason = available_level()
    why = f"; not higher because {reason}" if reason else ""
    print(f"level {level}: {NAMES.get(level, 'none')}{why}")


def show_table() -> None:
    """Print the outcome of every attack at every level that works on this machine."""
    tables = probe_tables()
    print(f"{'a program can':40}" + "".join(f"{f'level {level}':10}" for level in tables).rstrip())
    for name in next(iter(tables.values()), ()):
        print(f"{name:40}" + "".join(f"{table[name]:10}" for table in tables.values()).rstrip())


def main(arguments=None) -> int:
    """Command line entry: 0, or 2 if the input or the machine cannot be used (stderr or the rows say why)."""
    given = parser().parse_args(arguments)
    if given.level_here or given.table:
        if given.level_here:
            show_level()
        if given.table:
            show_table()
        return 0
    try:
        if given.programs == "-":
            programs = read(sys.stdin)
        else:
            with open(given.programs, encoding="utf-8") as file:
                programs = read(file)
        limits = Limits(cpu_seconds=given.cpu_seconds, memory_mb=given.memory_mb)
        begin = time.monotonic()
        with Executor(given.workers, limits, given.min_level, given.level) as executor:
            verdicts = run(programs, executor, sys.stdout)
    except (ValueError, OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    seconds = time.monotonic() - begin
    counts = ", ".join(f"{name} {count}" for name, count in verdicts.most_common())
    print(f"{len(programs)} programs at level {executor.level} in {seconds:.1f} s: {counts}", file=sys.stderr)
    return 2 if verdicts[BAD_TESTS] else 0


if __name__ == "__main__":
    sys.exit(main())
