"""One worker: a zygote and a tester, and the rule that turns what both say into a report."""

from __future__ import annotations

import socket
import time

from . import units
from .process import Process, WorkerDied, wait
from .types import ExecutorError, Limits, Program, Report

RECYCLE = 5000  # programs per pair of processes
TESTER_GRACE = 10.0  # seconds the tester gets after the candidate's end
ZYGOTE_GRACE = 60.0  # seconds beyond every limit after which the zygote counts as stuck
# What the end of the candidate's process means where the tests were not through.
_FATES = {
    "exit": "protocol",
    "signal": "killed",
    "timeout-cpu": "timeout-cpu",
    "timeout-wall": "timeout-wall",
}
# Tests that do not end although the candidate has: they hang on a value that it returned.
_STUCK = {
    "status": "gone",
    "passed": 0,
    "failures": ["the tests did not finish on the returned values"],
    "calls": 0,
}


class BadTests(ValueError):
    """The tests or the prelude of a program fail by themselves."""


class Worker:
    """Runs programs one after the other. Use it from the thread that made it."""

    def __init__(self, limits: Limits, level: int):
        self.limits, self.level, self.count = limits, level, 0
        self._start()

    def _start(self) -> None:
        self.zygote, self.tester = Process("zygote", self.level), None
        try:
            self.tester = Process("tester")
            self.zygote.await_ready()
            self.tester.await_ready()
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
        """The report; one retry with fresh processes after a failure of our own, then ExecutorError."""
        try:
            if self.count and self.count % RECYCLE == 0:
                self._restart()
            return self._attempt(program)
        except WorkerDied as first:
            try:
                self._restart()
                return self._attempt(program)
            except WorkerDied as second:
                raise ExecutorError(
                    f"verdict infra twice for entry point {program.entry_point!r}: {first}; then: {second}"
                ) from None

    def _attempt(self, program: Program) -> Report:
        self.count += 1
        begin = time.monotonic()
        limits = self.limits
        job = {"cpu": limits.cpu_seconds, "wall": limits.wall, "memory_mb": limits.memory_mb}
        tests = {"entry_point": program.entry_point, "prelude": program.prelude, "tests": program.tests}
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self.zygote.send({"run": self.count, **job}, [theirs.fileno()])
            self.tester.send(
                {"run": self.count, "sources": list(program.sources.items()), **tests}, [ours.fileno()]
            )
        outcome, fate = self._await_both()
        if outcome is None:
            outcome = {**_STUCK, "total": units.build(program.tests, program.entry_point).total}
        return self._report(program, outcome, fate, time.monotonic() - begin)

    def _await_both(self) -> tuple[dict | None, dict]:
        """The tester's outcome (None where it hangs) and the zygote's fate; either's end ends the other."""
        outcome = fate = None
        deadline = time.monotonic() + self.limits.wall + 20 * self.limits.cpu_seconds + ZYGOTE_GRACE
        while outcome is None or fate is None:
            waiting = [p for p, got in ((self.tester, outcome), (self.zygote, fate)) if got is None]
            ready = wait(waiting, deadline - time.monotonic())
            if not ready and fate is None:
                raise WorkerDied("zygote stuck")
            if not ready:
                self._restart()
                return None, {**fate, "fate": "timeout-wall"}
            if self.tester in ready:
                outcome = self.tester.receive()
                self.zygote.send({"stop": self.count})
            if self.zygote in ready:
                fate = self.zygote.receive()
                deadline = time.monotonic() + TESTER_GRACE
        if fate["fate"] == "setup":
            raise WorkerDied("zygote could not prepare the candidate's process")
        return outcome, fate

    def _report(self, program, outcome, fate, wall) -> Report:
        status, failures = outcome["status"], outcome["failures"]
        if status == "bad-tests":
            raise BadTests(f"tests of {program.entry_point!r} fail by themselves: {'; '.join(failures)}")
        if status == "gone":
            status = _FATES[fate["fate"]]
            failures = [*failures[:-1], f"{failures[-1]} ({status})"]
        return Report(
            verdict=status,
            passed=outcome["passed"],
            total=outcome["total"],
            failures=tuple(failures),
            calls={program.entry_point: outcome["calls"]},
            level=self.level,
            cpu_seconds=fate["cpu"],
            wall_seconds=wall,
        )
