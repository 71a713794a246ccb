"""The commands that a row of the zoo runs in a folder, and which of them are finished. No JAX."""

import functools
import pathlib
import shlex
import sys
from collections.abc import Callable, Sequence

from jaxmarl_llm.cli import launch
from jaxmarl_llm.cli.launch import FINISHED, Job, Outcome
from jaxmarl_llm.runs.results import finished, result_of


def jobs(
    name: str, lines: Sequence[str], folder: pathlib.Path, package: str = "experiments"
) -> dict[pathlib.Path, Job]:
    """The commands of a row in order, by the file that each command leaves when it is finished.

    Args:
      name: the row's name.
      lines: commands without ``python -m``, in which ``{folder}`` stands for the row's folder.
      folder: the row's folder.
      package: package of the commands, ``experiments`` in a checkout.
    """
    made = {}
    for line in lines:
        words = [word.format(folder=folder) for word in shlex.split(line)]
        path = result_of(words)
        command = [sys.executable, "-m", f"{package}.{words[0]}", *words[1:]]
        title = f"{name}, {words[0]}" if len(lines) > 1 else name
        made[path] = Job(title, folder, command, functools.partial(finished, path))
    return made


def is_finished(made: dict[pathlib.Path, Job]) -> bool:
    """Whether all commands of a row have left their results."""
    return all(job.finished() for job in made.values())


def run(made: dict[pathlib.Path, Job], tell: Callable[[str], None] = print) -> Outcome:
    """Run the unfinished commands of a row until one fails; return how the last one ended.

    Each command is a separate process; its output goes to ``log.txt`` in the row's folder (`launch.run_all`).
    """
    outcome = Outcome(FINISHED)
    for job in made.values():
        if not job.finished():
            outcomes = launch.run_all([job], [{}], lambda line: tell(line.removeprefix("[1/1] ")))
            outcome = outcomes.get(job.folder, Outcome(launch.STOPPED))
        if outcome.state != FINISHED:
            break
    return outcome
