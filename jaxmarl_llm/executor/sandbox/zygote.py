"""The zygote: a small warm interpreter that forks one process per agent's source and watches them.

It sees no text. Control messages in: {"run": id, "cpu", "wall", "memory_mb", "disk", "stdio", "tmp",
"collector", "signature"} with the candidates' ends of the channels, and what `Watch` hears. With a signature
the last descriptor is a file, the compiled candidate. Out, one per run: {"run": id, "fates": […], "cpu",
"calls_cpu"}; fates as in `Watch`, or ["setup"], and CPU seconds without, and for, calls between agents.
"""

from __future__ import annotations

import _sitebuiltins
import builtins
import contextlib
import gc
import itertools
import os
import shutil
import signal
import socket
import sys
import tempfile

from .. import frames, libraries
from ..isolation import confine, landlock, namespaces, rootfs, seccomp
from . import call_cost, candidate
from .watch import Watch, highest_cpu

PRELOADED = (
    "bisect collections collections.abc copy dataclasses datetime enum fractions functools hashlib heapq "
    "itertools json math operator random re statistics string time typing"
)
_HOST_FOLDERS = ("/tmp", "/var/tmp")  # for compiled candidates below level 3


def main(control_fd: int, parent: int, level: int) -> None:
    """Serve until the worker's owner closes the control channel."""
    confine.worker_process(parent)
    confine.adopt_orphans()
    packages = libraries.load()  # before the file system is shut: what they load is found then
    readable = None
    if level > 1:
        readable = namespaces.enter(packages) if level > 2 else [*rootfs.needed_paths(), *packages]
    for name in PRELOADED.split():
        __import__(name)
    for name in ("exit", "quit"):  # which `site` makes, and it is not imported here
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    control = socket.socket(fileno=control_fd)
    children = _Children(readable, (rootfs.LIBRARIES,) if level > 2 else _HOST_FOLDERS)
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, the pages that forks share
    frames.send_control(control, {"ready": sys.version})
    try:
        while True:
            message, fds = frames.receive_control(control)
            if "run" in message:
                frames.send_control(control, children.run(control, message, fds))
    except (EOFError, OSError):
        children.kill_all()
        os._exit(0)


class _Children:
    """Forks and watches candidates' processes; a pipe written on SIGCHLD wakes the watch."""

    def __init__(self, readable, folders):
        self.readable, self.folders = readable, folders
        self.rules = None if readable is None else landlock.ruleset(readable)
        for waits in (False, True):
            seccomp.program(waits=waits)  # once, for all forks
        self.wake, wake_end = os.pipe()
        for fd in (self.wake, wake_end):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)

    def run(self, control, job, fds) -> dict:
        """Run one program, from the fork until all its processes are reaped."""
        code = fds.pop() if job["signature"] else None
        switch_seconds = call_cost.switch_seconds() if len(fds) > 1 else 0.0
        with _folder(job["tmp"]) as folder, _library(code, self.folders) as library:
            pids, ready, rules = [], True, self.rules
            if rules is not None and (folder or library):
                paths = [*self.readable, library] if library else self.readable
                rules = landlock.ruleset(paths, [folder] if folder else ())
            lanes = _lanes(len(fds))
            for channel, own_lanes in zip(fds, lanes, strict=True):
                pid, armed = _fork(channel, own_lanes, job, rules, folder, library)
                pids.append(pid)
                ready = ready and os.read(armed, 1) == b"!"
                os.close(armed)
            fds += [lane for own_lanes in lanes for lane in own_lanes.values()]
            for fd in fds if rules == self.rules else [*fds, rules]:
                os.close(fd)
            watch = Watch(pids, job, (lambda: _size(folder)) if folder else None, switch_seconds)
            if not ready:
                watch.end("exit")
            try:
                watch.until_end(control, self.wake)
            except (EOFError, OSError):  # nobody is there to be told
                watch.end("exit")
                raise
            finally:
                self.kill_all()
        cpu = {"cpu": watch.charged(), "calls_cpu": watch.ended_cpu - watch.charged()}
        return {"run": job["run"], "fates": watch.fates if ready else ["setup"], **cpu}

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


def _lanes(agents: int) -> list[dict[int, int]]:
    """For each agent {position of another one: its end of the lane between the two}."""
    lanes: list[dict[int, int]] = [{} for _ in range(agents)]
    for one, other in itertools.combinations(range(agents), 2):
        ends = socket.socketpair()
        lanes[one][other], lanes[other][one] = (end.detach() for end in ends)
    return lanes


def _fork(channel, lanes, job, rules, folder, library):
    """Fork a candidate; (pid, read end of its "armed" pipe)."""
    armed, armed_end = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            confine.candidate_process(
                channel,
                armed_end,
                parent,
                cpu_seconds=highest_cpu(job["cpu"], len(lanes) + 1),
                memory_mb=job["memory_mb"],
                rules=rules,
                stdio=job["stdio"],
                folder=folder,
                lanes=tuple(lanes.values()),
            )
            if not job["collector"]:
                gc.disable()
            first_lane = confine.first_lane(job["stdio"])
            numbered = {position: first_lane + place for place, position in enumerate(lanes)}
            candidate.serve(3, (library, job["signature"]) if library else None, numbered)
        finally:
            os._exit(1)
    os.close(armed_end)
    return pid, armed


@contextlib.contextmanager
def _folder(wanted: bool, parent: str = "/tmp"):
    """A folder for one program, gone afterwards with all in it; None where none is wanted."""
    if not wanted:
        yield None
        return
    folder = tempfile.mkdtemp(prefix="program-", dir=parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # does not follow links


@contextlib.contextmanager
def _library(code, folders):
    """The path of a compiled candidate, gone afterwards; None where there is none (`code`, a descriptor)."""
    if code is None:
        yield None
        return
    with _folder(True, _executable(folders)) as folder:
        path = os.path.join(folder, "library.so")
        try:
            with open(code, "rb") as source, open(path, "xb") as target:
                shutil.copyfileobj(source, target)
        except OSError as error:  # an OSError would pass for the end of the control channel
            raise RuntimeError(f"a library cannot be written to {folder}: {error}") from None
        yield path


def _executable(folders) -> str:
    """The first of the folders from which libraries can be loaded."""
    for folder in folders:
        if os.path.isdir(folder) and not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
            return folder
    raise RuntimeError(f"no library can be loaded from {', '.join(folders)}: missing, or mounted noexec")


def _size(folder) -> int:
    """Bytes that the files in a folder occupy."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_blocks * 512
    return total


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
