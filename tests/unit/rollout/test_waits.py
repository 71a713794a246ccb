"""How often a rollout waits for the device: once at its beginning, then once to draw and once to judge, each turn."""

import collections
import contextlib
import sys
import threading

import jax
import numpy as np
import pytest
import tiny
import tiny_rollouts
from jax._src import callback
from jax._src.array import ArrayImpl

from jaxmarl_llm.protocols import Discussion


class Waits:
    """Counts what the main thread reads from a device, by phase; what `jax.device_get` reads together is one."""

    def __init__(self, monkeypatch):
        self.by_phase, self._phase, self._inside = collections.Counter(), "begin", False
        value, get, asarray = ArrayImpl._value, jax.device_get, np.asarray
        monkeypatch.setattr(jax, "device_get", lambda tree: self._reading(get, tree))
        monkeypatch.setattr(np, "asarray", lambda x, *more, **options: (
            self._reading(asarray, x, *more, **options) if isinstance(x, jax.Array) else asarray(x, *more, **options)
        ))  # fmt: skip
        monkeypatch.setattr(ArrayImpl, "_value", property(lambda array: self._reading(value.fget, array)))

    def _reading(self, read, *arguments, **options):
        """Call a function that waits; what it calls itself is not another wait."""
        if self._inside or _in_a_callback() or threading.current_thread() is not threading.main_thread():
            return read(*arguments, **options)
        self.by_phase[self._phase] += 1
        self._inside = True
        try:
            return read(*arguments, **options)
        finally:
            self._inside = False

    @contextlib.contextmanager
    def __call__(self, phase):
        """A timer's part: what is read inside belongs to the phase."""
        before, self._phase = self._phase, phase
        yield
        self._phase = before


def _in_a_callback() -> bool:
    """Whether a program called what runs: the arguments of that are on the host."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename != callback.__file__:
        frame = frame.f_back
    return frame is not None


@pytest.mark.slow
def test_a_rollout_waits_once_in_each_phase_of_a_turn(monkeypatch):
    task = tiny.Task(tiny_rollouts.total)
    protocol = Discussion(task.prompts, 2)
    tiny_rollouts.run(task, protocol=protocol, max_prompt_tokens=256)  # compiles; what constants take does not count
    waits = Waits(monkeypatch)
    tiny_rollouts.run(task, protocol=protocol, max_prompt_tokens=256, timer=waits)
    # A discussion of two agents has two calls, and its answers are judged once.
    assert waits.by_phase == {"begin": 1, "sample": 2, "score": 1}
