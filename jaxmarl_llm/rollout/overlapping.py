"""Rollouts two at a time: while one is judged, the next one draws completions.

Drawing uses the device, judging the host. Two draws never run at the same time, nor do two judgements
(`bridge`), so each rollout computes the same as it would alone.
"""

import concurrent.futures
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.forest.problems import combined

T = TypeVar("T")
Timer = Callable[[str], Any]


def in_turns(timer: Timer | None = None) -> Timer:
    """A timer for several rollouts at the same time, of which only one at a time is in the phase "sample"."""
    device = threading.Lock()

    @contextlib.contextmanager
    def phase(name: str) -> Iterator[None]:
        with (
            device if name == "sample" else contextlib.nullcontext(),
            timer(name) if timer else contextlib.nullcontext(),
        ):
            yield

    return phase


def two_at_a_time(tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
    """The results of some functions, in order; two functions run at the same time, in threads.

    An error is raised in its function's place; later functions may have run, and no further one begins.
    """
    if len(tasks) == 1:
        yield tasks[0]()
        return
    with concurrent.futures.ThreadPoolExecutor(2, "rollouts") as threads:
        begun = [threads.submit(task) for task in tasks]
        try:
            for each in begun:
                yield each.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


def in_parts(
    run: Callable[..., Forest], parts: int, item_ids: Sequence[int], key: jax.Array, timer: Timer | None
) -> Forest:
    """The forest of items drawn in equal parts, one after the other; part k uses ``fold_in(key, k)``.

    Args:
      run: ``run(item_ids=.., key=.., timer=..)``, the forest of some items.
      parts: a divisor of the number of items. Several processes run the parts one after the other, since all
        must make the same calls in the same order.
    """
    size, shared_timer = len(item_ids) // parts, in_turns(timer)
    tasks = [
        functools.partial(
            run,
            item_ids=item_ids[k * size : (k + 1) * size],
            key=jax.random.fold_in(key, k),
            timer=shared_timer,
        )
        for k in range(parts)
    ]
    forests = two_at_a_time(tasks) if jax.process_count() == 1 else (task() for task in tasks)
    return combined([(forest, range(size)) for forest in forests])
