"""Metrics of a run: a JSON line per step, TensorBoard, W&B; and a timer for the phases of a step."""

import importlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from jaxmarl_llm.utils.errors import MissingPackageError, UserError
from jaxmarl_llm.utils.event_files import EventFile
from jaxmarl_llm.utils.files import atomic_write_text

FILE_NAME = "metrics.jsonl"


class MetricsWriter:
    """Append rows of named numbers to `folder/metrics.jsonl` and mirror them to TensorBoard and W&B.

    Args:
      folder: the run folder; created if needed.
      tensorboard: also write event files to `folder/tensorboard`.
      wandb: keyword arguments of `wandb.init`, e.g. `{"project": "teams"}`; None leaves W&B alone. A resumed
        run continues the same W&B run (its id is kept in `folder/wandb_id`).
      resume_step: the first step this writer will write. Rows from there on, left by a run that was killed
        after its last checkpoint, are dropped, so that every step appears once. Required if rows exist.

    Raises:
      ValueError: rows exist and `resume_step` is not given, or `wandb` is not a mapping.
      ImportError: `wandb` is given and W&B is not installed.
    """

    def __init__(
        self,
        folder,
        tensorboard: bool = True,
        wandb: Mapping | None = None,
        *,
        resume_step: int | None = None,
    ):
        self._folder = Path(folder)
        # First, so that nothing is touched if it fails.
        wandb_module = None if wandb is None else _import_wandb(wandb)
        path = self._folder / FILE_NAME
        _drop_rows(path, resume_step)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a", encoding="utf-8", newline="\n")
        self._board = EventFile(self._folder / "tensorboard", resume_step) if tensorboard else None
        self._run = None if wandb is None else _open_wandb(wandb_module, self._folder, wandb)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write one row; numbers that are not finite become null. Any scalar with `float()` is a value."""
        row = {name: _number(name, value) for name, value in values.items()}
        if "step" in row:
            raise UserError("metric name 'step' is taken by the row's own step; choose another name")
        line = json.dumps({"step": int(step), **row}, allow_nan=False)
        self._file.write(line + "\n")
        self._file.flush()
        finite = {name: value for name, value in row.items() if value is not None}
        if self._board is not None:
            self._board.write(int(step), finite)
        if self._run is not None:
            self._run.log(finite, step=int(step))

    def close(self) -> None:
        """Flush and close everything; a second call does nothing."""
        self._file.close()
        if self._board is not None:
            self._board.close()
            self._board = None
        if self._run is not None:
            self._run.finish()
            self._run = None

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *exception) -> None:
        self.close()


def read_metrics(folder) -> list[dict]:
    """The rows of a run folder in the order written; [] if there are none yet.

    A last line without its end (the run was killed while writing it, or is writing it now) is left out.

    Raises ValueError naming the line if any other line is not a row.
    """
    path = Path(folder) / FILE_NAME
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = text.split("\n")[:-1]  # the text after the last newline is empty or incomplete
    return [_parse_row(path, number, line) for number, line in enumerate(lines, start=1)]


def _parse_row(path: Path, number: int, line: str) -> dict:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {number}: not JSON ({error}): {line[:80]!r}") from None
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise UserError(f"{path}, line {number}: not an object with an integer 'step': {line[:80]!r}")
    return row


def _drop_rows(path: Path, resume_step: int | None) -> None:
    """Rewrite the file without rows of `resume_step` and later, and without an incomplete last line."""
    if not path.exists() or path.stat().st_size == 0:
        return
    rows = read_metrics(path.parent)
    if resume_step is None:
        steps = [row["step"] for row in rows]
        held = f"steps {min(steps)} to {max(steps)}" if steps else "a torn line"
        raise UserError(
            f"{path} already holds {held}; pass resume_step (the first step to write) or take another folder"
        )
    kept = [row for row in rows if row["step"] < resume_step]
    atomic_write_text(path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in kept))


def _number(name: str, value) -> float | int | None:
    """A plain JSON number: integers stay integers, NaN and infinities become None, as which they are read back."""
    if value is None:
        return None
    try:
        number = int(value) if isinstance(value, int) else float(value)
    except (TypeError, ValueError) as error:
        raise UserError(f"metric {name!r} must be one number, got {value!r}") from error
    return number if math.isfinite(number) else None


def _import_wandb(settings):
    if not isinstance(settings, Mapping):
        raise UserError(
            f"wandb must be None or arguments of wandb.init, e.g. {{'project': 'x'}}, got {settings!r}"
        )
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise MissingPackageError(
            "W&B was asked for but wandb is not installed: pip install 'jaxmarl_llm[wandb]', or leave W&B off"
        ) from error


def _open_wandb(module, folder: Path, settings: Mapping):
    id_file = folder / "wandb_id"
    saved = {"id": id_file.read_text("utf-8").strip()} if id_file.exists() else {}
    run = module.init(**{"dir": str(folder), "resume": "allow", **saved, **settings})
    atomic_write_text(id_file, run.id)
    return run


class PhaseTimer:
    """Seconds by phase of a step.

    `with timer("sample"): ...` adds to that phase; `timer.collect()` returns the row for the step and
    resets. Phases may repeat; a phase inside another counts in both.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Time the block, also one that raises."""
        start = self._clock()
        try:
            yield
        finally:
            self.add({phase: self._clock() - start})

    def add(self, seconds: dict[str, float]) -> None:
        """Add seconds that were measured elsewhere."""
        with self._lock:  # rollouts in threads measure with one timer
            for phase, more in seconds.items():
                self._seconds[phase] = self._seconds.get(phase, 0.0) + more

    def seconds(self) -> dict[str, float]:
        """Seconds by phase since the last `collect`."""
        return dict(self._seconds)

    def collect(self) -> dict[str, float]:
        """{'seconds/<phase>': seconds since the last call, 'memory/peak_rss_mb': of this process so far}."""
        row = {f"seconds/{phase}": seconds for phase, seconds in self._seconds.items()}
        self._seconds = {}
        return {**row, "memory/peak_rss_mb": peak_rss_mb()}


def peak_rss_mb() -> float:
    """The largest resident memory this process has had, in MB (10^6 bytes), without its worker processes."""
    if os.path.exists("/proc/self/status"):
        # Not getrusage: on Linux its maximum survives exec and can be that of the program that started this.
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024 / 1e6
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset / 1e6
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
