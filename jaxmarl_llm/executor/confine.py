"""What a process of ours does to itself: limits, and process flags on Linux."""

from __future__ import annotations

import fcntl
import math
import os
import resource
import signal
from collections.abc import Sequence

from . import landlock, libc, seccomp

MAX_FDS = 64  # of our own worker processes, so that closing "all" descriptors is quick


def die_with_parent(parent: int) -> None:
    """Be killed when the parent (its thread that started us) ends; exit at once where it already has."""
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def worker_process(parent: int) -> None:
    """For zygote and tester: end with the trainer, no ptrace or /proc reads by others, few descriptors."""
    die_with_parent(parent)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    lower(resource.RLIMIT_NOFILE, MAX_FDS)
    lower(resource.RLIMIT_CORE, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ended, so that they can be found and killed."""
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)


def lower(kind: int, value: int) -> None:
    """Set a limit, soft and hard, to `value` or to the hard limit already in force, whichever is less."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def candidate_process(
    channel: int,
    armed: int,
    parent: int,
    cpu_seconds: float,
    memory_mb: int,
    readable: Sequence[str] | None,
) -> None:
    """Turn a fresh fork into a candidate's process; its only descriptors are 0-2 (/dev/null) and 3 (channel).

    From level 2 on `readable` lists what it may read, and it may ask the kernel for little; None at level 1.
    One byte is written to `armed` when all of it holds: without that byte the zygote reports a setup failure.
    """
    os.setsid()
    die_with_parent(parent)
    armed = _arrange_descriptors(channel, armed)
    lower(resource.RLIMIT_CPU, math.ceil(cpu_seconds) + 1)  # backstop: the zygote watches the CPU clock
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        lower(kind, memory_mb << 20)
    lower(resource.RLIMIT_STACK, 8 << 20)
    lower(resource.RLIMIT_FSIZE, 0)
    lower(resource.RLIMIT_NOFILE, 24)
    lower(resource.RLIMIT_NPROC, 0)  # no threads, no processes; the kernel ignores it for root
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    if readable is not None:
        landlock.restrict(readable)
        seccomp.install()
    os.write(armed, b"!")
    os.close(armed)


def _arrange_descriptors(channel: int, armed: int) -> int:
    """Channel to 3, `armed` to 4 (returned), /dev/null to 0-2, everything else closed."""
    # First out of each other's way.
    channel, armed = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (channel, armed))
    null = os.open(os.devnull, os.O_RDWR)
    for source, target in ((null, 0), (null, 1), (null, 2), (channel, 3), (armed, 4)):
        os.dup2(source, target)
    os.closerange(5, MAX_FDS)
    return 4
