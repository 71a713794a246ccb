"""Runs as separate processes, one or several at a time; all stop with the process that started them."""

import collections
import dataclasses
import fcntl
import os
import pathlib
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from jaxmarl_llm.utils.signals import StopSignal

POLL = 0.2  # seconds between looks at the processes
FINISHED = "finished"
FAILED, STOPPED, ELSEWHERE = "failed", "stopped", "running in another process"


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to start: its name, folder and command, and a function that returns whether it is finished."""

    name: str
    folder: pathlib.Path
    command: Sequence[str]
    finished: Callable[[], bool]

    @property
    def log(self) -> pathlib.Path:
        """The file with the command's output; every attempt appends to it."""
        return self.folder / "log.txt"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How an attempt ended: `FINISHED`, `STOPPED`, `ELSEWHERE`, or `FAILED` with its last error."""

    state: str
    reason: str = ""


@dataclasses.dataclass
class _Attempt:
    job: Job
    place: Mapping[str, str]
    process: subprocess.Popen
    log_start: int

    def outcome(self, stopping: bool) -> Outcome:
        if self.job.finished():
            return Outcome(FINISHED)
        if stopping or self.process.returncode == 0:
            return Outcome(STOPPED)
        return Outcome(FAILED, self._last_words())

    def _last_words(self) -> str:
        """What ended it: the signal, the last ``error:`` line and its first reason, the last line, or the exit code."""
        code = self.process.returncode
        if code < 0:
            return f"killed by signal {-code}"
        text = self.job.log.read_bytes()[self.log_start :].decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        stated = [
            " ".join(lines[n : n + 1 + line.endswith(":")])
            for n, line in enumerate(lines)
            if line.startswith("error: ")
        ]  # what ends with a colon has its reasons below it
        return [f"exit code {code}", *lines[-1:], *stated[-1:]][-1]


def run_all(
    jobs: Sequence[Job],
    places: Sequence[Mapping[str, str]],
    tell: Callable[[str], None] = print,
    progress: Callable[[int], None] = lambda ended: None,
) -> dict[pathlib.Path, Outcome]:
    """Run commands in order, as many at a time as there are places.

    The first SIGTERM or Ctrl-C is passed once to the running jobs, which save and stop; no other job starts.
    A second one interrupts them. A job whose log is locked by another process is left to that process.

    Args:
      jobs: the runs; one that fails does not keep the others from running.
      places: environment variables of each place for the commands that run there, such as a device to use.
      tell: prints a line.
      progress: called after each job with the number of finished jobs.

    Returns:
      Outcomes by folder, of the jobs that were started here or run in another process.
    """
    waiting, free = collections.deque(enumerate(jobs, 1)), list(reversed(places))
    running: list[_Attempt] = []
    outcomes: dict[pathlib.Path, Outcome] = {}
    with StopSignal(second="interrupt") as stop:
        handed_on = False
        try:
            while running or (waiting and not stop.requested):
                while waiting and free and not stop.requested:
                    number, job = waiting.popleft()
                    attempt = _begin(job, free[-1])
                    if attempt is None:
                        outcomes[job.folder] = Outcome(ELSEWHERE)
                    else:
                        running.append(attempt)
                        free.pop()
                    note = f"log in {job.log}" if attempt else ELSEWHERE
                    tell(f"[{number}/{len(jobs)}] {job.name}: {note}")
                if stop.requested and not handed_on:
                    _terminate(running)
                    handed_on = True
                time.sleep(POLL if running else 0)
                for attempt in [each for each in running if each.process.poll() is not None]:
                    running.remove(attempt)
                    free.append(attempt.place)
                    outcome = outcomes[attempt.job.folder] = attempt.outcome(stop.requested)
                    tell(_outcome_line(attempt.job, outcome))
                    progress(len(outcomes))
        finally:
            _terminate(running)
            for attempt in running:
                attempt.process.wait()
    return outcomes


def _outcome_line(job: Job, outcome: Outcome) -> str:
    """The line about an attempt that has ended; for a failure with the path of its log."""
    line = ": ".join(filter(None, (job.name, outcome.state, outcome.reason)))
    return f"{line} ({job.log})" if outcome.state == FAILED else line


def _begin(job: Job, place: Mapping[str, str]) -> _Attempt | None:
    """Start a run; None if its log is locked, as it is while a process that prints to it lives."""
    job.folder.mkdir(parents=True, exist_ok=True)
    with open(job.log, "ab") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        log.write(f"$ {shlex.join(job.command)}\n".encode())
        log.flush()
        start = log.tell()  # later the new process moves it
        # A session of its own: the terminal sends Ctrl-C to this process only, which hands it on.
        process = subprocess.Popen(
            job.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **place},
            start_new_session=True,
        )
        return _Attempt(job, place, process, start)


def _terminate(running: Sequence[_Attempt]) -> None:
    for attempt in running:
        attempt.process.terminate()
