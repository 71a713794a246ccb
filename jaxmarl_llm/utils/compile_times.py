"""When this process compiles, as reported by JAX, and a clock that stops meanwhile, for better estimates."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# JAX reports three stages of a program: traced, translated, compiled.
TRACED = "/jax/core/compile/jaxpr_trace_duration"
STAGES = (TRACED, "/jax/core/compile/jaxpr_to_mlir_module_duration")
COMPILED = "/jax/core/compile/backend_compile_duration"
WORTH_NAMING = 0.1  # seconds of tracing; faster programs are compiled before a message could be read


class CompileTimes:
    """Seconds spent compiling, and callbacks while a program compiles.

    Args:
      clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._now = clock
        self._lock = threading.Lock()
        self._spans: list[tuple[float, float]] = []  # in order, apart from each other
        self._watchers: list[Callable[[bool], None]] = []
        self._named = False

    @property
    def seconds(self) -> float:
        """Seconds spent compiling so far; time in which two programs compile counts once."""
        with self._lock:
            return sum(end - start for start, end in self._spans)

    def clock(self) -> float:
        """The time without the time spent compiling (s)."""
        return self._now() - self.seconds

    def record(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        """Record an event of JAX: a stage of a program that took ``duration_secs`` and ends now."""
        del kwargs  # the name of the function
        if event not in (*STAGES, COMPILED):
            return
        with self._lock:
            end = self._now()
            start = end - duration_secs
            while self._spans and self._spans[-1][0] >= start:  # a part of this one
                self._spans.pop()
            if self._spans:
                start = max(start, self._spans[-1][1])
            self._spans.append((start, end))
        if event == TRACED and duration_secs >= WORTH_NAMING:
            self._tell(True)
        elif event == COMPILED:
            self._tell(False)

    def _tell(self, compiling: bool) -> None:
        watchers = self._watchers[-1:]  # another thread may take its own away
        if watchers and compiling != self._named:
            self._named = compiling
            watchers[0](compiling)

    @contextmanager
    def watched(self, tell: Callable[[bool], None]) -> Iterator[None]:
        """Call ``tell`` with True when a program begins to compile, and with False when it is compiled.

        If several are active, only the innermost is called.
        """
        self._watchers.append(tell)
        self._named = False
        try:
            yield
        finally:
            self._watchers.remove(tell)


_OF_PROCESS = CompileTimes()
_registered = threading.Event()


def of_process() -> CompileTimes:
    """Those of this process from the first call on. Imports JAX."""
    if not _registered.is_set():
        _registered.set()
        import jax

        jax.monitoring.register_event_duration_secs_listener(_OF_PROCESS.record)
    return _OF_PROCESS
