"""The compiler of a whole supervisor: made when the first C++ program comes, shared by its workers."""

from __future__ import annotations

import math
import threading
import time

from .compiler import Compiler
from .tools import NoCompiler

RETRY_SECONDS = 60.0  # after which a compiler that did not work is tried again: it may have lacked memory


class Builder:
    """Makes a `Compiler` when it is first needed. Safe to use from several threads."""

    def __init__(self, level: int):
        self.level = level
        self._compiler: Compiler | None = None
        self._missing, self._retry = "", -math.inf
        self._lock = threading.Lock()

    def build(self, text: str, signature: str) -> bytes:
        """As `Compiler.build`; NoCompiler where there is none."""
        return self._made().build(text, signature)

    def _made(self) -> Compiler:
        with self._lock:
            if self._compiler is None:
                if time.monotonic() < self._retry:
                    raise NoCompiler(self._missing)
                try:
                    self._compiler = Compiler(self.level)
                except NoCompiler as error:
                    self._missing, self._retry = str(error), time.monotonic() + RETRY_SECONDS
                    raise
            return self._compiler
