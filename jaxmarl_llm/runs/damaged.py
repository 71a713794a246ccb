"""Damaged checkpoints: they are put aside, and a run continues from the last one that can be read."""

import logging
import pathlib

from jaxmarl_llm import checkpoint
from jaxmarl_llm.utils import distributed
from jaxmarl_llm.utils.errors import UserError

FOLDER = "damaged"  # in the run folder; nothing in it is read again
KINDS = ("checkpoints", "system")  # folders of the agents' states, and of models that a system trains


def latest_meta(workdir) -> dict:
    """Metadata of a run's last checkpoint whose metadata can be read; {} for a run without any checkpoint.

    Later ones are put aside. UserError if there are checkpoints and none can be read. All processes of a run
    must call it: they read a checkpoint together.
    """
    place = pathlib.Path(workdir) / "checkpoints"
    while steps := distributed.on_main(checkpoint.saved_steps)(place):
        try:
            return checkpoint.read_meta(place, steps[-1])
        except checkpoint.DamagedError as error:
            put_aside(workdir, steps[-1], error)
    return {}


@distributed.on_main
def put_aside(workdir, step: int, error: Exception) -> None:
    """Move the states of a step to ``damaged/``, with a warning.

    UserError, and nothing is moved, if there is no other step: a run never restarts unless the user wants it.
    """
    workdir = pathlib.Path(workdir)
    others = [other for other in checkpoint.saved_steps(workdir / "checkpoints") if other != step]
    if not others:
        raise UserError(
            f"{workdir} has no other checkpoint to go on from: {error}; begin a new run in another --workdir, or "
            f"remove {workdir / 'checkpoints'} to begin this one again"
        ) from error
    moved = [_move(workdir, pathlib.Path(kind) / str(step)) for kind in KINDS]
    places = " and ".join(str(place) for place in moved if place)
    logging.warning("%s: it is now %s, and the run goes on from step %d", error, places, others[-1])


@distributed.on_main
def put_best_aside(workdir, error: Exception) -> None:
    """Move the best state to ``damaged/``, with a warning; the next evaluation makes a new one."""
    workdir = pathlib.Path(workdir)
    best = pathlib.Path("checkpoints") / checkpoint.BEST
    places = [_move(workdir, best / str(number)) for number in checkpoint.saved_steps(workdir / best)]
    logging.warning("%s: it is now %s, and the run has no best state", error, ", ".join(map(str, places)))


def _move(workdir: pathlib.Path, path: pathlib.Path) -> pathlib.Path | None:
    """Move a folder of the run to ``damaged/``, under a name that is free; its new place, None if it is not there."""
    if not (workdir / path).is_dir():
        return None
    name, number = "_".join(path.parts), 0
    while (target := workdir / FOLDER / (f"{name}_{number}" if number else name)).exists():
        number += 1
    target.parent.mkdir(exist_ok=True)
    return (workdir / path).rename(target)
