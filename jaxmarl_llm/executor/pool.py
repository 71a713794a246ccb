"""The executor: a queue of programs, one thread per worker, and a cache of verdicts."""

from __future__ import annotations

import dataclasses
import functools
import os
import queue
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from . import units
from .levels import require_level
from .process import WorkerDied
from .types import ExecutorError, Limits, Program, Report
from .worker import Worker

_DEFAULT_LIMITS = Limits()
CACHE_SIZE = 1 << 16  # reports
# Depend on more than the content of the program, so they are run again.
UNCACHED = ("timeout-cpu", "timeout-wall", "killed", "infra")


class Executor:
    """Runs programs in worker processes; a context manager, safe to use from several threads.

    workers: how many programs run at a time; None means one less than the CPUs available (at least 1).
    min_level: RuntimeError here, before anything runs, where the machine cannot isolate that strongly.
    level: the isolation to run at, at least min_level; None means the strongest there is (``self.level``).
    """

    def __init__(
        self,
        workers: int | None = None,
        limits: Limits = _DEFAULT_LIMITS,
        min_level: int = 1,
        level: int | None = None,
    ):
        if workers is None:
            workers = max(1, _cpus() - 1)
        if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
            raise ValueError(f"workers is {workers!r}; allowed: an integer >= 1, or None")
        self.limits = limits
        self.level = require_level(min_level, level)
        self._cache: dict[str, Report] = {}
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._closed = False
        started = [Future() for _ in range(workers)]
        self._threads = [threading.Thread(target=self._serve, args=(f,), daemon=True) for f in started]
        for thread in self._threads:
            thread.start()
        try:
            for future in started:
                future.result()
        except WorkerDied as error:
            self.close()
            raise ExecutorError(f"a worker did not start: {error}") from None

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End all worker processes after the programs now running. Twice is once."""
        if not self._closed:
            self._closed = True
            for _ in self._threads:
                self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def run(self, programs: Sequence[Program]) -> list[Report]:
        """One report per program, in order. Equal programs of one batch run once.

        ValueError where tests or prelude are themselves broken; ExecutorError where the executor is, after a
        retry.
        """
        if self._closed:
            raise RuntimeError("the executor is closed")
        for program in programs:
            _check_tests(program.tests, program.entry_point)
        context = (dataclasses.astuple(self.limits), self.level, sys.version)
        keys = [program.digest(*context) for program in programs]
        futures: dict[str, Future] = {}
        known: dict[str, Report] = {}
        for key, program in zip(keys, programs, strict=True):
            if key in self._cache:
                known[key] = dataclasses.replace(self._cache[key], cached=True)
            elif key not in futures:
                futures[key] = Future()
                self._jobs.put((program, futures[key]))
        try:
            for key, future in futures.items():
                known[key] = future.result()
                self._remember(key, known[key])
        finally:
            for future in futures.values():
                future.cancel()  # only what has not begun, after an error or Ctrl-C
        seen: set[str] = set()
        return [_copy(known[key], seen, key) for key in keys]

    def _remember(self, key: str, report: Report) -> None:
        if report.verdict not in UNCACHED:
            self._cache[key] = report
            if len(self._cache) > CACHE_SIZE:
                self._cache.pop(next(iter(self._cache)), None)

    def _serve(self, started: Future) -> None:
        """A worker's thread: owns its processes, which the kernel ends with this thread."""
        try:
            worker = Worker(self.limits, self.level)
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(None)
        try:
            while (job := self._jobs.get()) is not None:
                program, future = job
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(worker.run(program))
                    except Exception as error:
                        future.set_exception(error)
        finally:
            worker.close()


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.lru_cache(maxsize=4096)
def _check_tests(tests: str, entry_point: str) -> None:
    """ValueError for tests that cannot be judged, before anything runs."""
    units.build(tests, entry_point)


def _copy(report: Report, seen: set[str], key: str) -> Report:
    """A report of its own for each place, so that changing one `calls` changes no other."""
    repeated = key in seen
    seen.add(key)
    return dataclasses.replace(report, calls=dict(report.calls), cached=report.cached or repeated)
