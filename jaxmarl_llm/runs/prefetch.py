"""Sample and judge the next iteration's answers while the current update runs (``train.overlap``)."""

import concurrent.futures
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.metrics import PhaseTimer

Draw = Callable[[int, Any, PhaseTimer], Forest]


class RolloutPrefetch:
    """Rollouts by iteration; the next one starts early if `begin` is called.

    Such a rollout uses parameters that are one update old: its tokens' importance ratios are not 1. It runs
    in a thread: judging, which does not use the device, costs no time while the update runs.

    Args:
      draw: ``draw(iteration, trainables, timer)`` returns the forest of an iteration.
    """

    def __init__(self, draw: Draw):
        self._draw = draw
        self._threads = concurrent.futures.ThreadPoolExecutor(1, "rollout")
        self._begun: tuple[int, concurrent.futures.Future] | None = None

    def __enter__(self) -> "RolloutPrefetch":
        return self

    def __exit__(self, *exception) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def begin(self, step: int, trainables) -> None:
        """Start sampling for an iteration, with copies of the parameters, since updates may donate them."""
        copies = jax.tree.map(jnp.copy, trainables)
        self._begun = step, self._threads.submit(self._timed, step, copies)

    def _timed(self, step: int, trainables) -> tuple[Forest, dict[str, float], float]:
        timer, started = PhaseTimer(), time.perf_counter()
        forest = self._draw(step, trainables, timer)
        return forest, timer.seconds(), time.perf_counter() - started

    def take(self, step: int, trainables, timer: PhaseTimer) -> Forest:
        """The forest of an iteration; re-raises an error of its rollout.

        Adds its phases to ``timer``: "rollout" is the time of this call, "hidden" the time saved by the early
        start.
        """
        begun, self._begun = self._begun, None
        with timer("rollout"):
            if begun is None or begun[0] != step:
                return self._draw(step, trainables, timer)
            started = time.perf_counter()
            forest, seconds, lasted = begun[1].result()
            waited = time.perf_counter() - started
        timer.add(seconds | {"hidden": max(lasted - waited, 0.0)})
        return forest
