"""Journals of rounds of programs: what searches and trainings take up again where they were stopped.

A training keeps a folder for each iteration that no checkpoint is past, ``journal/<iteration>/`` in the run
folder, with a folder ``redraw<number>`` for each further draw of the iteration. A run that was killed goes on
from its last checkpoint with the answers and outcomes that are there, as far as they go, so that it loses what
was under way and nothing else.
"""

import pathlib
import shutil
from collections.abc import Callable, Sequence

from jaxmarl_llm import checkpoint
from jaxmarl_llm.config import programs
from jaxmarl_llm.forest import Turn
from jaxmarl_llm.rollout.journal import Journal
from jaxmarl_llm.utils import distributed

FOLDER = "journal"


def of_draw(
    config, folder: pathlib.Path, task, ids, step: int, number: int, count: Callable[[Sequence[Turn]], None]
) -> Journal | None:
    """The journal of a draw of an iteration about some items; None for protocols without rounds of programs.

    ``number`` counts the further draws of the iteration, 0 is the first draw. ``count`` is called with all
    answers that are taken from there.
    """
    if config.train.protocol not in programs.METHODS:
        return None
    forget(folder)

    def taken(name: str, value) -> None:
        if name.endswith("_turns"):
            count(value)
        elif config.task.kind in programs.KINDS:  # other tasks remember no outcomes
            known(task, ids, name, value)

    own = folder / FOLDER / f"{step:06d}"
    return Journal(own / f"redraw{number}" if number else own, taken=taken)


def forget(folder: pathlib.Path) -> None:
    """Remove the journals of iterations that a checkpoint is past."""
    saved = checkpoint.saved_steps(folder / "checkpoints")
    if saved and distributed.is_main():
        for each in sorted((folder / FOLDER).glob("[0-9]*")):
            if int(each.name) < max(saved):
                shutil.rmtree(each)


def known(task, ids, name: str, value) -> None:
    """Tell the task what an earlier process had judged, so that equal programs count as known now as well."""
    if name.endswith("_joints"):
        pairs = [(task.items[ids[j.item]], o) for j in value for o in j.judgement.outcomes.values()]
        task.know(*map(list, zip(*pairs, strict=True)))
