"""Threads of a script, which may start no real thread: `start` does the thread's work at once.

A script mostly uses a thread to get a large stack: `threading.stack_size(2**27)`, a thread that runs main(),
start and join. Work done at once has the same effects. Threads that wait for each other block.
"""

from __future__ import annotations

import sys
import threading
import weakref

# Their threads wait for work, which would block for ever here: refused, as the system refuses all threads.
_LIBRARIES = {"asyncio", "concurrent", "logging", "multiprocessing", "socketserver", "threading"}


def run_in_place() -> None:
    """Let Thread.start do a thread's work, for the whole process."""
    done: weakref.WeakSet = weakref.WeakSet()
    start, join, is_alive = threading.Thread.start, threading.Thread.join, threading.Thread.is_alive

    def start_in_place(thread):
        if thread in done:
            raise RuntimeError("threads can only be started once")
        if _is_of_library(thread):
            return start(thread)
        done.add(thread)
        try:
            thread.run()
        except SystemExit:  # ends the thread and nothing else
            pass
        except BaseException:
            threading.excepthook(threading.ExceptHookArgs([*sys.exc_info(), thread]))

    def join_in_place(thread, timeout=None):
        if thread not in done:
            join(thread, timeout)

    def is_alive_in_place(thread):
        return thread not in done and is_alive(thread)

    threading.Thread.start = start_in_place
    threading.Thread.join = join_in_place
    threading.Thread.is_alive = is_alive_in_place


def _is_of_library(thread) -> bool:
    """Whether the standard library defines what it does; threading.Thread itself does what it is given."""
    kind = type(thread)
    work = thread._target if kind is threading.Thread else kind
    return str(getattr(work, "__module__", "")).partition(".")[0] in _LIBRARIES
