"""Call a user's reward: on the whole batch or on parts in threads or processes; it may be async."""

import asyncio
import atexit
import concurrent.futures
import functools
import inspect
import multiprocessing
import pickle
from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

THREADS, PROCESSES = PLACES = ("threads", "processes")
FIELD = "task.reward"

Completions = dict[str, list[str]]
Columns = dict[str, list]


class RewardCalls:
    """A reward function and how to call it.

    Args:
      reward: ``reward(completions, **columns)``, a function or an ``async def``; a text is its dotted name.
      workers: the batch is cut into this many parts, which are judged at the same time.
      place: where they are judged: ``threads``, for rewards that wait for something (an endpoint), or
        ``processes``, for rewards that compute. These import the function by its name, so it must be a text.
    """

    def __init__(self, reward: Callable | str, workers: int = 1, place: str = THREADS):
        if place == PROCESSES and not isinstance(reward, str):
            raise UserError("a reward in processes is given by its dotted name, which they import")
        self.function = dotted.resolve(reward, FIELD) if isinstance(reward, str) else reward
        self._name, self._workers, self._place = reward, workers, place

    def __call__(self, completions: Completions, columns: Columns) -> list:
        """The reward's values of all joint answers, in order.

        Raises what the reward raises; UserError if it does not return a list with one value per answer, or if
        one of its processes dies.
        """
        number = len(next(iter(completions.values())))
        if self._workers == 1:
            return values_of(call(self.function, completions, columns), number)
        parts = [
            slice(number * i // self._workers, number * (i + 1) // self._workers)
            for i in range(self._workers)
        ]
        parts = [part for part in parts if part.start < part.stop]
        in_process = self._place == PROCESSES
        pool, work = _pool(self._place, self._workers), _named if in_process else call
        reward = self._name if in_process else self.function
        futures: list[concurrent.futures.Future] = []
        try:
            for part in parts:
                futures.append(pool.submit(work, reward, _cut(completions, part), _cut(columns, part)))
            values = [values_of(f.result(), p.stop - p.start) for f, p in zip(futures, parts, strict=True)]
        except BrokenProcessPool as error:
            _pool.cache_clear()  # this pool would not answer any further call
            raise UserError(
                "a process of task.reward_place='processes' ended while it called the reward, as with os._exit, a "
                "crash or too little memory"
            ) from error
        finally:
            for future in futures:
                future.cancel()
        return [value for part in values for value in part]


def call(reward: Callable, completions: Completions, columns: Columns) -> Any:
    """What the reward returns; an ``async def`` is awaited in an event loop of its own."""
    return awaited(reward(completions, **columns))


def values_of(result: Any, number: int) -> list:
    """The values of a returned list, tuple, array or series; UserError for anything else."""
    unordered = isinstance(result, str | bytes | Mapping | Set)
    try:
        length = len(result) if isinstance(result, Iterable) and not unordered else None
    except TypeError:  # a zero-dimensional array has no length
        length = None
    if length is None:
        raise UserError(f"the reward returned a {type(result).__name__}, expected a list")
    if length != number:
        raise UserError(f"the reward returned {length} values")
    return list(result)


def awaited(result: Any) -> Any:
    """The result of a user's function; the awaitable of an ``async def`` is awaited."""
    if not inspect.isawaitable(result):
        return result

    async def wait():
        return await result

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    with concurrent.futures.ThreadPoolExecutor(1) as other:  # in a notebook this thread already runs a loop
        return other.submit(asyncio.run, wait()).result()


def _cut(by_name: Mapping[str, list], part: slice) -> dict[str, list]:
    return {name: values[part] for name, values in by_name.items()}


def _named(reward: str, completions: Completions, columns: Columns) -> list:
    """`call` in a process. Returns a list (arrays may be on its devices) or an error that can be pickled."""
    number = len(next(iter(completions.values())))
    try:
        return values_of(call(_imported(reward), completions, columns), number)
    except dotted.RAISED as error:
        if _survives(error):
            raise
        raise RuntimeError(dotted.reason(error)) from None


def _survives(error: BaseException) -> bool:
    """Whether an error can be unpickled in another process: one that cannot would break the pool."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


@functools.cache
def _imported(reward: str) -> Callable:
    return dotted.resolve(reward, FIELD)


@functools.cache
def _pool(place: str, workers: int) -> concurrent.futures.Executor:
    """This process's pool of workers, shared by all tasks."""
    if place == THREADS:
        return concurrent.futures.ThreadPoolExecutor(workers, "reward")
    # Not fork: this process has JAX threads, which a forked copy lacks.
    pool = concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    atexit.register(pool.shutdown, cancel_futures=True)
    return pool
