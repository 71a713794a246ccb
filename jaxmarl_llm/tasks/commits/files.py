"""Commits of a JSONL file, such as the commit message study's release; splits by repository and time."""

from __future__ import annotations

import dataclasses
import datetime
import logging
import math
import pathlib
from collections.abc import Mapping, Sequence

from jaxmarl_llm.executor import Executor, Program
from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.coding.items import RULES, RowRules
from jaxmarl_llm.tasks.commits import diffs
from jaxmarl_llm.tasks.commits.items import Commit
from jaxmarl_llm.utils import content, files
from jaxmarl_llm.utils.errors import UserError

# Fields of a row and their other names; the second ones are those of the study's release.
NAMES = {"message": ("message", "msg"), "repository": ("repository", "repo"), "time": ("time", "date")}
PROGRAMS = ("before", "after", "test", "entry_point")
IDS = ("task_id", "sha", "diff_id")
FIELDS = {*(name for names in NAMES.values() for name in names), *PROGRAMS, *IDS, "diff", "prelude"}
TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1
_log = logging.getLogger("jaxmarl_llm.tasks")


def load(path: str, split: str, executor=None, rules: RowRules = RULES) -> list[Commit]:
    """Commits of a split of a file, in file order.

    A row has ``message`` (or ``msg``), ``repository`` (``repo``), ``time`` (``date``: a number, or an ISO
    8601 date), and ``diff``, or the programs ``before`` and ``after`` with ``test``, ``entry_point`` and
    perhaps ``prelude`` as in coding problems. ``task_id``, ``sha`` or ``diff_id`` is its name, else its line.
    Repeated diffs are left out, and a log line says how many.

    Raises:
      UserError: for a file that is not there or has bad rows, all at once: a field that is missing, an empty diff, an
        ``after`` that passes no more tests than ``before``.
    """
    if not pathlib.Path(path).is_file():
        raise UserError(f"{path}: there is no such file of commits; docs/commits.md says how one looks")
    commits, lines = _read(path, files.read_text(path), rules.drop)
    chosen = of_split(commits, split, path)
    if not isinstance(executor, Executor):
        return chosen
    good, faults = _run(chosen, executor)
    _refuse(path, {lines[name]: fault for name, fault in faults.items()}, rules.drop and bool(good))
    return good


def _read(path: str, text: str, drop: bool) -> tuple[list[Commit], dict[str, int]]:
    """All commits of a file's text, and their line numbers by name."""
    commits: dict[str, Commit] = {}
    lines: dict[str, int] = {}
    bad, again = {}, 0
    for number, row, complaints in sources.json_lines(text):
        try:
            commit = None if complaints else of_row(row, number)
        except UserError as error:
            commit, complaints = None, [str(error)]
        if commit is None:
            bad[number] = "; ".join(complaints)
        elif commit.diff in commits:
            again += 1
        elif commit.task_id in lines:
            bad[number] = f"the name {commit.task_id!r} was already used in line {lines[commit.task_id]}"
        else:
            commits[commit.diff], lines[commit.task_id] = commit, number
    if again:
        _log.warning("%s: left out %d commits whose diff occurs twice", path, again)
    _refuse(path, bad, drop and bool(commits))
    if not commits:
        raise UserError(f"{path}: no commits")
    return list(commits.values()), lines


def _refuse(path: str, bad: Mapping[int, str], drop: bool) -> None:
    """UserError with all bad rows by line, or a warning if they may be left out."""
    listed = f"{path}: {len(bad)} bad row(s)\n" + "\n".join(f"  line {n}: {bad[n]}" for n in sorted(bad))
    if bad and not drop:
        raise UserError(listed)
    if bad:
        _log.warning("left out, as task.bad_rows='drop' says: %s", listed)


