"""The tester: holds the tests, calls the candidate through a socket, and alone decides what passed.

It never runs candidate text. Control messages in: a job (see `Worker`) with the tests' end of the channel;
out, one per job: {"run", "status", "passed", "total", "failures", "calls"}. Status is a verdict, "gone" (the
candidate's process ended: the zygote knows why) or "bad-tests".
"""

from __future__ import annotations

import builtins
import functools
import os
import random
import resource
import socket
import sys

from . import confine, units, wire
from .link import Gone, Link

MEMORY_MB = 4096  # of the tester: bounds what returned values can blow up to
_build = functools.lru_cache(maxsize=256)(units.build)


def main(control_fd: int, parent: int) -> None:
    """Serve until the trainer closes the control channel."""
    confine.worker_process(parent)
    confine.lower(resource.RLIMIT_AS, MEMORY_MB << 20)
    sys.stderr = open(os.devnull, "w")  # for what tests print; descriptor 2 stays for our own crash report
    sys.excepthook = _crash
    control = socket.socket(fileno=control_fd)
    wire.send_control(control, {"ready": sys.version})
    recursion_limit = sys.getrecursionlimit()
    while True:
        try:
            job, fds = wire.receive_control(control)
        except (EOFError, OSError):
            os._exit(0)
        random.seed(0)
        sys.setrecursionlimit(recursion_limit)
        outcome = _judge(job, fds[0])
        os.close(fds[0])
        wire.send_control(control, {"run": job["run"], **outcome})


def _crash(kind, error, trace):
    sys.stderr = sys.__stderr__
    sys.__excepthook__(kind, error, trace)


def _judge(job, fd) -> dict:
    """Load the candidate, run check() and sum up."""
    suite = _build(job["tests"], job["entry_point"])
    link, score = Link(fd), Score(suite)
    try:
        _run_tests(job, suite, link, score)
        link.check_alive()
        status = score.verdict()
    except Gone as gone:
        status = gone.status
        score.interrupted(str(gone), called=link.calls > 0)
    except (
        Exception,
        SystemExit,
    ) as error:  # outside the judged statements: module level, or `return` in check()
        status = link.kind_of(error) if link.calls else "bad-tests"
        score.note(f"{type(error).__name__}: {error}")
    return {"status": status, "calls": link.calls, **score.summary(status)}


def _run_tests(job, suite, link, score):
    """Prelude, then load the candidate, then the tests' text, then check()."""

    def candidate(*args, **kwargs):
        return link.call(args, kwargs)

    candidate.__name__ = candidate.__qualname__ = job["entry_point"]
    space = {"__name__": "tests", "__builtins__": builtins}
    exec(compile(job["prelude"], "<prelude>", "exec", dont_inherit=True), space)
    link.load(job)
    space[job["entry_point"]] = candidate
    space[units.PASSED] = lambda index: (link.check_alive(), score.ok(index))
    space[units.FAILED] = lambda index, error: score.fail(index, error, link.kind_of(error))
    exec(suite.code, space)
    space["check"](candidate)


class Score:
    """What passed and failed so far."""

    def __init__(self, suite: units.Suite):
        self.suite, self.passed, self.failures, self.kind, self.reached = suite, set(), [], None, -1

    def ok(self, index: int) -> None:
        """A statement of check() went through."""
        self.passed.add(index)
        self.reached = index

    def fail(self, index: int, error: Exception, kind: str) -> None:
        """A statement raised; `kind` is the verdict that this alone would give, and the first one counts."""
        self.kind, self.reached = self.kind or kind, index
        text = str(error)[:120]
        self.note(f"{self.suite.describe(index)} -> {type(error).__name__}{': ' + text if text else ''}")

    def note(self, text: str) -> None:
        """Add a line to the failures."""
        self.failures.append(text[:400])

    def interrupted(self, reason: str, called: bool) -> None:
        """The tests ended in the statement after the last one that was reached, if check() began at all."""
        index = self.reached + 1
        where = f"{self.suite.describe(index)} -> " if called and index < len(self.suite.statements) else ""
        self.note(where + reason)

    def verdict(self) -> str:
        """After check() returned: pass only where every counted unit ran through."""
        if not self.kind and not self.suite.units <= self.passed:
            self.kind = "fail"
            self.note("check() returned before its last assert")
        return self.kind or "pass"

    def summary(self, status: str) -> dict:
        """Counts and texts as plain data."""
        counted = self.suite.units
        passed = len(counted & self.passed) if counted else int(status == "pass")
        return {"passed": passed, "total": self.suite.total, "failures": self.failures}
