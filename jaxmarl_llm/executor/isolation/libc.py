"""Calls into the C library that Python has no name for; nothing happens on import outside Linux."""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38

if sys.platform == "linux":
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long


def call(name: str, *arguments) -> None:
    """Call a function of the C library; OSError where it fails."""
    if getattr(library, name)(*arguments) == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def prctl(option: int, value: int) -> None:
    """Set a flag of the calling process; OSError where the kernel refuses. Nothing outside Linux."""
    if sys.platform == "linux":
        call("prctl", option, *(ctypes.c_ulong(x) for x in (value, 0, 0, 0)))


def current_cpu() -> int | None:
    """Number of the CPU that the calling thread runs on; None where the system does not tell."""
    if not (hasattr(os, "sched_setaffinity") and hasattr(library, "sched_getcpu")):
        return None
    cpu = library.sched_getcpu()
    return cpu if cpu >= 0 else None


def give_back_memory() -> None:
    """Return to the system what the C library keeps of freed memory, where it can (glibc)."""
    if sys.platform == "linux" and hasattr(library, "malloc_trim"):
        library.malloc_trim(ctypes.c_size_t(0))
