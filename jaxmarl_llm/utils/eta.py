"""How long some steps will still take."""

import time
from collections import deque
from collections.abc import Callable


def format_seconds(seconds: float | None) -> str:
    """75 -> '1:15', 3700 -> '1:01:40', None (not known yet) -> '?'."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Eta:
    """Remaining seconds, from the mean pace of the last steps.

    The first step is used only until there is another, because it may include one-time work. ``clock``: if
    programs are compiled, `CompileTimes.clock`, so that compile time is not expected again.
    ``in_pairs``: two steps may end at once, for example if one batch is judged while the next is sampled: the
    pace is then that of all steps, including the first.
    """

    def __init__(self, window: int = 20, clock: Callable[[], float] = time.monotonic, in_pairs: bool = False):
        self._clock, self._in_pairs = clock, in_pairs
        self._total = self._all_steps = 0.0
        self._last = clock()
        self._paces: deque[float] = deque(maxlen=window)
        self._steps = 0

    def tick(self, steps: int = 1) -> None:
        """Count `steps` (1 or more) further steps as done."""
        now = self._clock()
        if self._steps == 1:
            self._paces.clear()
        self._total, self._all_steps = self._total + now - self._last, self._all_steps + steps
        self._paces.append((now - self._last) / steps)
        self._last = now
        self._steps += 1

    def skip(self) -> None:
        """Leave out the time since the last tick: its steps were done already."""
        self._last = self._clock()

    @property
    def seconds_per_step(self) -> float | None:
        """The pace; None before the first tick."""
        if self._in_pairs and self._steps:
            return self._total / self._all_steps
        return sum(self._paces) / len(self._paces) if self._paces else None

    def remaining(self, steps: int) -> float | None:
        """Seconds for `steps` more steps; None before the first tick, unless there are none."""
        if not self._steps and steps:
            return None
        return (self.seconds_per_step or 0.0) * steps
