"""The executor's health: counts, and an alarm when more programs end abnormally than before."""

from __future__ import annotations

import collections
import math
import threading
from collections.abc import Iterable, Sequence

from .types import Report
from .verdicts import VERDICTS

NORMAL = ("pass", "fail", "error", "load-error")
SAMPLES = 10_000  # percentiles are over this many latest values
WINDOW = 200  # the abnormal share of this many last programs is compared with that of all earlier ones
RISE, ERRORS = 0.1, 4.0  # the alarm needs both: a rise of the share, and that many standard errors


class Health:
    """Counters, thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._alarm = Alarm()
        self._clear()

    def _clear(self) -> None:
        self._verdicts = collections.Counter()
        self._programs = self._cached = self._runs = self._reruns = self._restarts = 0
        self._seconds = 0.0
        self._cpu = collections.deque(maxlen=SAMPLES)
        self._waits = collections.deque(maxlen=SAMPLES)

    def count_program(self, result: dict) -> None:
        """Count the result of one program, see `supervisor`."""
        runs, error = result["runs"], result["error"]
        with self._lock:
            self._runs += len(runs)
            self._reruns += len(runs) > 1
            self._cpu.extend(seconds for _, seconds in runs)
            self._restarts += result["restarts"]
            if runs:
                self._waits.append(result["queue_seconds"])
            if error and error[0] == "ExecutorError":
                self._verdicts["infra"] += 1

    def add_seconds(self, seconds: float) -> None:
        """Add time in which programs ran or waited to run (s)."""
        with self._lock:
            self._seconds += seconds

    def count_restart(self) -> None:
        """Count the loss of a supervisor."""
        with self._lock:
            self._restarts += 1

    def count_reports(self, reports: Iterable[Report]) -> list[str]:
        """Count a batch's reports, including repeated ones; return their alarms as sentences."""
        alarms = []
        with self._lock:
            for report in reports:
                self._programs += 1
                self._cached += report.cached
                self._verdicts[report.verdict] += 1
                if not report.cached and (sentence := self._alarm.add(report.verdict)):
                    alarms.append(sentence)
        return alarms

    def metrics(self) -> dict[str, float]:
        """What was counted since the last call; see `Executor.metrics`."""
        with self._lock:
            programs = max(1, self._programs)
            abnormal = sum(n for verdict, n in self._verdicts.items() if verdict not in NORMAL)
            values = {
                "programs": self._programs,
                "runs": self._runs,
                "runs_per_second": self._runs / self._seconds if self._seconds else 0.0,
                "abnormal_share": abnormal / programs,
                "cached_share": self._cached / programs,
                "cpu_seconds_p50": percentile(self._cpu, 50),
                "cpu_seconds_p95": percentile(self._cpu, 95),
                "queue_seconds_p50": percentile(self._waits, 50),
                "queue_seconds_p95": percentile(self._waits, 95),
                "near_limit_reruns": self._reruns,
                "restarts": self._restarts,
                **{f"verdict/{verdict}": self._verdicts[verdict] for verdict in VERDICTS},
            }
            self._clear()
        return {name: float(value) for name, value in values.items()}


class Alarm:
    """Compares the abnormal share of the last WINDOW programs with that of all earlier ones."""

    def __init__(self):
        self._window: collections.deque[str] = collections.deque()
        self._recent = collections.Counter()  # abnormal verdicts in the window
        self._earlier = self._earlier_abnormal = 0
        self._raised = False

    def add(self, verdict: str) -> str | None:
        """Count a verdict; return a sentence if the share has risen, only once until it falls again."""
        self._window.append(verdict)
        self._recent[verdict] += verdict not in NORMAL
        if len(self._window) > WINDOW:
            oldest = self._window.popleft()
            self._recent[oldest] -= oldest not in NORMAL
            self._earlier += 1
            self._earlier_abnormal += oldest not in NORMAL
        if self._earlier < WINDOW:
            return None
        share, before = self._recent.total() / WINDOW, self._earlier_abnormal / self._earlier
        margin = max(RISE, ERRORS * math.sqrt(before * (1 - before) / WINDOW))
        if self._raised and share < before + margin / 2:
            self._raised = False
        if self._raised or share < before + margin:
            return None
        self._raised = True
        worst, count = self._recent.most_common(1)[0]
        return (
            f"abnormal verdicts rose to {share:.1%} of the last {WINDOW} programs, from {before:.1%} of the "
            f"{self._earlier} before; most frequent: {worst}, {count / WINDOW:.1%}"
        )


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that `share` per cent of the values do not exceed (nearest rank); 0 for no values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)] if ordered else 0.0
