"""The trainer's end of the supervisor: sends programs, gathers results, starts another one if it dies."""

from __future__ import annotations

import itertools
import queue
import threading
import time

from ..health import Health
from ..process import START_SECONDS, Process, WorkerDied
from ..types import ExecutorError, Report
from .batch import Batch, Job

IN_FLIGHT = 16  # programs per worker that the supervisor may hold: enough to keep it busy
MESSAGE = 4 << 20  # characters of text after which a message is not filled further
DEATHS = 2  # of supervisors, after which a job that both of them held is given up
CLOSE_SECONDS = 1.0  # for the supervisor to end by itself


class Client:
    """Owns the supervisor; usable from several threads. ExecutorError where it does not start.

    A separate thread starts the supervisor, which therefore lives as long as this object is open, and reads
    its messages. Callers send their own jobs, as long as the supervisor does not have too many.
    """

    def __init__(self, settings: dict, health: Health):
        self._settings, self._health = settings, health
        self._bound = IN_FLIGHT * settings["workers"]
        self._changed = threading.Condition()  # guards all below
        self._process: Process | None = None
        self._batches: dict[int, Batch] = {}
        self._in_flight: dict[int, tuple[Batch, Job]] = {}
        self._busy_since = 0.0
        self._closed = False
        self._numbers = itertools.count()
        self._sending = threading.Lock()
        started: queue.SimpleQueue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        try:
            error = started.get()
        except BaseException:
            self._closed = True
            raise
        if error:
            raise ExecutorError(f"the executor did not start: {error}")

    def submit(self, jobs: list[Job], keep_faults: bool = False) -> list[Report | ValueError]:
        """Their reports, in order. ValueError for bad tests, ExecutorError, RuntimeError after close().

        keep_faults: return the errors of bad tests in their reports' places.
        """
        if not jobs:
            return []
        batch = Batch(next(self._numbers), jobs, keep_faults)
        with self._changed:
            self._batches[batch.number] = batch
            self._changed.notify_all()
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or batch.over or self._may_send(batch))
                    if batch.error:
                        raise batch.error
                    if not batch.missing:
                        return batch.reports
                    if self._closed:
                        raise RuntimeError("the executor is closed")
                    process, jobs = self._process, self._next_jobs(batch)
                self._send(process, {"batch": batch.number, "since": batch.since, "jobs": jobs})
        finally:
            if batch.missing:
                self._cancel(batch)

    def count_time(self) -> None:
        """Add the time in which there was something to run, up to now, to the counts of `Health`."""
        with self._changed:
            if self._in_flight:
                now = time.monotonic()
                self._health.add_seconds(now - self._busy_since)
                self._busy_since = now

    def close(self) -> None:
        """End the supervisor, and with it all that runs; a second call changes nothing."""
        with self._changed:
            self._closed = True
            process = self._process
            self._changed.notify_all()
        if process is not None:
            process.end(CLOSE_SECONDS)
        self._thread.join()

    def _may_send(self, batch: Batch) -> bool:
        room = len(self._in_flight) <= self._bound // 2
        return bool(room and batch.unsent and self._process is not None)

    def _next_jobs(self, batch: Batch) -> list:
        """Jobs as the supervisor wants them, now in flight."""
        if not self._in_flight:
            self._busy_since = time.monotonic()
        jobs, size = [], 0
        while batch.unsent and len(self._in_flight) < self._bound and size < MESSAGE:
            job, number = batch.unsent.popleft(), next(self._numbers)
            self._in_flight[number] = (batch, job)
            jobs.append([number, job.key, job.program])
            size += job.size
        return jobs

    def _send(self, process: Process, message: dict) -> None:
        try:
            with self._sending:
                process.send(message)
        except WorkerDied:  # the other thread hears of it, and lets us send again
            pass
        except BaseException:  # Ctrl-C in the midst of a message: what follows would not be understood
            process.popen.kill()
            raise

    def _cancel(self, batch: Batch) -> None:
        """Forget a batch; of its jobs only those end that already run."""
        with self._changed:
            self._batches.pop(batch.number, None)
            batch.unsent.clear()
            process = self._process
        if process is not None:
            self._send(process, {"cancel": batch.number})

    def _serve(self, started: queue.SimpleQueue) -> None:
        try:
            process = self._connect()
        except Exception as error:
            started.put(str(error))
            return
        started.put("")
        try:
            while process is not None:
                try:
                    while True:
                        self._deliver(process.receive()["results"])
                except WorkerDied as error:
                    process = self._replace(process, error)
        finally:  # also after a mistake of ours: nobody may wait for ever
            with self._changed:
                self._closed = True
                self._changed.notify_all()

    def _connect(self) -> Process:
        """Start a supervisor with all its workers; WorkerDied where it does not get there."""
        process = Process("serving.supervisor")
        try:
            process.send(self._settings)
            if error := process.await_ready(2 * START_SECONDS)["error"]:
                raise WorkerDied(error)
            with self._changed:
                if self._closed:
                    raise WorkerDied("closed")
                self._process = process
                self._changed.notify_all()
        except BaseException:
            process.stop()
            raise
        return process

    def _replace(self, old: Process, error: WorkerDied) -> Process | None:
        """After the end of a supervisor: a new one, once there is something to run; None after close()."""
        with self._changed:
            self._process = None
            if not self._closed:
                self._health.count_restart()
            self._take_back(error)
            self._changed.notify_all()
        with self._sending:
            old.stop()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._batches)
                if self._closed:
                    return None
            try:
                return self._connect()
            except (WorkerDied, OSError) as problem:  # OSError: no memory or descriptors for a process
                with self._changed:
                    for batch in self._batches.values():
                        batch.error = ExecutorError(
                            f"the supervisor ended and does not start again: {problem}"
                        )
                    self._batches.clear()
                    self._changed.notify_all()

    def _take_back(self, error: WorkerDied) -> None:
        """Put jobs in flight back to be sent again; give up those that DEATHS supervisors held."""
        for batch, job in self._in_flight.values():
            job.deaths += 1
            if job.deaths >= DEATHS:
                batch.error = ExecutorError(f"the supervisor ended {job.deaths} times on one batch: {error}")
            if batch.number in self._batches:
                batch.unsent.append(job)
        self._land()

    def _land(self, *numbers: int) -> None:
        """Take jobs, or all of them, out of those in flight."""
        if not self._in_flight:
            return
        for number in numbers or tuple(self._in_flight):
            del self._in_flight[number]
        if not self._in_flight:
            self._health.add_seconds(time.monotonic() - self._busy_since)

    def _deliver(self, results: list[dict]) -> None:
        with self._changed:
            for result in results:
                batch, job = self._in_flight[result["id"]]
                self._land(result["id"])
                self._health.count_program(result)
                if batch.number in self._batches:
                    batch.settle(job, result)
            over = [number for number, batch in self._batches.items() if batch.over]
            for number in over:
                del self._batches[number]
            waiting = any(batch.unsent for batch in self._batches.values())
            if over or not self._in_flight or (waiting and len(self._in_flight) <= self._bound // 2):
                self._changed.notify_all()
