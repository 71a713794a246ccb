"""How strongly candidates are isolated, and the refusal to run below what the user asked for."""

from __future__ import annotations

import functools
import importlib.util
import platform
import sys
import textwrap

from .errors import InputError
from .types import ExecutorError, Limits

NAMES = {
    1: "process (own process, rlimits, tests outside)",
    2: "filtered (level 1, Landlock and seccomp)",
    3: "full (level 2 inside namespaces)",
}
DEFAULT_MIN_LEVEL = 2
SHOWN = 10  # refused attacks named in an error message; `probe_tables` has all


class ExecutorRefused(RuntimeError):
    """This machine cannot isolate programs as strongly as requested; nothing has run."""


@functools.cache
def available_level() -> tuple[int, str]:
    """The strongest level this machine offers, and why it is not higher ('' at the highest).

    Each layer is first set up and then attacked, in separate processes.
    """
    if not _can_fork():
        return 0, "this platform has no fork and no resource limits"
    from .isolation import landlock, namespaces, seccomp  # imported here: they need both
    from .probing import probe

    reason = landlock.supported() or seccomp.supported()
    if reason:
        return 1, reason
    reason = namespaces.supported()
    for level in (2,) if reason else (3, 2):
        try:
            holes = probe.holes(level)
        except ExecutorError as error:
            reason = str(error)
            continue
        if not holes:
            return level, reason
        reason = f"at level {level} a program can {', '.join(holes)}"
    return 1, reason


def probe_tables(highest: int = 3) -> dict[int, dict[str, str]]:
    """{level: {attack: "refused" or "done"}} for every level up to `highest` at which programs can run here.

    Runs all attacks of `probe` again, which takes seconds.
    """
    tables = {}
    if _can_fork():
        from .probing import probe

        for level in range(1, highest + 1):
            try:
                tables[level] = probe.table(level)
            except ExecutorError:
                pass  # `available_level` says why
    return tables


def require_level(min_level: int = DEFAULT_MIN_LEVEL, level: int | None = None) -> int:
    """The level to run at: ``level``, or the strongest one available.

    ValueError for a level that does not exist or is below ``min_level``; ExecutorRefused for a level that
    this machine does not offer, with the reason, the remedy and what attacks can do here.
    """
    for name, value in (("min_level", min_level), ("level", level)):
        if (value not in NAMES or isinstance(value, bool)) and not (name == "level" and value is None):
            raise InputError(f"{name} is {value!r}; allowed: {', '.join(map(str, NAMES))}")
    if level is not None and level < min_level:
        raise InputError(
            f"level is {level}, below min_level {min_level}; to accept it, set min_level={level}"
        )
    available, reason = available_level()
    if available < (level or min_level):
        raise ExecutorRefused(_refusal(min_level, level, available, reason))
    return level or available


def describe(level: int, limits: Limits) -> dict:
    """The isolation of a run and what its verdicts depend on, as JSON data for its metadata."""
    landlock_abi = 0
    if sys.platform == "linux":
        from .isolation import landlock

        landlock_abi = landlock.abi()
    return {
        "level": level,
        "landlock_abi": landlock_abi,
        "python": platform.python_version(),
        "cpu_seconds": limits.cpu_seconds,
        "wall_seconds": limits.wall,
        "memory_mb": limits.memory_mb,
    }


def _can_fork() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("resource", "fcntl"))


def _refusal(min_level: int, level: int | None, available: int, reason: str) -> str:
    """The error message: what is missing and why, how to get it, how to accept less, the probe's table."""
    from .probing.advice import accept, remedy

    wanted = level or min_level
    name = f"{'level' if level else 'min_level'} is {wanted}, {NAMES[wanted]}"
    have = f"{available}, {NAMES[available]}" if available else "none"
    less = f" (min_level={available} accepts that)" if available and not level else ""
    lines = [f"{name}, but the level available here is {have}: {reason}{less}."]
    lines.append(f"To get level {wanted}: {remedy(wanted, reason)}.")
    if available:
        lines.append(f"To accept level {available}: {accept(available)}.")
    for tried, outcomes in probe_tables(wanted).items():
        lines += _compact(tried, outcomes)
    return "\n".join(lines)


def _compact(level: int, outcomes: dict[str, str]) -> list[str]:
    """A table of the probe in a few lines: what an attacker can and cannot do at a level."""
    done, refused = ([n for n, outcome in outcomes.items() if outcome == o] for o in ("done", "refused"))
    lines = [f"Probe at level {level}, {len(outcomes)} attacks:"]
    if done:
        lines.append(f"{len(done)} done: {', '.join(done)}")
    others = ", ".join(refused) if len(refused) <= SHOWN else "all others" if done else "all"
    lines.append(f"{len(refused)} refused: {others}")
    indents = {"initial_indent": "  ", "subsequent_indent": "    "}
    return [lines[0], *(part for line in lines[1:] for part in textwrap.wrap(line, 108, **indents))]
