"""How strongly candidates are isolated, and the refusal to run below what the user asked for."""

from __future__ import annotations

import importlib.util

NAMES = {
    1: "process (own process, rlimits, tests outside)",
    2: "filtered (level 1, Landlock and seccomp)",
    3: "full (level 2 inside namespaces)",
}


def available_level() -> tuple[int, str]:
    """The strongest level this machine and version offer, and why it is not higher."""
    if importlib.util.find_spec("resource") is None or importlib.util.find_spec("fcntl") is None:
        return 0, "this platform has no fork and no resource limits"
    return 1, "levels 2 and 3 are not built yet"


def require_level(min_level: int) -> int:
    """The level to run at; ValueError for a level that does not exist, RuntimeError for one out of reach."""
    if min_level not in NAMES or isinstance(min_level, bool):
        raise ValueError(f"min_level is {min_level!r}; allowed: {', '.join(map(str, NAMES))}")
    level, reason = available_level()
    if level < min_level:
        have = f"{level}, {NAMES[level]}" if level else "none"
        raise RuntimeError(
            f"min_level is {min_level}, {NAMES[min_level]}, but the level available here is {have}: "
            f"{reason}. To accept process isolation only, pass min_level=1, best inside a container or "
            "virtual machine without secrets; on platforms without fork use Linux."
        )
    return level
