"""The executor as the trainer sees it: programs in, reports out."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import sys
import typing
from collections.abc import Sequence

from . import libraries
from .errors import InputError
from .health import Health
from .judging import units
from .levels import ExecutorRefused, require_level
from .measuring import stopwatch
from .measuring.timing import Timing, TimingPlan
from .serving.client import Client, Job
from .types import ExecutorError, Limits, Program, Report, to_plain

_DEFAULT_LIMITS, _DEFAULT_PLAN = Limits(), TimingPlan()
_log = logging.getLogger("jaxmarl_llm.executor")


class Executor:
    """Runs programs in worker processes; a context manager, thread-safe.

    workers: how many programs run at a time; None means one per available CPU.
    min_level: if the machine cannot isolate that strongly, RuntimeError here, before anything runs.
    level: the isolation level, at least min_level; None means the strongest available (``self.level``).
    modules: names of installed packages that programs and tests may import besides the standard library;
        ValueError for one that is not installed. A package's dependencies must be named, too.

    ExecutorError if the processes do not start.
    """

    def __init__(
        self,
        workers: int | None = None,
        limits: Limits = _DEFAULT_LIMITS,
        min_level: int = 2,
        level: int | None = None,
        modules: Sequence[str] = (),
    ):
        if workers is None:
            workers = _cpus()
        if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
            raise InputError(f"workers is {workers!r}; allowed: an integer >= 1, or None")
        self.limits, self.modules = limits, tuple(modules)
        packages = libraries.find(self.modules)
        self.level = require_level(min_level, level)
        self._health = Health()
        self._closed = False
        settings = {"workers": workers, "level": self.level, "limits": to_plain(limits), "packages": packages}
        try:
            self._client = Client(settings, self._health)
        except ExecutorError as error:
            if problem := libraries.problem(str(error)):
                raise InputError(f"modules is {self.modules!r}: {problem}") from None
            raise

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, including running programs; a second call does nothing."""
        self._closed = True
        self._client.close()

    def run(self, programs: Sequence[Program]) -> list[Report]:
        """One report per program, in order. Equal programs of one batch run once.

        ValueError if tests or prelude themselves are broken; ExecutorError if the executor fails, after a
        retry. A program that used between 0.7 and 1.3 times the CPU limit is run again while no other program
        of this executor runs, and the second report counts.
        """
        for program in programs:
            if fault := _fault(program.tests, program.entry_point):
                raise InputError(str(fault))
        return typing.cast(list[Report], self._judge(programs))

    def try_tests(self, programs: Sequence[Program]) -> list[Report | ValueError]:
        """Like `run`, but if tests or prelude themselves are broken, the report is replaced by the error."""
        outcomes: list[Report | ValueError | None] = [_fault(p.tests, p.entry_point) for p in programs]
        sound = [i for i, outcome in enumerate(outcomes) if outcome is None]
        for i, outcome in zip(
            sound, self._judge([programs[i] for i in sound], keep_faults=True), strict=True
        ):
            outcomes[i] = outcome
        return outcomes

    def _judge(self, programs: Sequence[Program], keep_faults: bool = False) -> list[Report | ValueError]:
        if self._closed:
            raise RuntimeError("the executor is closed")
        context = (dataclasses.astuple(self.limits), self.level, sys.version, *self.modules)
        keys = [program.digest(*context) for program in programs]
        jobs: dict[str, Job] = {}
        for key, program in zip(keys, programs, strict=True):
            if key not in jobs:
                size = len(program.tests) + len(program.prelude) + sum(map(len, program.sources.values()))
                jobs[key] = Job(len(jobs), key, to_plain(program), size)
        known = dict(zip(jobs, self._client.submit(list(jobs.values()), keep_faults), strict=True))
        seen: set[str] = set()
        outcomes = [_copy(known[key], seen, key) for key in keys]
        reports = [outcome for outcome in outcomes if isinstance(outcome, Report)]
        for sentence in self._health.count_reports(reports):
            _log.warning(sentence)
        return outcomes

    def measure(self, baseline: Program, candidate: Program, plan: TimingPlan = _DEFAULT_PLAN) -> Timing:
        """How much less CPU time the candidate takes than the baseline, with an interval; never cached.

        Both have the same tests, which define ``inputs(seed) -> tuple`` of arguments, and ``expected(*args)``
        or ``accept(answer, *args) -> bool``. The baseline should take at least ``plan.min_seconds`` per call:
        the overhead of a process (a few milliseconds) counts for both and moves the ratio towards 1. See
        `timing` for the procedure and `Timing.credited` for the value to reward.

        ValueError if the baseline fails its own tests; ExecutorRefused below level 2, where a program
        could hide its time in other processes.
        """
        if self.level < 2:
            raise ExecutorRefused(f"measuring time needs level 2, this executor runs at level {self.level}")
        return stopwatch.speedup(self._run_alone, baseline, candidate, plan)

    def _run_alone(self, program: Program) -> Report:
        if self._closed:
            raise RuntimeError("the executor is closed")
        units.build(program.tests, program.entry_point)  # not cached: the tests of every timed run differ
        (report,) = self._client.submit([Job(0, "", to_plain(program), 0)])
        return typing.cast(Report, report)

    def metrics(self) -> dict[str, float]:
        """Numbers since the last call (or the start), times in seconds.

        programs: reports returned. Of these: verdict/<name>, how many; abnormal_share, the share of verdicts
            other than pass, fail, error and load-error; cached_share, the share for which nothing ran.
            verdict/infra counts programs that ended in ExecutorError.
        runs: programs that ran; runs_per_second: while there was something to run;
            near_limit_reruns: how many of them were second runs; cpu_seconds_p50, cpu_seconds_p95: per run.
        queue_seconds_p50, queue_seconds_p95: from run() to the program's start.
        restarts: processes that were lost and replaced.

        A rise of the abnormal share is logged as a warning by the logger "jaxmarl_llm.executor".
        """
        self._client.count_time()
        return self._health.metrics()


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.lru_cache(maxsize=4096)
def _fault(tests: str, entry_point: str) -> ValueError | None:
    """An error in the tests that shows before anything runs; None if there is none."""
    try:
        units.build(tests, entry_point)
    except InputError as error:
        return error
    return None


def _copy(report: Report | ValueError, seen: set[str], key: str) -> Report | ValueError:
    """A separate report for each place, so that changing the `calls` of one changes no other."""
    if isinstance(report, ValueError):
        return report
    repeated = key in seen
    seen.add(key)
    return dataclasses.replace(report, calls=dict(report.calls), cached=report.cached or repeated)
