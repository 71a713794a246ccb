"""The process that runs the compiler: one job, then it ends. It reads no candidate text itself.

It is not killed with the trainer: it sees the end of its control channel, even after kill -9 of the trainer,
ends the compiler's process group and removes its folder. The job and the answer: see `main`.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import math
import os
import resource
import select
import shutil
import signal
import socket
import tempfile
import time

from .. import frames
from ..isolation import confine, landlock, libc, seccomp

MAX_MESSAGES = 1 << 16  # bytes of the compiler's messages that are read
_STACK_MB = 64  # what gcc asks for


class _SetupError(Exception):
    """The compiler could not be confined or started."""


def main(control_fd: int, parent: int) -> None:
    """Serve one job from the control channel.

    The job: {"files": {name: base64}, "commands": [argv, ...], "output": name, "environment": {...}, "cpu",
    "wall" (s), "memory_mb", "file_mb", "confined": bool, "readable": [paths], "executable": [paths]}. The
    commands run in a folder with the files, until one fails.

    The answer: {"setup": text} where a command could not be started as it should; else {"status", "timeout",
    "messages", "output"}: exit status of the last command (minus the number of the signal that
    ended it), whether the wall limit was reached, and the output in base64, None where there is none.
    """
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    confine.lower(resource.RLIMIT_NOFILE, confine.MAX_FDS)
    confine.lower(resource.RLIMIT_CORE, 0)
    confine.adopt_orphans()
    control = socket.socket(fileno=control_fd)
    try:
        job, _ = frames.receive_control(control)
        frames.send_control(control, _serve(job, control))
    except (EOFError, OSError):
        pass
    os._exit(0)


def _serve(job, control) -> dict:
    folder = os.path.realpath(tempfile.mkdtemp(prefix="executor-cpp-"))
    try:
        for name, data in job["files"].items():
            with open(os.path.join(folder, name), "xb") as file:
                file.write(base64.b64decode(data))
        with tempfile.TemporaryFile() as messages:
            deadline, status = time.monotonic() + job["wall"], 0
            for command in job["commands"]:
                status = _run(command, job, folder, messages.fileno(), control, deadline)
                if status != 0:
                    break
            messages.seek(0)
            return {
                "status": status,
                "timeout": status is None,
                "messages": messages.read(MAX_MESSAGES).decode(errors="replace"),
                "output": _read(os.path.join(folder, job["output"]), job["file_mb"]) if status == 0 else None,
            }
    except _SetupError as error:
        return {"setup": str(error)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(path, limit_mb):
    """A file that foreign programs have written, in base64; None where it is no regular file in the limit."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read((limit_mb << 20) + 1)
    except OSError:
        return None
    return base64.b64encode(data).decode() if len(data) <= limit_mb << 20 else None


def _run(command, job, folder, messages, control, deadline):
    """Run one command to its end; its status, None at the deadline. EOFError where the trainer ended.

    Whatever it started is gone afterwards: all of it is in one process group, and holds the pipe `alive`.
    """
    (alive, alive_end), (armed, armed_end) = os.pipe(), os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            _arrange_descriptors(messages, alive_end, armed_end)
            _confine(job, folder, parent)
            os.write(_ARMED, b"!")
            os.execve(command[0], command, job["environment"])
        except BaseException as error:
            os.write(_ARMED, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(1)
    os.close(alive_end)
    os.close(armed_end)
    try:
        with open(armed, "rb") as file:
            report = file.read(4000)  # to its end: the descriptor closes with exec
        in_time = report == b"!" and _ended(alive, control, deadline)
    finally:
        os.close(alive)
        status = _end_group(pid)
    if report != b"!":
        raise _SetupError(f"{command[0]}: {report.decode(errors='replace') or f'status {status}'}")
    return status if in_time else None


def _ended(alive, control, deadline) -> bool:
    """Wait until nobody holds the other end of `alive`; False at the deadline."""
    poller = select.poll()
    for fd in (alive, control.fileno()):
        poller.register(fd, select.POLLIN)
    ready = {fd for fd, _ in poller.poll(max(0.0, deadline - time.monotonic()) * 1000)}
    if control.fileno() in ready:  # nothing but its end is to come
        raise EOFError("control channel closed")
    return alive in ready


def _end_group(pid) -> int:
    """Kill the process group of our child, which is not reaped yet; reap all of it. The child's status."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # there is none; macOS: zombies only
        os.killpg(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)  # orphans come to us
    return status


_ALIVE, _ARMED = 3, 4


def _arrange_descriptors(messages, alive, armed) -> None:
    """/dev/null, messages, messages, `alive`, and `armed` until exec; everything else closed."""
    null = os.open(os.devnull, os.O_RDONLY)
    sources = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (null, messages, messages, alive, armed)]
    for target, source in enumerate(sources):
        os.dup2(source, target, inheritable=target <= _ALIVE)
    os.closerange(_ARMED + 1, confine.MAX_FDS)


def _confine(job, folder, parent) -> None:
    """Limits per process, and, where the job asks for it, Landlock and seccomp."""
    confine.die_with_parent(parent)
    os.chdir(folder)
    seconds = math.ceil(job["cpu"])
    confine.lower(resource.RLIMIT_CPU, seconds + 1)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (min(seconds, hard), hard))  # SIGXCPU, which g++ reports by name
    confine.lower(resource.RLIMIT_AS, job["memory_mb"] << 20)
    confine.lower(resource.RLIMIT_STACK, _STACK_MB << 20)
    confine.lower(resource.RLIMIT_FSIZE, job["file_mb"] << 20)
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    if job["confined"]:
        landlock.restrict(job["readable"], [folder], job["executable"])
        seccomp.install(files=True, programs=True)
