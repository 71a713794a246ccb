"""Watching candidates: when they end, and whether they use more than they may. Runs in the zygote."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time

from .. import frames
from ..isolation import libc
from ..scheduling import cpu_clock

SHORTEST_WAIT = 0.005  # seconds between two looks at the clocks, at least
AWAKE = 0.1  # share of the time as CPU from which a program counts as awake where the system does not tell
LEAVE_SECONDS = 2.0  # for a process whose channel is closed to come to its own end, which tells how it ended
TMP_LOOK = 0.02  # seconds between two looks at the size of a program's folder
MAX_CALLS_SHARE = 4  # of the CPU limit: what calls may cost on top of it, all together
GATHER_SECONDS = 0.1  # between two choices of the CPU for processes that take turns


def highest_cpu(limit: float, agents: int) -> float:
    """CPU seconds that no process of a program with this limit may exceed, whatever it calls."""
    return limit * (1 + MAX_CALLS_SHARE) if agents > 1 else limit


class Watch:
    """The processes of one program, from their start to their end.

    fates: per process "exit" (by itself, or at the tester's word), "signal", "timeout-cpu",
    "timeout-wall" or "disk"; the limits count for all processes together.

    The CPU limit leaves out the cost of calls between agents: ``switch_seconds`` (`call_cost`) per context
    switch of a process, as counted by the kernel, in total at most MAX_CALLS_SHARE limits. Whether a switch
    is voluntary depends on the kernel: some run a process at once when another has just written to it.

    The wall limit is against sleeping: it counts the time in which the processes neither ran nor waited for a
    CPU, so that a busy machine is not mistaken for a sleeping program. Only the worker can read this from
    /proc: it gets {"waited": run} with the processes' descriptors, and answers
    {"waited": seconds or None, "switches": count}.
    """

    def __init__(self, pids: list[int], job: dict, folder_size=None, switch_seconds: float = 0.0):
        self.pids, self.job, self.folder_size = pids, job, folder_size
        self.switch_seconds = switch_seconds
        self.fates: list[str | None] = [None] * len(pids)
        self.ended_cpu, self._ended_switches, self._switches = 0.0, 0, 0
        self.waited: float | None = 0.0
        self.begin, self.leaving = time.monotonic(), math.inf
        self._gathered = self.begin

    def cpu(self) -> float:
        """CPU seconds of all processes so far."""
        return self.ended_cpu + sum(map(cpu_clock, self._left()))

    def charged(self) -> float:
        """CPU seconds that count against the limit."""
        if len(self.pids) == 1:
            return self.cpu()
        calls = self.switch_seconds * (self._ended_switches + self._switches)
        return max(0.0, self.cpu() - min(calls, MAX_CALLS_SHARE * self.job["cpu"]))

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
                    self._hear(frames.receive_control(control)[0])
            self._gather()
            # The known waits and calls may be out of date; they can only have grown.
            if self._at_limit() and (len(self.pids) > 1 or self._at_limit() == "timeout-wall"):
                self._ask(control)
            if fate := self._at_limit():
                self.end(fate)

    def _at_limit(self) -> str | None:
        """The fate of what is left, as far as is known."""
        if None in self.fates and self.charged() >= self.job["cpu"]:
            return "timeout-cpu"
        return "timeout-wall" if None in self.fates and self._asleep() >= self.job["wall"] else None

    def _gather(self) -> None:
        """Put processes that take turns on one CPU: waking one up on another CPU costs several times as much.

        The CPU is the one on which this process woke up, since that CPU has little to do.
        """
        now = time.monotonic()
        if len(self.pids) == 1 or now < self._gathered + GATHER_SECONDS:
            return
        self._gathered = now
        cpu = libc.current_cpu()
        for pid in self._left() if cpu is not None else ():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(pid, {cpu})

    def _hear(self, message) -> bool:
        """Act on a message; return whether it was the answer to `_ask`."""
        if message.get("stop") == self.job["run"]:
            gone = message["gone"]
            self.end("exit", spare=gone)
            self.leaving = time.monotonic() + (0.0 if gone is None else LEAVE_SECONDS)
        elif "waited" in message:
            self.waited, self._switches = message["waited"], message["switches"]
            return True
        return False

    def _ask(self, control) -> None:
        """Learn how long the processes have waited for a CPU."""
        fds = []
        if hasattr(os, "pidfd_open"):
            fds = [os.pidfd_open(pid) for pid in self._left()]
        frames.send_control(control, {"waited": self.job["run"]}, fds)
        for fd in fds:
            os.close(fd)
        while not self._hear(frames.receive_control(control)[0]):
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
        self._ended_switches += usage.ru_nvcsw + usage.ru_nivcsw
        self._switches = 0  # of those that are left: to be asked for again
        # The kernel's own limit is a signal too.
        over = fate == "signal" and self.charged() >= self.job["cpu"]
        self.fates[index] = "timeout-cpu" if over else fate

    def _milliseconds(self) -> int:
        left = min(self.job["cpu"] - self.charged(), self.job["wall"] - self._asleep())
        if len(self.pids) > 1:
            left = min(left, GATHER_SECONDS)
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
