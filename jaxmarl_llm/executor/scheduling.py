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


def waited_behind(pidfd: int) -> float | None:
    """The same for a process that is known by a descriptor, be it in another pid namespace."""
    with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{pidfd}") as file:
        for line in file:
            if line.startswith("Pid:") and int(line.split()[1]) > 0:
                return waited(int(line.split()[1]))
    return None


def cpu_clock(pid: int) -> float:
    """CPU seconds of a process (Linux numbering of process clocks); 0 where there is no such clock."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0
