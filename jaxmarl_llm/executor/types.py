"""What goes into the executor and what comes out."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping

VERDICTS = (
    "pass",  # every statement of check() ran without an exception
    "fail",  # the first failure was a wrong answer
    "error",  # the first failure was an exception raised by the candidate
    "load-error",  # the sources do not compile, raise when run, or do not define the entry point
    "unsupported",  # the first failure was a value that is not plain data (generator, object, too large)
    "protocol",  # the candidate ended or garbled its channel, for example with os._exit
    "timeout-cpu",  # CPU limit reached
    "timeout-wall",  # wall limit reached while hardly using CPU
    "memory",  # MemoryError under the memory limit
    "killed",  # the candidate died from a signal
    "infra",  # our own fault: retried, then raised as ExecutorError, never returned by run()
)


class ExecutorError(RuntimeError):
    """The executor itself failed (a worker could not start, or died twice on one program). Never a reward."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one program may use, all calls together.

    cpu_seconds: CPU time (s) of the candidate process; decides in practice, and does not depend on load.
    wall_seconds: elapsed time (s) after which a program that used less than a tenth of it as CPU is stopped:
        against sleepers, and against tests that hang on returned values. None means max(3 cpu, cpu + 2).
    memory_mb: address space (MiB) of the candidate process.
    """

    cpu_seconds: float = 2.0
    wall_seconds: float | None = None
    memory_mb: int = 512

    def __post_init__(self):
        for name, least in (("cpu_seconds", 0.01), ("wall_seconds", 0.01), ("memory_mb", 64)):
            value = getattr(self, name)
            if value is None and name == "wall_seconds":
                continue
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not least <= value < math.inf:
                raise ValueError(f"Limits.{name} is {value!r}; allowed: a finite number >= {least}")

    @property
    def wall(self) -> float:
        """The wall limit in force (s)."""
        if self.wall_seconds is not None:
            return self.wall_seconds
        return max(3 * self.cpu_seconds, self.cpu_seconds + 2)


@dataclasses.dataclass(frozen=True)
class Program:
    """A candidate and the tests that judge it.

    sources: {agent: text}. The texts run in this order in one fresh module, each compiled alone, so that an
        unterminated string in one cannot swallow the next; later definitions replace earlier ones. One agent:
        any single key.
    entry_point: the function that the tests call; it must come from the sources.
    tests: text that defines `check(candidate)`. It runs in the tester, never in the candidate's process, and
        may also call the entry point by its name. Standard library only.
    prelude: imports and helper functions of the data set. Runs before the sources in the candidate and before
        the tests in the tester (a HumanEval prompt works as it is: its unfinished entry point is discarded).
    """

    sources: Mapping[str, str]
    entry_point: str
    tests: str
    prelude: str = ""

    def __post_init__(self):
        if not isinstance(self.sources, Mapping) or not self.sources:
            raise ValueError(
                f"Program.sources is {self.sources!r}; allowed: a non-empty dict {{agent: text}}"
            )
        for agent, text in self.sources.items():
            if not isinstance(agent, str) or not isinstance(text, str):
                raise ValueError(
                    f"Program.sources[{agent!r}] is {text!r:.80}; allowed: text under a text key"
                )
        if not isinstance(self.entry_point, str) or not self.entry_point.isidentifier():
            raise ValueError(f"Program.entry_point is {self.entry_point!r}; allowed: a Python identifier")
        for name in ("tests", "prelude"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"Program.{name} is {getattr(self, name)!r:.80}; allowed: text")

    def digest(self, *context) -> str:
        """Content hash of everything that decides the verdict, with `context` (JSON data) mixed in."""
        content = [list(self.sources.items()), self.entry_point, self.tests, self.prelude, *context]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Report:
    """Outcome of one program. Equality compares what the tests saw, not the times.

    verdict: one of VERDICTS.
    passed, total: counted units of check(): distinct top-level asserts on the candidate's results, and
        top-level blocks (loops) with such asserts, each block one unit. A check() without either is one unit.
    failures: short texts, one per failed statement, or the reason why the tests could not run to their end.
    calls: {entry_point: number of calls the tests made}. Calls between agents are not observed yet.
    cpu_seconds, wall_seconds: of the candidate process, and from submission to verdict (s).
    level: isolation it ran under (see `available_level`). cached: the verdict was known, nothing ran.
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
