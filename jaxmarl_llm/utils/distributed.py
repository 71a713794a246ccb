"""Several processes that do one run together, over `jax.distributed`: one on each host, or on each device.

All run the same program on the same data; information that only one has (a judgement, an answer from
outside, a signal, the clock) is sent to all before anything depends on it. With one process every function
here returns the same without communication and without importing JAX, so a command's first lines appear at
once.
"""

import functools
import pathlib
import pickle
import sys
import time
from collections.abc import Callable
from typing import Any

from jaxmarl_llm.utils.errors import UserError

AUTO = "auto"
HEARTBEAT_SECONDS = 30  # a process without a heartbeat for so long counts as dead
_WAITED: list[float] = []  # seconds of each `gather` until all were there
SMALLEST = 1 << 12  # bytes; messages grow by powers of two, because every size is a compilation


def connect(coordinator: str, processes: int = 0, process: int = 0) -> None:
    """Join the run's other processes; blocks until all are there (5 minutes, then an error). Call it first.

    Args:
      coordinator: ``host:port`` of process 0, or ``auto`` where the platform knows it (TPU, Slurm, ..).
      processes, process: how many there are, and which one this is, from 0; not read with ``auto``.

    Raises ValueError for impossible numbers.
    """
    if coordinator != AUTO and not 0 <= process < processes:
        raise UserError(
            f"--process={process} of --processes={processes}: allowed are processes from 0 to one less than "
            "their number"
        )
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    ids: dict[str, Any] = {} if coordinator == AUTO else dict(num_processes=processes, process_id=process)
    address = None if coordinator == AUTO else coordinator
    jax.distributed.initialize(address, heartbeat_timeout_seconds=HEARTBEAT_SECONDS, **ids)


def is_distributed() -> bool:
    """Whether there are other processes."""
    return "jax" in sys.modules and sys.modules["jax"].process_count() > 1  # `connect` has imported it


def is_main() -> bool:
    """Whether this is the first process, which acts for all."""
    return _index() == 0


def place() -> tuple[int, int]:
    """The number of this process, from 0, and how many there are."""
    return _index(), sys.modules["jax"].process_count() if is_distributed() else 1


def own_folder(folder: pathlib.Path) -> pathlib.Path:
    """Folder of files that a process writes for itself: ``folder`` for the first, else a subfolder."""
    return folder if is_main() else folder / f"process{_index()}"


def _index() -> int:
    """The number of this process, from 0."""
    return sys.modules["jax"].process_index() if "jax" in sys.modules else 0


def gather(thing: Any) -> list:
    """Values of all processes, in their order; anything that pickles. All must call it."""
    if not is_distributed():
        return [thing]
    import numpy as np
    from jax.experimental import multihost_utils

    data, started = np.frombuffer(pickle.dumps(thing), np.uint8), time.perf_counter()
    sizes = np.ravel(multihost_utils.process_allgather(np.array([data.size])))
    _WAITED.append(time.perf_counter() - started)
    room = SMALLEST
    while room < sizes.max():
        room *= 2
    padded = np.zeros(room, np.uint8)
    padded[: data.size] = data
    gathered = multihost_utils.process_allgather(padded)
    return [pickle.loads(row[:size].tobytes()) for row, size in zip(gathered, sizes, strict=True)]


def waited() -> float:
    """Seconds that this process has waited for others to come to `gather`, since the last call."""
    seconds = sum(_WAITED)
    _WAITED.clear()
    return seconds


def any_process(yes: bool) -> bool:
    """Whether ``yes`` is true in any process. All must call it."""
    return any(gather(bool(yes)))


def run_together(function: Callable, *arguments) -> list:
    """`gather` of ``function(*arguments)``; an error in one process is raised in all.

    The others raise RuntimeError with the process and the error in it.
    """
    if not is_distributed():
        return [function(*arguments)]
    result, error = None, None
    try:
        result = function(*arguments)
    except Exception as raised:  # noqa: BLE001 - raised below, when all know of it
        error = raised
    gathered = gather((result, error and f"{type(error).__name__}: {error}"))
    if error is not None:
        raise error
    for process, (_, message) in enumerate(gathered):
        if message is not None:
            raise RuntimeError(f"process {process} failed: {message}")
    return [result for result, _ in gathered]


def on_main(function: Callable) -> Callable:
    """Wrap a function so that the first process computes it and all return its result."""

    @functools.wraps(function)
    def wrapped(*arguments):
        def compute():
            return function(*arguments) if is_main() else None

        return run_together(compute)[0]

    return wrapped
