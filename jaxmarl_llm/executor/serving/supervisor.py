"""The supervisor: a small process between the trainer and the workers, which it starts, feeds and replaces.

Messages in: first {"workers", "level", "limits", "packages"}; then {"batch", "since", "jobs": [[id, key,
program], ...]}, where equal keys mean equal programs, an empty key a program to run alone, once, and not to
remember, and `since` is the trainer's monotonic clock (s); and {"cancel": batch}.
Out: first {"error": text or ""}; then {"results": [...]} with one result per job, in the order of their ends:

    id, report     the report (see `types.to_plain`), or None where there is an error or the job was cancelled
    error          [name of the exception type, text] or None
    runs           [[verdict, CPU seconds], ...] of what was run: nothing, one program, or the same one twice
    queue_seconds  from `since` to the start of the first run
    restarts       worker processes that failed on this job and were replaced

A program whose CPU time is near its limit is run again, alone, and that verdict counts. To detect such
programs, first runs may use NEAR[1] of the limit: a program that still runs then is clearly over the limit,
and is not run again. A program that the wall limit stopped although it was not asleep is also run again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import resource
import socket
import threading
import time
import traceback

from .. import frames
from ..cpp.builder import Builder
from ..isolation import confine, libc
from ..types import MAX_SECONDS, Limits, Program, Report, from_plain, to_plain
from .schedule import Schedule
from .worker import RECYCLE, Worker

NEAR = (0.7, 1.3)  # shares of the CPU limit between which a program is run again
AWAKE = 0.01  # share of the wall limit: who used that much CPU time did not sleep, but got little of it
CACHE_SIZE = 1 << 14  # reports
# Depend on more than the content of the program, so they are run again.
UNCACHED = ("timeout-cpu", "timeout-wall", "killed", "infra")
CLOSE_SECONDS = 0.5  # for workers to end by themselves


def main(control_fd: int, parent: int) -> None:
    """Serve until the trainer closes the channel, or ends."""
    confine.die_with_parent(parent)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    confine.lower(resource.RLIMIT_CORE, 0)
    control = socket.socket(fileno=control_fd)
    settings = frames.receive_control(control)[0]
    limits = from_plain(Limits, settings["limits"])
    supervisor = Supervisor(
        control, settings["workers"], settings["level"], limits, settings.get("packages", ())
    )
    threading.excepthook = lambda problem: _crash(problem.exc_value)
    try:
        supervisor.serve()
    except (EOFError, OSError):
        supervisor.close()
        os._exit(0)  # with its threads end the processes that they started
    except BaseException as error:
        _crash(error)


def _crash(error: BaseException) -> None:
    """End the process after an error of ours in any thread, rather than leave a job without an answer."""
    traceback.print_exception(error)
    os._exit(1)


@dataclasses.dataclass
class Job:
    """One program on its way; `runs` and `restarts` as in its result, `repeatable` as of its `Worker`."""

    id: int
    key: str
    batch: int
    since: float
    program: dict
    waited: float | None = None
    runs: list = dataclasses.field(default_factory=list)
    restarts: int = 0
    repeatable: bool = True

    def result(self, report: dict | None, error: list[str] | None = None) -> dict:
        """The message's part for this job."""
        facts = {"runs": self.runs, "queue_seconds": self.waited or 0.0, "restarts": self.restarts}
        return {"id": self.id, "report": report, "error": error, **facts}


