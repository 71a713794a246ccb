"""The tester: holds the tests, calls the candidate through a socket, and alone decides what passed.

It never runs candidate text. Control messages in: a job (see `Worker`) with the tests' ends of the channels;
out, one per job: {"run", "status", "gone", "passed", "total", "failures", "calls", "interactions", "output"}.
Status is a verdict, "gone" (a candidate's process, of that index, ended: the zygote knows why) or "bad-tests".
"""

from __future__ import annotations

import builtins
import contextlib
import decimal
import functools
import gc
import os
import resource
import socket
import sys

from .. import frames, libraries, values
from ..channel.conversation import says
from ..channel.link import TESTS, Gone
from ..isolation import confine, libc
from . import influence, units
from .agents import Agents

MAX_OUTPUT = 10_000  # characters that tests may put into a report
RECURSION = 8000  # frames: MAX_NESTING of all agents' channels, and the tests' own
LEFT_OVER = 1 << 18  # bytes
MEMORY_MB = 4096  # of the tester: bounds what returned values can blow up to
_build = functools.lru_cache(maxsize=256)(units.build)


def main(control_fd: int, parent: int) -> None:
    """Serve until the trainer closes the control channel."""
    confine.worker_process(parent)
    confine.lower(resource.RLIMIT_AS, MEMORY_MB << 20)
    libraries.load()
    sys.stderr = open(os.devnull, "w")  # for what tests print; descriptor 2 stays for our own crash report
    sys.excepthook = _crash
    control = socket.socket(fileno=control_fd)
    frames.send_control(control, {"ready": sys.version})
    memory = _Memory()
    while True:
        try:
            job, fds = frames.receive_control(control)
        except (EOFError, OSError):
            os._exit(0)
        _reset()
        outcome = _judge(job, fds)
        for fd in fds:
            os.close(fd)
        frames.send_control(control, {"run": job["run"], **outcome})
        memory.tidy()


def _reset() -> None:
    """Undo what tests of data sets set in the standard library, for those of the next program."""
    libraries.seed()
    decimal.setcontext(decimal.Context())
    sys.setrecursionlimit(RECURSION)
    sys.set_int_max_str_digits(sys.int_info.default_max_str_digits)


class _Memory:
    """Keeps the process as small as it was: large values of one program leave holes behind."""

    def __init__(self):
        self.pages = self._resident()

    def tidy(self) -> None:
        """Give memory back where more than LEFT_OVER has come to be held."""
        if self._resident() > self.pages + LEFT_OVER // resource.getpagesize():
            gc.collect()
            libc.give_back_memory()
            self.pages = self._resident()

    def _resident(self) -> int:
        try:
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1])
        except OSError:
            return 0


def _crash(kind, error, trace):
    sys.stderr = sys.__stderr__
    sys.__excepthook__(kind, error, trace)


def _judge(job, fds) -> dict:
    """Load the agents' sources, run check() and sum up."""
    suite = _build(job["tests"], job["entry_point"])
    agents = Agents(dict(zip(job["sources"], fds, strict=True)), job["entry_point"])
    score, gone = Score(suite), None
    try:
        _run_tests(job, suite, agents, score)
        agents.check_alive()
        status = score.verdict()
    except Gone as error:
        gone, status = list(job["sources"]).index(error.agent), error.status
        score.interrupted(str(error), called=agents.calls > 0)
    except BaseException as error:  # outside the judged statements: module level, or `return` in check()
        # What is no Exception, such as KeyboardInterrupt, is the tests' own. sys.exit() ends check().
        own = not (agents.calls and isinstance(error, (Exception, SystemExit)))
        status = "bad-tests" if own else agents.kind_of(error)
        score.note(f"{type(error).__name__}: {says(error)}")
    outcome = {"status": status, "gone": gone, "calls": agents.calls, **score.summary(status)}
    return outcome | {"interactions": _interactions(agents)}


def _interactions(agents) -> list:
    """Rows of `Interaction`."""
    used = {}
    with contextlib.suppress(Gone):  # an agent that ends only now changes no verdict
        if not agents.gone:
            agents.add_direct_calls()
            used = influence.used(agents) if agents.traces else {}
    rows = []
    for (caller, callee, name), seen in agents.counts.items():
        judged = used.get((callee, name)) if caller == agents.entry.agent else None
        rows.append([caller, callee, name, seen["calls"], seen["returned"], seen["raised"], judged])
    return rows


def _run_tests(job, suite, agents, score):
    """Prelude, then load the agents' sources, then the tests' text, then check()."""
    space = {"__name__": TESTS, "__builtins__": builtins}
    exec(compile(job["prelude"], "<prelude>", "exec", dont_inherit=True), space)
    agents.classes = values.Classes(space)
    agents.load(job["sources"], job["prelude"], job["stdio"], job.get("shared"))
    candidate = space[job["entry_point"]] = _Candidate(agents)
    space[units.PASSED] = lambda index: _passed(agents, score, index)
    space[units.HANDLED] = lambda: agents.handled(sys.exc_info()[1])
    space[units.OUTPUT] = score.put
    space[units.FAILED] = lambda index, error: score.fail(index, error, agents.kind_of(error))
    exec(suite.code, space)
    space["check"](candidate)


def _passed(agents, score, index) -> None:
    """A statement of check() went through, unless a StopIteration of the candidate's cut it short quietly."""
    agents.check_alive()
    error, agents.unhandled = agents.unhandled, None
    if error is None:
        score.ok(index)
    else:
        score.fail(index, error, "error")


class _Candidate:
    """What the tests get as `candidate`: the entry point, a function or a class."""

    def __init__(self, agents):
        self._agents = agents
        self.__name__ = self.__qualname__ = agents.entry_point

    def __call__(self, *args, **kwargs):
        return self._agents.call(args, kwargs)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return self._agents.entry.use(self.__name__, "get", (name,), {})


class Score:
    """What passed and failed so far."""

    def __init__(self, suite: units.Suite):
        self.suite, self.passed, self.failures, self.kind, self.reached = suite, set(), [], None, -1
        self.output = ""

    def ok(self, index: int) -> None:
        """A statement of check() went through."""
        self.passed.add(index)
        self.reached = index

    def fail(self, index: int, error: Exception, kind: str) -> None:
        """A statement raised; `kind` is the verdict that this alone would give, and the first one counts."""
        self.kind, self.reached = self.kind or kind, index
        text = says(error)[:120]
        self.note(f"{self.suite.describe(index)} -> {type(error).__name__}{': ' + text if text else ''}")

    def note(self, text: str) -> None:
        """Add a line to the failures."""
        self.failures.append(_safe(text)[:400])

    def put(self, text: str) -> None:
        """Keep a text for the report."""
        self.output = _safe(str(text))[:MAX_OUTPUT]

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
        """Counts and texts as plain data.

        What failed beside the counted units counts as one more: only who passes has passed all.
        """
        counted = self.suite.units
        passed = len(counted & self.passed) if counted else int(status == "pass")
        return {
            "passed": passed,
            "total": self.suite.total + (status != "pass" and passed == self.suite.total),
            "failures": self.failures,
            "output": self.output,
        }


def _safe(text: str) -> str:
    """The text with "?" for half surrogates, which candidates can bring and tokenizers and files refuse."""
    return text.encode("utf-8", "replace").decode("utf-8")
