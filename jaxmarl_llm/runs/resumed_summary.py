"""Restore the summary of a resumed run from its last session, even if some files are damaged."""

import logging
import math
import pathlib
import time
from collections.abc import Sequence

from jaxmarl_llm import checkpoint, metrics
from jaxmarl_llm.factory import inputs
from jaxmarl_llm.runs import damaged, summaries
from jaxmarl_llm.runs.budgets import MARKS
from jaxmarl_llm.utils import distributed, formats
from jaxmarl_llm.utils.errors import UserError


def read_summary(folder, start: int) -> dict:
    """The summary of a run resumed at iteration ``start``, without entries of iterations to be repeated."""
    saved = _saved(pathlib.Path(folder))
    kept = {n: saved[n] for n in ("before", "warm", "warm_up_seconds") if start > 0 and n in saved}
    kept |= {mark: saved[mark] for mark in MARKS if mark in saved and saved[mark]["step"] <= start}
    best, place = saved.get("best", {}), pathlib.Path(folder) / "checkpoints"
    if best.get("step", math.inf) <= start and checkpoint.saved_steps(place / checkpoint.BEST):
        # The run may have been killed between this entry and its checkpoint.
        if _best_meta(folder).get("step") == best["step"]:
            kept["best"] = {name: best[name] for name in ("step", "validation_return") if name in best}
    return kept | {"seconds": saved.get("seconds", 0.0), "resumed": time.time()}


def forget_measured_otherwise(run, changes: Sequence[str]) -> None:
    """Drop entries of the run's summary that were measured with other inputs (`inputs.measured_otherwise`).

    ``changes``: accepted changes of the run's inputs. The summary's file is updated, too.
    """
    otherwise = inputs.measured_otherwise(changes)
    if lost := [name for name in otherwise if run.summary.pop(name, None)]:
        run.tell(
            f"{', '.join(lost)} of summary.json: measured with other inputs than those of now, and dropped"
        )
        if distributed.is_main():
            summaries.write_summary(run)


def _saved(folder: pathlib.Path) -> dict:
    """summary.json; if damaged, log a warning and restore it from the metrics and the best state."""
    try:
        return summaries.read_json(folder / "summary.json")
    except formats.NewerFormatError:
        raise
    except UserError as error:
        logging.warning("%s: it is made again from metrics.jsonl and the best state", error)
    rows = metrics.read_metrics(folder)
    tested = {row["step"]: summaries.entry(row, row["step"]) for row in rows if "test/return" in row}
    name = "warm" if (folder / "begin").is_dir() else "before"
    rebuilt = {name: tested[0]} if 0 in tested else {}
    if checkpoint.saved_steps(folder / "checkpoints" / checkpoint.BEST):
        best = _best_meta(folder)
        rebuilt |= {"best": {n: best[n] for n in ("step", "validation_return")}} if best else {}
    return rebuilt | {"seconds": sum(row.get("seconds", 0.0) for row in rows)}


def _best_meta(folder) -> dict:
    """Metadata of the best state; if damaged, the state is moved aside and {} returned."""
    place = pathlib.Path(folder) / "checkpoints"
    try:
        return checkpoint.read_meta(place, checkpoint.BEST)
    except checkpoint.DamagedError as error:
        damaged.put_best_aside(folder, error)
        return {}
