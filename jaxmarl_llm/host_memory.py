"""What becomes of the host's memory between programs.

A program's arrays on a CPU come from ``malloc``, which gives large ones back to the system as soon as they
are freed. The next program asks for the same again, and the system hands it out page by page, each filled
with zeros first: measured as a third of an iteration's time with full copies of a small model.
"""

import ctypes
import sys

import jax

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h


def keep() -> bool:
    """Keep memory that was freed for what comes next, until the process ends; whether that is possible here.

    To be called before JAX computes anything, since programs are then run by the thread that calls them:
    glibc keeps large pieces for the main thread only. The most memory that is held grows by what lies between
    the pieces. Does nothing but on Linux with glibc.
    """
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, -1))
