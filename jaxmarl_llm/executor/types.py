"""Types of the executor's inputs and outputs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections.abc import Mapping

from .cpp.signature import parse
from .errors import InputError

MAX_AGENTS = 8  # of one program
LANGUAGES = ("python", "c++")
MAX_SECONDS = 1e6  # of a limit: twelve days, which the system's clocks and timers can represent
MAX_MEMORY_MB = 1 << 24  # 16 TiB


class ExecutorError(RuntimeError):
    """The executor itself failed (a worker could not start, or died twice on one program). Never a reward."""


def to_plain(record) -> dict:
    """Limits, a Program or a Report as a dict of JSON data."""
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {name: dict(v) if isinstance(v, Mapping) else v for name, v in values.items()}


def from_plain(kind, data: dict):
    """The inverse of `to_plain` for a `kind` (Limits, Program or Report), also after JSON.

    JSON turns tuples into lists; our records hold no lists, so every list becomes a tuple again.
    """
    return kind(**{name: _without_lists(value) for name, value in data.items()})


def _without_lists(value):
    if isinstance(value, (list, tuple)):
        return tuple(_without_lists(item) for item in value)
    return value


@dataclasses.dataclass(frozen=True)
class Limits:
    """Resource limits of one program, over all calls together.

    cpu_seconds: CPU time (s) of the candidate's processes; the usual limit, independent of machine load.
        The cost of calls between agents is allowed in addition, up to four times as much.
    wall_seconds: time (s) in which it neither runs nor waits for a CPU, after which it is stopped: against
        sleeping programs, and tests that hang on returned values. None means max(3 cpu, cpu + 2).
    memory_mb: address space (whole MiB) of the candidate process.
    """

    cpu_seconds: float = 2.0
    wall_seconds: float | None = None
    memory_mb: int = 512

    def __post_init__(self):
        for name in ("cpu_seconds", "wall_seconds"):
            value = getattr(self, name)
            if value is None and name == "wall_seconds":
                continue
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0.01 <= value <= MAX_SECONDS:
                raise InputError(
                    f"Limits.{name} is {value!r}; allowed: a number from 0.01 to {MAX_SECONDS:.0f}"
                )
        if type(self.memory_mb) is not int or not 64 <= self.memory_mb <= MAX_MEMORY_MB:
            raise InputError(
                f"Limits.memory_mb is {self.memory_mb!r}; allowed: a whole number from 64 to {MAX_MEMORY_MB}"
            )

    @property
    def wall(self) -> float:
        """The wall limit in force (s)."""
        if self.wall_seconds is not None:
            return self.wall_seconds
        return max(3 * self.cpu_seconds, self.cpu_seconds + 2)


@dataclasses.dataclass(frozen=True)
class Program:
    """A candidate and the tests that judge it.

    sources: {agent: text}, at most MAX_AGENTS. Each text runs in its own module and process, in this order.
        An agent's definitions can be used by the others: its functions and classes through calls that are
        counted (`Report.interactions`), its imports and constants as copies. An agent's own definition takes
        precedence over another agent's. One agent: any single key.
    entry_point: the function or class that the tests call; the last source that defines it counts.
    tests: text that defines `check(candidate)`. It runs in the tester, never in the candidate's process, and
        may also call the entry point by its name. Standard library only. A text that it passes to
        `__output__(text)` is in the report.
    shared: the names that agents may use from each other; None: all that they define. Any other name is
        private to its agent, even if others use the same name.
    prelude: imports and helper functions of the data set. Runs before the sources in the candidate and before
        the tests in the tester (a HumanEval prompt works as it is: its unfinished entry point is discarded).
    stdio: the last source is a script. `candidate(text)` runs it with that text as standard input and returns
        what it prints.
    tmp: the program starts in its own empty folder, where it may write files (16 MiB).
    collector: Python's garbage collector is on. `Executor.measure` switches it off for both programs.
    language: one of LANGUAGES. "c++" is for a single source; its tests and prelude are Python, and the
        prelude runs before the tests only.
    signature: with "c++", the declaration of the entry point: see `cpp.signature`.
    """

    sources: Mapping[str, str]
    entry_point: str
    tests: str
    prelude: str = ""
    stdio: bool = False
    tmp: bool = False
    collector: bool = True
    language: str = "python"
    signature: str = ""
    shared: tuple[str, ...] | None = None

    def __post_init__(self):
        if not isinstance(self.sources, Mapping) or not self.sources:
            raise InputError(
                f"Program.sources is {self.sources!r}; allowed: a non-empty dict {{agent: text}}"
            )
        if len(self.sources) > MAX_AGENTS:
            raise InputError(f"Program.sources has {len(self.sources)} agents; allowed: {MAX_AGENTS}")
        for agent, text in self.sources.items():
            if not isinstance(agent, str) or not isinstance(text, str):
                raise InputError(
                    f"Program.sources[{agent!r}] is {text!r:.80}; allowed: text under a text key"
                )
        if not isinstance(self.entry_point, str) or not self.entry_point.isidentifier():
            raise InputError(f"Program.entry_point is {self.entry_point!r}; allowed: a Python identifier")
        for name in ("tests", "prelude"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"Program.{name} is {getattr(self, name)!r:.80}; allowed: text")
        for name in ("stdio", "tmp", "collector"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"Program.{name} is {getattr(self, name)!r:.80}; allowed: True or False")
        if not (self.shared is None or (type(self.shared) is tuple and all(map(_is_name, self.shared)))):
            raise InputError(f"Program.shared is {self.shared!r:.80}; allowed: a tuple of names, or None")
        if self.language not in LANGUAGES:
            raise InputError(f"Program.language is {self.language!r:.80}; allowed: {', '.join(LANGUAGES)}")
        if self.language == "c++":
            self._check_cpp()
        elif self.signature != "":
            raise InputError(f"Program.signature is {self.signature!r:.80}; it belongs to language 'c++'")

    def _check_cpp(self):
        if len(self.sources) > 1:
            raise InputError(
                f"Program.sources has {len(self.sources)} agents; allowed with language 'c++': 1"
            )
        if self.stdio:
            raise InputError("Program.stdio is True; allowed with language 'c++': False")
        if (name := parse(self.signature).name) != self.entry_point:
            raise InputError(
                f"Program.signature declares {name!r}, and Program.entry_point is {self.entry_point!r}"
            )

    def digest(self, *context) -> str:
        """Content hash of everything that decides the verdict, with `context` (JSON data) mixed in."""
        return hashlib.sha256(json.dumps([to_plain(self), *context]).encode()).hexdigest()


def _is_name(value) -> bool:
    return isinstance(value, str) and value.isidentifier()


class Interaction(typing.NamedTuple):
    """How one agent's source used another agent's function during the tests: observed, not read from text.

    caller, callee: agents. function: its name. calls: how many; returned, raised: how many of them (the
    others gave a value that cannot be sent).
    used: whether the returned values affected the entry point's answers, tested by repeating calls
    with other values in their place; None if this could not be tested (see `influence`).
    """

    caller: str
    callee: str
    function: str
    calls: int
    returned: int
    raised: int
    used: bool | None


@dataclasses.dataclass(frozen=True)
class Report:
    """Outcome of one program. Equality ignores the times and `cached`.

    verdict: one of `verdicts.VERDICTS`.
    passed, total: counted units of check(). A unit is a distinct top-level assert on the candidate's results
        or on what it may have changed, or a top-level block (loop) or assignment with such asserts. A check()
        without any is one unit. passed < total unless the verdict is "pass": if something else failed,
        total is one more.
    failures: short texts, one per failed statement, or the reason why the tests could not finish.
    calls: {entry_point: number of calls the tests made}.
    interactions: the calls between agents, one `Interaction` per caller and function; if the program was
        stopped, only those that the tests' side saw.
    cpu_seconds, wall_seconds: of the candidate's processes, and from submission to verdict (s).
    calls_cpu_seconds: additional cost of calls between agents (s, an estimate from their number).
    output: the last text that the tests passed to `__output__`, cut (`judging.tester`).
    level: its isolation level (see `available_level`). cached: the verdict was known, nothing ran.
    """

    verdict: str
    passed: int
    total: int
    failures: tuple[str, ...]
    calls: dict[str, int]
    level: int
    cpu_seconds: float = dataclasses.field(compare=False)
    wall_seconds: float = dataclasses.field(compare=False)
    cached: bool = dataclasses.field(default=False, compare=False)
    interactions: tuple[Interaction, ...] = ()
    calls_cpu_seconds: float = dataclasses.field(default=0.0, compare=False)
    output: str = ""

    def __post_init__(self):
        object.__setattr__(self, "interactions", tuple(Interaction(*row) for row in self.interactions))
