"""How a run samples, updates and prints when several seeds are trained together."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, TextIO

from jaxmarl_llm.factory import teams
from jaxmarl_llm.utils import console
from jaxmarl_llm.utils.signals import StopSignal


def call(function: Callable, *arguments) -> Any:
    """Call the function with the arguments."""
    return function(*arguments)


def show(line: str) -> None:
    """Print a line immediately."""
    print(line, flush=True)


@dataclasses.dataclass(frozen=True)
class Seat:
    """The functions of a run among several that are trained in one process; `ALONE` for a single run.

    Attributes:
      seeds: number of runs.
      generate: samples completions, with the arguments of `sampling.generate`; None: that function itself.
      train_step: makes an update, with the arguments of `update.train_step`; None: that function itself.
      read_model: reads a model of the team, like `teams.read_model`.
      alone: calls a function with its arguments while no program of another run is built.
      opening: context in which a run opens its files, tasks and models, without sampling or updates.
      stop_signal: creates the `StopSignal` of the training loop.
      display: creates the `console.ProgressDisplay` of the training loop.
      tell: prints a line for the user who waits for the runs.
      plan_stream: output stream of the plan's table; None: the normal output.
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
