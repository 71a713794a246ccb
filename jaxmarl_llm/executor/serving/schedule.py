"""Which program runs next: in the order of submission, some of them alone."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable


class Schedule:
    """A queue for several threads. Jobs to be run alone go first, each once nothing else is running."""

    def __init__(self):
        self._changed = threading.Condition()
        self._jobs: collections.deque = collections.deque()
        self._lone: collections.deque = collections.deque()
        self._running = 0
        self._one_alone = self._closed = False

    def put(self, jobs: Iterable) -> None:
        """Append jobs."""
        with self._changed:
            self._jobs.extend(jobs)
            self._changed.notify_all()

    def put_alone(self, job) -> None:
        """Append a job that is to run alone."""
        with self._changed:
            self._lone.append(job)
            self._changed.notify_all()

    def take(self) -> tuple[object, bool] | None:
        """Wait for a job: (job, whether nothing else runs until its finish()), or None after close()."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._open_queue())
            if self._closed:
                return None
            queue = self._open_queue()
            self._one_alone = queue is self._lone
            self._running += 1
            return queue.popleft(), self._one_alone

    def finish(self, again=None) -> None:
        """A job taken by this thread has ended; `again` is put in line for a run alone."""
        with self._changed:
            self._running -= 1
            if again is not None:
                self._lone.append(again)
            if self._one_alone or (self._lone and not self._running):
                self._one_alone = False
                self._changed.notify_all()

    def drop(self, unwanted: Callable[[object], bool]) -> list:
        """Take the unwanted jobs that wait out of the line, and return them."""
        with self._changed:
            dropped = [job for job in (*self._lone, *self._jobs) if unwanted(job)]
            self._lone = collections.deque(job for job in self._lone if not unwanted(job))
            self._jobs = collections.deque(job for job in self._jobs if not unwanted(job))
            self._changed.notify_all()
            return dropped

    def close(self) -> None:
        """Give out no more jobs."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _open_queue(self) -> collections.deque | None:
        """Where the next job comes from; None (or an empty queue) where none may start now."""
        if self._one_alone or (self._lone and self._running):
            return None
        return self._lone or self._jobs
