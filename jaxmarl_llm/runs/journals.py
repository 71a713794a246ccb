"""Journals of rounds of programs, from which stopped searches and trainings continue.

A training keeps a folder ``journal/<iteration>/`` in the run folder for each iteration after the last
checkpoint, with a folder ``redraw<number>`` for each further draw of the iteration. A run that was killed
continues from its last checkpoint and reuses the answers and outcomes in the journal, so it loses only work
in progress.
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

    ``number`` counts the draws of the iteration, 0 is the first. ``count`` is called with all answers that
    are taken from the journal.
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
    """Remove the journals of iterations that a checkpoint includes."""
    saved = checkpoint.saved_steps(folder / "checkpoints")
    if saved and distributed.is_main():
        for each in sorted((folder / FOLDER).glob("[0-9]*")):
            if int(each.name) < max(saved):
                shutil.rmtree(each)


def known(task, ids, name: str, value) -> None:
    """Give the task the results of an earlier process, so that equal programs also count as known now."""
    if name.endswith("_joints"):
        pairs = [(task.items[ids[j.item]], o) for j in value for o in j.judgement.outcomes.values()]
        task.know(*map(list, zip(*pairs, strict=True)))