def of_row(row: dict, number: int) -> Commit:
    """The commit of a row of a file, whose tests have not been run yet.

    Raises:
      UserError: for a field that is missing or cannot be read, and an empty diff. A null field counts as
        missing.
    """
    row = sources.without_nulls(row, FIELDS)
    message, repository, time = (_field(row, name) for name in NAMES)
    programs = {name: row[name] for name in PROGRAMS if name in row}
    if wrong := [name for name, text in programs.items() if not (isinstance(text, str) and text.strip())]:
        raise UserError(f"field {wrong[0]!r} is {programs[wrong[0]]!r:.40}, expected text")
    for name in ("diff", "prelude"):
        if not isinstance(row.get(name, ""), str):
            raise UserError(f"field {name!r} is {row[name]!r:.40}, expected text")
    if bad := sources.id_complaints(row, IDS):
        raise UserError(bad[0])
    if programs and (missing := [name for name in PROGRAMS if name not in programs]):
        raise UserError(
            f"a commit with {next(iter(programs))!r} needs {missing[0]!r} too: a program without tests"
        )
    if programs and not row["entry_point"].isidentifier():
        raise UserError(f"field 'entry_point' is {row['entry_point']!r:.40}, expected the name of a function")
    given = row.get("diff", "")
    diff = diffs.of_programs(row["before"], row["after"]) if programs else diffs.of_release(given)
    if not diff.strip():
        raise UserError(
            "the diff is empty" if "diff" in row else "no field 'diff', and no 'before' and 'after'"
        )
    name = next((str(row[name]).strip() for name in IDS if name in row), f"line {number}")
    return Commit(name, diff, message, repository=repository, time=_time(time), prelude=row.get("prelude", ""),
                  **programs)  # fmt: skip


def _field(row: dict, name: str) -> str:
    """The text or number of a field under any of its names, without surrounding white space."""
    held = next((row[other] for other in NAMES[name] if other in row), None)
    text = str(held).strip() if isinstance(held, str | int | float) else ""
    if not text:
        raise UserError(f"no field {' or '.join(map(repr, NAMES[name]))}" if held is None else
                        f"field {name!r} is {held!r:.40}, expected text")  # fmt: skip
    return text


def _time(text: str) -> float:
    """Seconds from a number or a date."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            date = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise UserError(
                f"field 'time' is {text!r:.40}, expected a number or a date such as 2019-12-28"
            ) from None
        seconds = (date if date.tzinfo else date.replace(tzinfo=datetime.UTC)).timestamp()
    if not math.isfinite(seconds):
        raise UserError(f"field 'time' is {text!r:.40}, expected a number or a date such as 2019-12-28")
    return seconds


def _run(commits: Sequence[Commit], executor: Executor) -> tuple[list[Commit], dict[str, str]]:
    """The commits with their programs' test results, and {task_id: fault} of commits that fix no test."""
    programs = [
        Program({"program": text}, commit.entry_point, commit.test, commit.prelude)
        for commit in commits
        if commit.test
        for text in (commit.before, commit.after)
    ]
    outcomes = iter(executor.try_tests(programs) if programs else [])
    good, faults = [], {}
    for commit in commits:
        before, after = (next(outcomes), next(outcomes)) if commit.test else (None, None)
        if isinstance(before, ValueError) or isinstance(after, ValueError):
            faults[commit.task_id] = str(before if isinstance(before, ValueError) else after)
        elif before is None or after is None:
            good.append(commit)
        elif after.passed <= before.passed:
            faults[commit.task_id] = (
                f"the commit mends no test: 'after' passes {after.passed} of {after.total} and 'before' {before.passed}"
            )
        else:
            good.append(dataclasses.replace(commit, passed_before=before.passed, passed_after=after.passed))
    executor.metrics()  # these runs do not belong to any iteration
    return good, faults


def of_split(commits: Sequence[Commit], split: str, name: str) -> list[Commit]:
    """Commits of a split, in order: test: other repositories; validation: the latest of the rest.

    Repositories are taken in the order of a hash of their names until they have `TEST_SHARE` of the commits;
    `VALIDATION_SHARE` of the others are for validation. Nothing is random, so added commits change little.

    Raises:
      UserError: for a file of one repository, which cannot be split in this way.
    """
    if split == "all":
        return list(commits)
    names = sorted({commit.repository for commit in commits}, key=content.of_text)
    if len(names) < 2:
        raise UserError(
            f"{name}: all commits are of the repository {', '.join(names)!r}, and splits are by repository; allowed is "
            "split 'all'"
        )
    of_test: set[str] = set()
    for repository in names[:-1]:
        if sum(commit.repository in of_test for commit in commits) >= TEST_SHARE * len(commits):
            break
        of_test.add(repository)
    rest = sorted((c for c in commits if c.repository not in of_test), key=lambda commit: commit.time)
    number = math.ceil(VALIDATION_SHARE * len(rest)) if len(rest) > 1 else 0
    later = {commit.task_id for commit in rest[len(rest) - number :]}
    places = {c.task_id: "test" if c.repository in of_test else "train" for c in commits}
    places |= dict.fromkeys(later, "validation")
    return [commit for commit in commits if places[commit.task_id] == split]
