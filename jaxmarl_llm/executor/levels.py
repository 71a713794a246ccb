"""How strongly candidates are isolated, and the refusal to run below what the user asked for."""

from __future__ import annotations

import functools
import importlib.util

NAMES = {
    1: "process (own process, rlimits, tests outside)",
    2: "filtered (level 1, Landlock and seccomp)",
    3: "full (level 2 inside namespaces)",
}


@functools.cache
def available_level() -> tuple[int, str]:
    """The strongest level this machine offers, and why it is not higher ('' at the highest).

    Each layer is tried out, and then attacked, in processes of their own.
    """
    if importlib.util.find_spec("resource") is None or importlib.util.find_spec("fcntl") is None:
        return 0, "this platform has no fork and no resource limits"
    from . import landlock, namespaces, probe, seccomp  # here: they need both

    if not landlock.abi():
        return 1, "the kernel has no Landlock (Linux 5.13 or newer has it, unless it is switched off)"
    if reason := seccomp.supported():
        return 1, reason
    reason = namespaces.supported()
    for level in (2,) if reason else (3, 2):
        holes = probe.holes(level)
        if not holes:
            return level, reason
        reason = f"at level {level} a program can {', '.join(holes)}"
    return 1, reason


def require_level(min_level: int, level: int | None = None) -> int:
    """The level to run at: ``level``, or the strongest there is.

    ValueError for a level that does not exist or is below ``min_level``, RuntimeError for one out of reach.
    """
    for name, value in (("min_level", min_level), ("level", level)):
        if (value not in NAMES or isinstance(value, bool)) and not (name == "level" and value is None):
            raise ValueError(f"{name} is {value!r}; allowed: {', '.join(map(str, NAMES))}")
    if level is not None and level < min_level:
        raise ValueError(f"level is {level}, below min_level {min_level}")
    available, reason = available_level()
    wanted = level or min_level
    if available < wanted:
        have = f"{available}, {NAMES[available]}" if available else "none"
        name = "level" if level else "min_level"
        raise RuntimeError(
            f"{name} is {wanted}, {NAMES[wanted]}, but the level available here is {have}: "
            f"{reason}. To accept process isolation only, pass min_level=1, best inside a container or "
            "virtual machine without secrets; on platforms without fork use Linux."
        )
    return level or available
