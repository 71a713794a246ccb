"""The last lines that a process prints as errors."""

from __future__ import annotations

import collections
import os
import threading
from typing import TextIO

KEPT = 5  # lines
LONGEST = 300  # characters of a line
WAIT = 0.5  # seconds to wait for late lines


class LastLines:
    """A file for the error output of a process, whose last lines are kept.

    Attributes:
      file: to be given to the process, then closed here. Its lines end when the last process that has it open
        ends.
    """

    def __init__(self):
        read, write = os.pipe()
        self.file: TextIO = os.fdopen(write, "w")
        self._lines: collections.deque[str] = collections.deque(maxlen=KEPT)
        self._reader = threading.Thread(target=self._read, args=(read,), daemon=True)
        self._reader.start()

    def last(self) -> str:
        """The last line that is not blank, '' if there is none; waits for the process's end, but not long."""
        self._reader.join(WAIT)
        return next((line for line in reversed(self._lines) if line), "")

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, errors="replace") as lines:
            for line in iter(lambda: lines.readline(LONGEST), ""):
                if line.strip():
                    self._lines.append(" ".join(line.split()))
