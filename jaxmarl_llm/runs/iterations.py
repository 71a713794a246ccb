"""Which iterations a run does, and what is due after each."""

import math
from collections.abc import Callable, Iterator

from jaxmarl_llm.utils import distributed


class Schedule:
    """Iterations of a run. ``start`` is the first one to do, ``done`` counts the finished ones."""

    def __init__(self, config, start: int = 0):
        self._config = config
        self.start = self.done = start

    def steps_left(self, over: Callable[[], bool], seconds: Callable[[], float]) -> Iterator[int]:
        """Iterations to do: up to ``train.steps``, the budgets, or ``train.max_minutes`` of the whole run.

        Args:
          over: whether all budgets are reached.
          seconds: how long the run has lasted.
        """
        limit = 60 * self._config.train.max_minutes or math.inf
        while self.done < self._config.train.steps:
            if distributed.any_process(over() or seconds() >= limit):
                return
            yield self.done
            self.done += 1

    def due(self, every: int, done: int) -> bool:
        """Whether what happens every ``every`` iterations (0: never) is due; not at the start or end."""
        return every > 0 and done % every == 0 and 0 < done < self._config.train.steps

    def may_overlap(self, step: int) -> bool:
        """Whether an iteration may be drawn before the previous iteration's update.

        Not if a checkpoint or an evaluation comes between: a run resumed there must continue identically.
        """
        every = (self._config.save.every, self._config.eval.every)
        inside = 0 < step < self._config.train.steps
        return self._config.train.overlap and inside and not any(self.due(n, step) for n in every)
