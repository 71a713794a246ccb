"""How a run draws, updates and prints when several seeds are trained together."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, TextIO

from jaxmarl_llm.factory import teams
from jaxmarl_llm.utils import console
from jaxmarl_llm.utils.signals import StopSignal


def call(function: Callable, *arguments) -> Any:
    """What the function returns."""
    return function(*arguments)


def show(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


@dataclasses.dataclass(frozen=True)
class Seat:
    """The place of a run among those that are trained in one process; `ALONE` for a run by itself.

    Attributes:
      seeds: how many runs there are.
      generate: draws completions, with the arguments of `sampling.generate`; None: that itself.
      train_step: makes an update, with the arguments of `update.train_step`; None: that itself.
      read_model: reads a model of the team, as `teams.read_model`.
      alone: calls a function with its arguments while no program of another run is made.
      opening: the context in which a run opens its files, tasks and models, and makes no draw or update.
      stop_signal: makes the `StopSignal` of the training loop.
      display: makes its `console.ProgressDisplay`.
      tell: prints a line that is for whoever waits for the runs.
      plan_stream: where the table of the plan goes; None: where everything is printed.
    """

    seeds: int = 1
    generate: Callable | None = None
    train_step: Callable | None = None
    read_model: Callable = teams.read_model
    alone: Callable = call
    opening: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
    stop_signal: Callable[[str], StopSignal] = StopSignal
    display: Callable[..., console.ProgressDisplay] = console.ProgressDisplay
    tell: Callable[[str], None] = show
    plan_stream: TextIO | None = None


ALONE = Seat()
