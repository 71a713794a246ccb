"""How long a process has waited for a CPU, which tells whether it sleeps or is kept waiting."""

from __future__ import annotations

import contextlib
import time


def waited(pid: int) -> float | None:
    """Seconds that a process was ready to run and did not; None where the system does not tell."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def switches(pid: int) -> int:
    """How often a process has given its CPU away, willingly or not; 0 where the system does not tell."""
    kinds = ("voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")
    return sum(_number(f"/proc/{pid}/status", kind) or 0 for kind in kinds)


def pid_behind(pidfd: int) -> int | None:
    """Number of a process that is known by a descriptor, be it in another pid namespace; None if it ended."""
    pid = _number(f"/proc/self/fdinfo/{pidfd}", "Pid:")
    return pid if pid is not None and pid > 0 else None


def _number(path: str, name: str) -> int | None:
    with contextlib.suppress(OSError), open(path) as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1])
    return None


def cpu_clock(pid: int) -> float:
    """CPU seconds of a process (Linux numbering of process clocks); 0 where there is no such clock."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0
