"""The cost of a call between two agents' processes on this machine, measured where processes are started.

Machines differ by a factor of three and more, so a constant would be wrong.
"""

from __future__ import annotations

import functools
import os
import select
import socket
import time

from ..isolation import libc
from ..scheduling import cpu_clock
from .lane import Lane

LEAST = 12e-6  # CPU seconds of a switch on the quickest machine that was tried
WARM_UP, CALLS = 50, 250
# Factor on the measured time: among other programs the CPU caches are cold, and arguments are larger.
MARGIN = 1.5


@functools.cache
def switch_seconds() -> float:
    """CPU seconds that are left out for each switch between two processes; a call has two switches."""
    own_end, other_end = socket.socketpair()
    allowed = os.sched_getaffinity(0)
    with own_end, other_end:
        _stay(libc.current_cpu())  # as `Watch` puts processes that call each other
        pid = os.fork()
        if pid == 0:
            _serve(other_end, own_end)
        try:
            lane = Lane(own_end.fileno(), _Side())
            _call(lane, WARM_UP)
            before = time.process_time() + cpu_clock(pid)
            _call(lane, CALLS)
            spent = time.process_time() + cpu_clock(pid) - before
        finally:
            own_end.close()
            other_end.close()
            os.waitpid(pid, 0)
            os.sched_setaffinity(0, allowed)
    return max(LEAST, MARGIN * spent / (2 * CALLS))


class _Side:
    """What a lane needs of a candidate that has no other channel."""

    def __init__(self):
        self.space, self.offered = {"f": lambda x: x + 1}, {"f"}
        self.kept: list[tuple] = []
        self.classes = None
        self._poller = select.poll()

    def attend_to(self, lane: Lane) -> None:
        """Wait until there is something on the lane."""
        self._poller.register(lane.fd, select.POLLIN)
        self._poller.poll()

    def await_end(self) -> None:
        """End this process, as the other one has ended."""
        os._exit(0)


def _call(lane: Lane, times: int) -> None:
    for number in range(times):
        lane.result(lane.call(lane.request("f", "call", (number,), {})), "call", (number,), {})


def _serve(end: socket.socket, other: socket.socket) -> None:
    """Answer calls until the other end is closed; never returns."""
    try:
        other.close()
        lane = Lane(end.fileno(), _Side())
        while True:
            lane.attend()
            lane.serve()
    finally:
        os._exit(0)


def _stay(cpu: int | None) -> None:
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
