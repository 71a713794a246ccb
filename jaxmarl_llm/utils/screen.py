"""A screen shared by several runs in one process: progress bars one below the other, separate output."""

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

from rich.text import Text

from jaxmarl_llm.utils import console


class Screen:
    """Where several displays are shown together, each with its bar; a context manager.

    stream: None: stdout.
    """

    name = ""

    def __init__(self, stream: TextIO | None = None):
        self.stream: TextIO = stream or sys.stdout
        self.bar: Any = console.progress_bar(self.stream) if console.is_terminal(self.stream) else None

    def print(self, text: str) -> None:
        """Print a line, above the bars if there are any."""
        if self.bar is not None:
            self.bar.console.print(Text(text))
        else:
            print(text, file=self.stream, flush=True)

    def __enter__(self) -> "Screen":
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *exception) -> None:
        if self.bar is not None:
            self.bar.stop()


class OutputByThread(io.TextIOBase):
    """A stream that sends the output of some threads to separate streams, the rest to ``stream``."""

    def __init__(self, stream: TextIO):
        self._rest, self._own = stream, threading.local()

    @contextlib.contextmanager
    def to(self, stream: TextIO) -> Iterator[None]:
        """Let this thread print to another stream."""
        self._own.stream = stream
        try:
            yield
        finally:
            del self._own.stream

    @property
    def _stream(self) -> TextIO:
        return getattr(self._own, "stream", self._rest)

    def write(self, text: str) -> int:
        """As a stream's."""
        return self._stream.write(text)

    def flush(self) -> None:
        """As a stream's."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Whether what this thread prints goes to a terminal."""
        return self._stream.isatty()
