"""How one of our processes confines itself: limits, and process flags on Linux."""

from __future__ import annotations

import fcntl
import math
import os
import resource
import signal
import tempfile
from collections.abc import Sequence

from . import landlock, libc, seccomp

MAX_FDS = 128  # of our own worker processes, so that closing "all" descriptors is quick
_OUT_OF_THE_WAY = 24  # above all descriptors of a candidate
SCRIPT_STACK = 100 << 20  # bytes; Linux keeps 128 MiB free below the stack. It counts as memory where used
MAX_FILE = 8 << 20  # bytes of one file, where a candidate may write any


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
    rules: int | None,
    stdio: bool = False,
    folder: str | None = None,
    lanes: Sequence[int] = (),
) -> None:
    """Turn a fresh fork into a candidate's process; its only descriptors are 0-2 (/dev/null) and 3 (channel).

    lanes: sockets to other agents' processes, which come next (see `first_lane`).

    From level 2 on `rules` is the Landlock ruleset for it, and it may ask the kernel for little; None at
    level 1.
    stdio: 0 and 1 are files in memory, 4 and 5 the same ones. folder: where it starts, and may write files.
    One byte is written to `armed` when all of it holds: without that byte the zygote reports a setup failure.
    """
    os.setsid()
    die_with_parent(parent)
    armed = _arrange_descriptors(channel, armed, rules, stdio, lanes)
    if folder:
        os.chdir(folder)
    lower(resource.RLIMIT_CPU, math.ceil(cpu_seconds) + 1)  # backstop: the zygote watches the CPU clock
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        lower(kind, memory_mb << 20)
    lower(resource.RLIMIT_STACK, SCRIPT_STACK if stdio else 8 << 20)
    lower(resource.RLIMIT_FSIZE, MAX_FILE if stdio or folder else 0)
    lower(resource.RLIMIT_NOFILE, 24)
    lower(resource.RLIMIT_NPROC, 0)  # no threads, no processes; the kernel ignores it for root
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    if rules is not None:
        landlock.apply(armed + 1)
        os.close(armed + 1)
        seccomp.install(files=bool(folder), waits=bool(lanes))
    os.write(armed, b"!")
    os.close(armed)


def first_lane(stdio: bool) -> int:
    """Number of a candidate's first descriptor to another agent, where it has any."""
    return 6 if stdio else 4


def _arrange_descriptors(
    channel: int, armed: int, rules: int | None, stdio: bool, lanes: Sequence[int]
) -> int:
    """Descriptors in the order that `candidate_process` names, then `armed` (its number is returned) and the
    rules; all others closed.
    """
    given_fds = [channel, armed, *lanes] if rules is None else [channel, armed, *lanes, rules]
    # First out of each other's way.
    channel, armed, *others = (fcntl.fcntl(fd, fcntl.F_DUPFD, _OUT_OF_THE_WAY) for fd in given_fds)
    lanes, rules_fd = others[: len(lanes)], others[len(lanes) :]
    null = os.open(os.devnull, os.O_RDWR)
    given, printed = (_memory_file(), _memory_file()) if stdio else (null, null)
    kept = [given, printed, null, channel, *((given, printed) if stdio else ()), *lanes, armed]
    for target, source in enumerate([*kept, *rules_fd]):
        os.dup2(source, target)
    os.closerange(len(kept) + len(rules_fd), MAX_FDS)
    return len(kept) - 1


def _memory_file() -> int:
    """A file without a name, above the descriptors that are arranged."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("stdio")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD, _OUT_OF_THE_WAY)
    os.close(fd)
    return moved
