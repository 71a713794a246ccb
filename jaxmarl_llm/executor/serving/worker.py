"""One worker: a zygote and a tester, and the rule that turns the messages of both into a report."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import tempfile
import time
from collections.abc import Sequence

from .. import scheduling
from ..cpp.builder import Builder
from ..cpp.compiler import CompileError
from ..cpp.tools import NoCompiler
from ..judging import units
from ..process import Process, WorkerDied, wait
from ..types import ExecutorError, Interaction, Limits, Program, Report
from ..verdicts import FATES

RECYCLE = 5000  # programs per pair of processes
TESTER_GRACE = 3.0  # CPU seconds the tester gets after the candidate's end
TESTER_LOOK = 0.25  # seconds between two looks at what it has used
MAX_DISK = 16 << 20  # bytes in a program's folder
MAX_MESSAGES = 2000  # characters of a compiler's messages in a report
ZYGOTE_GRACE = 60.0  # seconds beyond every limit after which the zygote counts as stuck
# Tests that do not end although the candidate has: they hang on a value that it returned.
_STUCK = {
    "status": "gone",
    "passed": 0,
    "failures": ["the tests did not finish on the returned values"],
    "calls": 0,
    "gone": 0,
    "interactions": [],
    "output": "",
}


class BadTests(ValueError):
    """The tests or the prelude of a program fail by themselves."""


def _failed(program: Program) -> str:
    return f"tests of {program.entry_point!r} fail by themselves"


class Worker:
    """Runs programs one after the other. Use it from the thread that made it.

    builder: of C++ sources; workers may share one. packages: those that programs may import, see
    `libraries.find`. repeatable: whether the last report depended only on the program, and not on a
    missing compiler or a limit on its time.
    """

    def __init__(
        self,
        limits: Limits,
        level: int,
        builder: Builder | None = None,
        packages: Sequence[list[str]] = (),
    ):
        self.limits, self.level, self.packages, self.count = limits, level, packages, 0
        self.builder, self.repeatable = builder or Builder(level), True
        self._start()

    def _start(self) -> None:
        self.zygote, self.tester = Process("sandbox.zygote", self.level, packages=self.packages), None
        try:
            self.tester = Process("judging.tester", packages=self.packages)
            self.zygote.await_ready()
            self.tester.await_ready()
            self.lost = False
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End both processes."""
        for process in (self.zygote, self.tester):
            if process is not None:
                process.stop()

    def _restart(self) -> None:
        self.close()
        self._start()

    def run(self, program: Program) -> Report:
        """The report; one retry with fresh processes after an executor failure, then ExecutorError.

        BadTests if the tests end the tester, as with `os._exit`: it then exits twice, and never by itself.
        """
        try:
            if self.lost or (self.count and self.count % RECYCLE == 0):
                self._restart()
            return self._attempt(program)
        except WorkerDied as first:
            left = self.tester.has_left()
            try:
                self._restart()
                return self._attempt(program)
            except WorkerDied as second:
                self.lost = True  # the next program begins with fresh processes
                if left and self.tester.has_left():
                    raise BadTests(f"{_failed(program)}: they end the process that runs them") from None
                raise ExecutorError(
                    f"verdict infra twice for entry point {program.entry_point!r}: {first}; then: {second}"
                ) from None

    def _attempt(self, program: Program) -> Report:
        self.count += 1
        begin, self.repeatable, library = time.monotonic(), True, None
        if program.language == "c++":
            (text,) = program.sources.values()
            try:
                library = self.builder.build(text, program.signature)
            except CompileError as error:
                self.repeatable = not error.limit
                return self._not_run(program, "load-error", str(error)[:MAX_MESSAGES], begin)
            except NoCompiler as error:
                self.repeatable = False
                return self._not_run(program, "unsupported", f"no C++ compiler: {error}", begin)
        self.tester_waited = scheduling.waited(self.tester.popen.pid) or 0.0
        job = {"run": self.count, "sources": dict(program.sources), "stdio": program.stdio}
        job |= {name: getattr(program, name) for name in ("entry_point", "prelude", "tests", "shared")}
        with contextlib.ExitStack() as stack:
            pairs = [socket.socketpair() for _ in program.sources]
            for end in itertools.chain(*pairs):
                stack.enter_context(end)
            fds = [theirs.fileno() for _, theirs in pairs]
            if library is not None:
                file = stack.enter_context(tempfile.TemporaryFile())
                file.write(library)
                file.seek(0)
                fds.append(file.fileno())
            self.zygote.send(self._limits(program), fds)
            self.tester.send(job, [ours.fileno() for ours, _ in pairs])
        outcome, fate = self._await_both()
        if outcome is None:
            fate["fates"][0] = "timeout-wall"
            outcome = {**_STUCK, "total": units.build(program.tests, program.entry_point).total}
        return self._report(program, outcome, fate, time.monotonic() - begin)

    def _limits(self, program) -> dict:
        """The zygote's job."""
        limits = self.limits
        bounds = {"cpu": limits.cpu_seconds, "wall": limits.wall, "memory_mb": limits.memory_mb}
        flags = {name: getattr(program, name) for name in ("stdio", "tmp", "collector", "signature")}
        return {"run": self.count, **bounds, **flags, "disk": MAX_DISK}

    def _await_both(self) -> tuple[dict | None, dict]:
        """The tester's outcome (None where it hangs) and the zygote's fate; either's end ends the other."""
        outcome = fate = None
        deadline = time.monotonic() + self.limits.wall + 20 * self.limits.cpu_seconds + ZYGOTE_GRACE
        while fate is None:
            waiting = [self.zygote, self.tester] if outcome is None else [self.zygote]
            ready = wait(waiting, deadline - time.monotonic())
            if not ready:
                raise WorkerDied("zygote stuck")
            if self.tester in ready:
                outcome = self.tester.receive()
                self.zygote.send({"stop": self.count, "gone": outcome["gone"]})
            if self.zygote in ready:
                fate = self._hear_zygote()
        if fate["fates"] == ["setup"]:
            raise WorkerDied("zygote could not prepare the candidate's process")
        return outcome or self._last_word(), fate

    def _hear_zygote(self) -> dict | None:
        """The fate, or None after a question: how long some processes have waited for a CPU."""
        message, fds = self.zygote.receive_with_fds()
        if "waited" not in message:
            return message
        # Candidates also sleep while the tester is kept waiting.
        pids = list(map(scheduling.pid_behind, fds))
        for fd in fds:
            os.close(fd)
        waits = [None if pid is None else scheduling.waited(pid) for pid in (self.tester.popen.pid, *pids)]
        known = None if None in waits or not fds else sum(waits) - self.tester_waited
        switches = sum(scheduling.switches(pid) for pid in pids if pid is not None)
        self.zygote.send({"waited": known, "switches": switches})
        return None

    def _last_word(self) -> dict | None:
        """The tester's outcome after the candidate's end; None where it computes on and on, or sleeps."""
        pid = self.tester.popen.pid
        cpu, begin = scheduling.cpu_clock(pid), time.monotonic()
        while not wait([self.tester], TESTER_LOOK):
            worked = scheduling.cpu_clock(pid) - cpu
            if worked >= TESTER_GRACE or time.monotonic() - begin >= ZYGOTE_GRACE:
                self._restart()
                return None
        return self.tester.receive()

    def _not_run(self, program, verdict, reason, begin) -> Report:
        """The report of a source that gave no library."""
        return Report(
            verdict=verdict,
            passed=0,
            total=units.build(program.tests, program.entry_point).total,
            failures=(reason,),
            calls={program.entry_point: 0},
            level=self.level,
            cpu_seconds=0.0,
            wall_seconds=time.monotonic() - begin,
        )

    def _report(self, program, outcome, fate, wall) -> Report:
        status, failures = outcome["status"], outcome["failures"]
        if status == "bad-tests":
            raise BadTests(f"{_failed(program)}: {'; '.join(failures)}")
        if status == "gone":
            status = FATES[fate["fates"][outcome["gone"]]]
            failures = [*failures[:-1], f"{failures[-1]} ({status})"]
        return Report(
            verdict=status,
            passed=outcome["passed"],
            total=outcome["total"],
            failures=tuple(failures),
            calls={program.entry_point: outcome["calls"]},
            interactions=tuple(Interaction(*row) for row in outcome["interactions"]),
            output=outcome["output"],
            level=self.level,
            cpu_seconds=fate["cpu"],
            calls_cpu_seconds=fate["calls_cpu"],
            wall_seconds=wall,
        )
