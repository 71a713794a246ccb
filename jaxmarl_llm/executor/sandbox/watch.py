"""Watching candidates: when they end, and whether they use more than they may. Runs in the zygote."""

from __future__ import annotations

import math
import os
import select
import signal
import time

from .. import wire
from ..scheduling import cpu_clock

SHORTEST_WAIT = 0.005  # seconds between two looks at the clocks, at least
AWAKE = 0.1  # share of the time as CPU from which a program counts as awake where the system does not tell
LEAVE_SECONDS = 2.0  # for a process whose channel is closed to come to its own end, which tells how it ended
TMP_LOOK = 0.02  # seconds between two looks at the size of a program's folder


class Watch:
    """The processes of one program, from their start to their end.

    fates: per process "exit" (by itself, or at the tester's word), "signal", "timeout-cpu",
    "timeout-wall" or "disk"; the limits count for all processes together.

    The wall limit is for sleepers: it counts the time in which the processes neither ran nor waited for a
    CPU, so that a program on a busy machine is not taken for one that sleeps. Only the worker can look that
    up, for it sees /proc: it is asked with {"waited": run} and the processes' descriptors, and answers
    {"waited": seconds or None}.
    """

    def __init__(self, pids: list[int], job: dict, folder_size=None):
        self.pids, self.job, self.folder_size = pids, job, folder_size
        self.fates: list[str | None] = [None] * len(pids)
        self.ended_cpu = 0.0
        self.waited: float | None = 0.0
        self.begin, self.leaving = time.monotonic(), math.inf

    def cpu(self) -> float:
        """CPU seconds of all processes so far."""
        return self.ended_cpu + sum(map(cpu_clock, self._left()))

    def _left(self) -> list[int]:
        return [pid for pid, fate in zip(self.pids, self.fates, strict=True) if fate is None]

    def until_end(self, control, wake: int) -> None:
        """Wait until every process has ended: stopped by a message, at a limit, or by itself.

        control: where {"stop": run, "gone": index or None} comes from; gone is the process that closed its
        channel. wake: becomes readable at each end of a child.
        """
        poller = select.poll()
        for fd in (control, wake):
            poller.register(fd, select.POLLIN)
        while self._look():
            for fd, _ in poller.poll(self._milliseconds()):
                if fd == wake:
                    drain(fd)
                else:
                    self._hear(wire.receive_control(control)[0])
            if self._asleep() >= self.job["wall"] and None in self.fates:
                self._ask(control)
                if self._asleep() >= self.job["wall"]:
                    self.end("timeout-wall")

    def _hear(self, message) -> bool:
        """Act on a message; return whether it was the answer to `_ask`."""
        if message.get("stop") == self.job["run"]:
            gone = message["gone"]
            self.end("exit", spare=gone)
            self.leaving = time.monotonic() + (0.0 if gone is None else LEAVE_SECONDS)
        elif "waited" in message:
            self.waited = message["waited"]
            return True
        return False

    def _ask(self, control) -> None:
        """Learn how long the processes have waited for a CPU."""
        fds = []
        if hasattr(os, "pidfd_open"):
            fds = [os.pidfd_open(pid) for pid in self._left()]
        wire.send_control(control, {"waited": self.job["run"]}, fds)
        for fd in fds:
            os.close(fd)
        while not self._hear(wire.receive_control(control)[0]):
            pass

    def _asleep(self) -> float:
        """Seconds in which nothing of the program ran or wanted to."""
        elapsed, cpu = time.monotonic() - self.begin, self.cpu()
        if self.waited is None:
            return elapsed if cpu < AWAKE * elapsed else 0.0
        return elapsed - cpu - self.waited

    def _look(self) -> bool:
        """Reap processes that have ended, end all if a limit is reached; return whether any is left."""
        for index, pid in enumerate(self.pids):
            if self.fates[index] is None:
                done, status, usage = os.wait4(pid, os.WNOHANG)
                if done:
                    self._bury(index, "signal" if os.WIFSIGNALED(status) else "exit", usage)
        if None not in self.fates:
            return False
        if time.monotonic() >= self.leaving:
            self.end("exit")
        elif self.cpu() >= self.job["cpu"]:
            self.end("timeout-cpu")
        elif self.folder_size and self.folder_size() > self.job["disk"]:
            self.end("disk")
        return None in self.fates

    def end(self, fate: str, spare: int | None = None) -> None:
        """Kill and reap all processes that are left, except the one at index `spare`."""
        for index, pid in enumerate(self.pids):
            if self.fates[index] is None and index != spare:
                os.kill(pid, signal.SIGKILL)
                self._bury(index, fate, os.wait4(pid, 0)[2])

    def _bury(self, index, fate, usage):
        self.ended_cpu += usage.ru_utime + usage.ru_stime
        # The kernel's own limit is a signal too.
        over = fate == "signal" and self.ended_cpu >= self.job["cpu"]
        self.fates[index] = "timeout-cpu" if over else fate

    def _milliseconds(self) -> int:
        left = min(self.job["cpu"] - self.cpu(), self.job["wall"] - self._asleep())
        left = min(left, self.leaving - time.monotonic())
        if self.folder_size:
            left = min(left, TMP_LOOK)
        return math.ceil(max(left, SHORTEST_WAIT) * 1000)


def drain(fd: int) -> None:
    """Read a non-blocking descriptor until it is empty."""
    try:
        while os.read(fd, 512):
            pass
    except BlockingIOError:
        pass
