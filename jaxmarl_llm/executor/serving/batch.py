"""The jobs that one call of `Executor.run` waits for."""

from __future__ import annotations

import collections
import dataclasses
import time

from ..types import ExecutorError, Report, from_plain
from .worker import BadTests

_FAULTS = {"BadTests": BadTests, "ValueError": ValueError}  # of a program's tests; the rest is ExecutorError


@dataclasses.dataclass
class Job:
    """One program (as plain data) of a batch; `size` in characters, `deaths` of supervisors that held it."""

    position: int
    key: str
    program: dict
    size: int
    deaths: int = 0


class Batch:
    """Jobs, and their reports or the error that ended them.

    keep_faults: what is wrong with the tests of a job stands in its report's place, and ends nothing.
    """

    def __init__(self, number: int, jobs: list[Job], keep_faults: bool = False):
        self.number, self.since, self._keep_faults = number, time.monotonic(), keep_faults
        self.unsent = collections.deque(jobs)
        self.reports: list[Report | ValueError | None] = [None] * len(jobs)
        self.missing, self.error = len(jobs), None

    @property
    def over(self) -> bool:
        """Nothing is left to wait for."""
        return not self.missing or self.error is not None

    def settle(self, job: Job, result: dict) -> None:
        """Note the result of a job: see `supervisor`."""
        if result["error"]:
            kind, text = result["error"]
            if kind in _FAULTS and not self._keep_faults:
                self.error = _FAULTS[kind](text)
            elif kind in _FAULTS:
                self.reports[job.position] = _FAULTS[kind](text)
                self.missing -= 1
            else:
                self.error = ExecutorError(text if kind == "ExecutorError" else f"{kind}: {text}")
        elif result["report"]:
            self.reports[job.position] = from_plain(Report, result["report"])
            self.missing -= 1
