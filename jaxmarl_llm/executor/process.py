"""One of our processes (supervisor, zygote, tester), seen from its parent: exec with a clean environment."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from . import frames, wire

START_SECONDS = 120  # a loaded machine may take long to start an interpreter
LONGEST_WAIT = 2e6  # seconds; poll() accepts no more
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}  # candidates may start none
ENVIRONMENT = {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
# The folder becomes a package without running __init__: the process loads nothing of the trainer's side.
_BOOT = """
import os, sys, types, importlib
folder, module, packages, *numbers = sys.argv[1:]
given, *others = map(int, numbers)
control = os.dup(given)  # the lowest that is free; the number given may be above all that candidates close
os.close(given)
package = types.ModuleType("executor")
package.__path__ = [folder]
sys.modules["executor"] = package
main = importlib.import_module("executor." + module).main
if packages != "[]":
    import json
    importlib.import_module("executor.libraries").install(json.loads(packages))
for name, module in list(sys.modules.items()):
    if name.partition(".")[0] == "executor" and hasattr(module, "__path__"):
        module.__path__ = []  # nothing more of ours can be imported
main(control, *others)
"""


class WorkerDied(Exception):
    """One of our processes ended or does not answer; the message holds its stderr."""


class Process:
    """One supervisor, zygote or tester. It ends when the thread that started it ends.

    packages: packages that it may import, see `libraries.find`.
    """

    def __init__(self, module: str, *arguments: int, packages: Sequence[list[str]] = ()):
        self.module = module
        self.stderr = tempfile.TemporaryFile()
        self.control, theirs = socket.socketpair()
        folder = str(pathlib.Path(__file__).resolve().parent)
        command = [sys.executable, "-B", "-s", "-S", "-P", "-c", _BOOT, folder, module]
        command.append(json.dumps(list(packages)))
        try:
            self.popen = subprocess.Popen(
                [*command, *map(str, (theirs.fileno(), os.getpid(), *arguments))],
                env=ENVIRONMENT | ONE_THREAD if packages else ENVIRONMENT,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.stderr,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # the trainer handles Ctrl-C, not its children
            )
        except BaseException:
            self.control.close()
            self.stderr.close()
            raise
        finally:
            theirs.close()

    def await_ready(self, seconds: float = START_SECONDS) -> dict:
        """Wait for the first message and return it; WorkerDied if none comes."""
        if not wait([self], seconds):
            raise WorkerDied(f"{self.module} did not start in {seconds} s {self._said()}")
        return self.receive()

    def send(self, message, fds=()) -> None:
        """Send a message and descriptors."""
        try:
            frames.send_control(self.control, message, fds)
        except OSError as error:
            raise WorkerDied(f"{self.module} ended ({error}) {self._said()}") from None

    def receive(self) -> dict:
        """The next message."""
        return self.receive_with_fds()[0]

    def receive_with_fds(self) -> tuple[dict, list[int]]:
        """The next message and the descriptors that came with it."""
        try:
            return frames.receive_control(self.control)
        except (EOFError, OSError, wire.WireError) as error:
            raise WorkerDied(f"{self.module} ended ({error}) {self._said()}") from None

    def has_left(self) -> bool:
        """Whether it exited and wrote nothing to stderr; a failure leaves a traceback or a signal."""
        status = self.popen.poll()
        if status is None or status < 0 or self.stderr.closed:
            return False
        return self.stderr.seek(0, os.SEEK_END) == 0

    def _said(self) -> str:
        """Exit status so far and the end of stderr."""
        try:
            status = self.popen.wait(1)
        except subprocess.TimeoutExpired:
            status = "still running"
        if self.stderr.closed:
            return "[closed]"
        self.stderr.seek(max(0, self.stderr.seek(0, os.SEEK_END) - 2000))
        return f"[status {status}] {self.stderr.read().decode(errors='replace').strip()}"

    def end(self, seconds: float) -> None:
        """Close our end of the channel, so that it ends by itself; kill it if it has not ended in time."""
        with contextlib.suppress(OSError):  # it has ended already
            self.control.shutdown(socket.SHUT_WR)
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.popen.kill()

    def stop(self) -> None:
        """Kill and reap it; its own children die with it."""
        self.popen.kill()
        self.popen.wait()
        self.control.close()
        self.stderr.close()


def wait(processes: list[Process], seconds: float) -> list[Process]:
    """The processes that have a message (or have ended) within the time."""
    poller = select.poll()
    for process in processes:
        poller.register(process.control, select.POLLIN)
    ready = {fd for fd, _ in poller.poll(min(max(0.0, seconds), LONGEST_WAIT) * 1000)}
    return [process for process in processes if process.control.fileno() in ready]
