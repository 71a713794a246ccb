"""How long a process has waited for a CPU: this distinguishes a sleeping process from a busy machine."""

from __future__ import annotations

import contextlib
import time


def waited(pid: int) -> float | None:
    """Seconds for which a process was ready but did not run; None if the system does not report it."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def switches(pid: int) -> int:
    """Context switches of a process, voluntary or not; 0 if the system does not report them."""
    kinds = ("voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")
    return sum(_number(f"/proc/{pid}/status", kind) or 0 for kind in kinds)


def pid_behind(pidfd: int) -> int | None:
    """Pid of a process given by a descriptor, even from another pid namespace; None if it has ended."""
    pid = _number(f"/proc/self/fdinfo/{pidfd}", "Pid:")
    return pid if pid is not None and pid > 0 else None


def _number(path: str, name: str) -> int | None:
    with contextlib.suppress(OSError), open(path) as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1])
    return None


def cpu_clock(pid: int) -> float:
    """CPU seconds of a process (Linux numbering of process clocks); 0 if there is no such clock."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0