class Supervisor:
    """The trainer's channel on one side, a thread per worker on the other."""

    def __init__(self, control: socket.socket, workers: int, level: int, limits: Limits, packages=()):
        self.control, self.level, self.limits, self.packages = control, level, limits, packages
        # Wall time is not stretched: it stops sleepers only, whatever they may still use of the CPU.
        self.first_limits = dataclasses.replace(
            limits,
            cpu_seconds=min(NEAR[1] * limits.cpu_seconds, MAX_SECONDS),
            wall_seconds=min(limits.wall, MAX_SECONDS),
        )
        self.schedule, self.cache, self.builder = Schedule(), Cache(), Builder(level)
        self._sending = threading.Lock()
        self._started: queue.SimpleQueue = queue.SimpleQueue()
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]

    def serve(self) -> None:
        """Start the workers and handle messages; EOFError or OSError when the trainer is gone."""
        for thread in self.threads:
            thread.start()
        errors = [error for error in (self._started.get() for _ in self.threads) if error]
        frames.send_control(self.control, {"error": errors[0] if errors else ""})
        while True:
            message, _ = frames.receive_control(self.control)
            if "cancel" in message:
                dropped = self.schedule.drop(lambda job, batch=message["cancel"]: job.batch == batch)
                self._send([job.result(None) for job in dropped])
            else:
                self._accept(message)

    def close(self) -> None:
        """Let the workers end their processes, as far as they are not busy."""
        self.schedule.close()
        deadline = time.monotonic() + CLOSE_SECONDS
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _accept(self, message) -> None:
        """Answer what is known, queue the rest."""
        known, new = [], []
        for number, key, program in message["jobs"]:
            job = Job(number, key, message["batch"], message["since"], program)
            report = self.cache.get(key)
            if not key:
                self.schedule.put_alone(job)
            elif report is None:
                new.append(job)
            else:
                known.append(job.result({**report, "cached": True}))
        self.schedule.put(new)
        self._send(known)

    def _send(self, results: list[dict]) -> None:
        if results:
            with self._sending:
                frames.send_control(self.control, {"results": results})

    def _work(self) -> None:
        """A worker's thread: owns its processes, which the kernel ends with this thread."""
        try:
            worker = Worker(self.limits, self.level, self.builder, self.packages)
        except Exception as error:
            self._started.put(f"{type(error).__name__}: {error}")
            return
        self._started.put("")
        try:
            while (turn := self.schedule.take()) is not None:
                job, alone = turn
                report, error = self._attempt(worker, job, alone)
                again = not alone and report is not None and self._is_near(report)
                self.schedule.finish(again=job if again else None)
                if not again:
                    self._conclude(job, report, error)
        except OSError:  # the trainer is gone: `serve` sees it too
            pass
        finally:
            worker.close()

    def _attempt(self, worker: Worker, job: Job, alone: bool) -> tuple[Report | None, list[str] | None]:
        """(report, None), or (None, error) as it goes into the result."""
        worker.limits = self.limits if alone else self.first_limits
        if job.waited is None:
            job.waited = time.monotonic() - job.since
        processes, recycled = (worker.zygote, worker.tester), worker.count and worker.count % RECYCLE == 0
        try:
            report = worker.run(from_plain(Program, job.program))
            job.runs.append([report.verdict, report.cpu_seconds])
            job.repeatable = worker.repeatable
            return report, None
        except Exception as error:
            return None, [type(error).__name__, str(error)]
        finally:
            job.restarts += not recycled and processes != (worker.zygote, worker.tester)

    def _is_near(self, report: Report) -> bool:
        """Whether a limit might have decided otherwise at another time, under another load."""
        if report.verdict == "timeout-wall":
            return report.cpu_seconds >= AWAKE * self.limits.wall
        return report.verdict != "timeout-cpu" and report.cpu_seconds >= NEAR[0] * self.limits.cpu_seconds

    def _conclude(self, job: Job, report: Report | None, error: list[str] | None) -> None:
        plain = None if report is None else to_plain(report)
        if report is not None and job.key and job.repeatable and report.verdict not in UNCACHED:
            self.cache.put(job.key, plain)
        self._send([job.result(plain, error)])


class Cache:
    """The latest reports by key, for several threads."""

    def __init__(self):
        self._texts: dict[str, str] = {}  # as JSON, which takes a fraction of the memory
        self._lock = threading.Lock()

    def get(self, key: str) -> dict | None:
        """The report, or None."""
        text = self._texts.get(key)
        return None if text is None else json.loads(text)

    def put(self, key: str, report: dict) -> None:
        """Keep a report; the oldest one goes when there are too many."""
        with self._lock:
            self._texts[key] = json.dumps(report)
            if len(self._texts) > CACHE_SIZE:
                del self._texts[next(iter(self._texts))]
