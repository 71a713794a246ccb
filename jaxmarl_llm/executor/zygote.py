"""The zygote: a small warm interpreter that forks one process per program and watches it. Sees no text.

Control messages in: {"run": id, "cpu", "wall", "memory_mb"} with the candidate's end of the channel, and
{"stop": id}. Out, one per run: {"run": id, "fate", "cpu"}; fate is exit, signal, timeout-cpu, timeout-wall or
setup.
"""

from __future__ import annotations

import gc
import math
import os
import select
import signal
import socket
import sys
import time

from . import candidate, confine, namespaces, rootfs, wire

PRELOADED = (
    "bisect collections collections.abc copy dataclasses datetime enum fractions functools hashlib heapq "
    "itertools json math operator random re statistics string time typing"
)
SHORTEST_WAIT = 0.005  # seconds between two looks at the clocks, at least
ASLEEP = 0.1  # share of the wall time below which a program counts as asleep rather than slow


def main(control_fd: int, parent: int, level: int) -> None:
    """Serve until the trainer closes the control channel."""
    confine.worker_process(parent)
    confine.adopt_orphans()
    readable = None
    if level > 1:
        readable = namespaces.enter() if level > 2 else rootfs.needed_paths()
    for name in PRELOADED.split():
        __import__(name)
    control = socket.socket(fileno=control_fd)
    children = _Children(readable)
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, the pages that forks share
    wire.send_control(control, {"ready": sys.version})
    try:
        while True:
            message, fds = wire.receive_control(control)
            if "run" in message:
                wire.send_control(control, children.run(control, message, fds[0]))
    except (EOFError, OSError):
        children.kill_all()
        os._exit(0)


class _Children:
    """Forks and watches the candidate's process; a pipe written on SIGCHLD wakes the watch."""

    def __init__(self, readable):
        self.readable = readable  # see `confine.candidate_process`
        self.wake, wake_end = os.pipe()
        for fd in (self.wake, wake_end):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)

    def run(self, control, job, channel: int) -> dict:
        """One program from fork to burial."""
        pid, armed = _fork(channel, job, self.readable)
        os.close(channel)
        started = os.read(armed, 1) == b"!"
        os.close(armed)
        try:
            if not started:
                os.kill(pid, signal.SIGKILL)
            fate, cpu = self._watch(pid, control, job)
        except (EOFError, OSError):  # the trainer is gone
            os.kill(pid, signal.SIGKILL)
            raise
        self.kill_all()
        return {"run": job["run"], "fate": fate if started else "setup", "cpu": cpu}

    def _watch(self, pid, control, job):
        """Wait for the end of `pid`, ending it on a stop message or at a limit; (fate, CPU seconds)."""
        poller = select.poll()
        for fd in (control, self.wake):
            poller.register(fd, select.POLLIN)
        begin, killed_for = time.monotonic(), None
        while True:
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done:
                break
            elapsed, cpu = time.monotonic() - begin, _cpu_clock(pid)
            killed_for = killed_for or _over_limit(elapsed, cpu, job)
            if killed_for:
                os.kill(pid, signal.SIGKILL)
                _, status, usage = os.wait4(pid, 0)
                break
            left = min(job["cpu"] - cpu, job["wall"] - elapsed if elapsed < job["wall"] else job["cpu"])
            for fd, _ in poller.poll(math.ceil(max(left, SHORTEST_WAIT) * 1000)):
                if fd == self.wake:
                    _drain(fd)
                elif wire.receive_control(control)[0].get("stop") == job["run"]:
                    os.kill(pid, signal.SIGKILL)
        return _fate(killed_for, status, usage.ru_utime + usage.ru_stime, job)

    def kill_all(self) -> None:
        """Kill whatever descendants are left: orphans come to us, so this ends when there are none."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                if not _kill_children():
                    return
                os.waitpid(-1, 0)


def _fork(channel, job, readable):
    """Fork a candidate; (pid, read end of its "armed" pipe)."""
    armed, armed_end = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            limits = (job["cpu"], job["memory_mb"])
            confine.candidate_process(channel, armed_end, parent, *limits, readable)
            candidate.serve(3)
        finally:
            os._exit(1)
    os.close(armed_end)
    return pid, armed


def _cpu_clock(pid: int) -> float:
    """CPU seconds of a child (Linux numbering of process clocks); 0 where there is no such clock."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _over_limit(elapsed, cpu, job):
    if cpu >= job["cpu"]:
        return "timeout-cpu"
    return "timeout-wall" if elapsed >= job["wall"] and cpu < ASLEEP * elapsed else None


def _fate(killed_for, status, cpu, job):
    if killed_for:
        return killed_for, cpu
    if os.WIFSIGNALED(status):
        return ("timeout-cpu" if cpu >= job["cpu"] else "signal"), cpu
    return "exit", cpu


def _kill_children() -> bool:
    """Kill our children, whose number the system may not tell; False if there are none to be found."""
    if os.getpid() == 1:  # of a namespace: everybody else in it
        os.kill(-1, signal.SIGKILL)
        return True
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            children = [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return False
    for child in children:
        os.kill(child, signal.SIGKILL)
    return bool(children)


def _drain(fd):
    try:
        while os.read(fd, 512):
            pass
    except BlockingIOError:
        pass
