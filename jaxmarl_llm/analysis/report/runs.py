"""Read run folders, and the files that `experiments.evaluate` writes, as plain data."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxmarl_llm import metrics, transcripts
from jaxmarl_llm.transcripts import JointAction
from jaxmarl_llm.utils import formats
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.files import read_json

MODES = ("sampled", "greedy")
VERDICTS = tuple(f"{name}/verdict/" for name in ("executor", "eval", "eval_greedy", "test", "test_greedy"))


@dataclasses.dataclass(frozen=True)
class RunData:
    """The contents of a run folder. ``name`` is short and unique among the runs of a report.

    rows are those of metrics.jsonl; summary is {} for a run without measurements yet, and has no "after"
    before the run's end.
    """

    folder: Path
    name: str
    config: dict[str, Any]
    rows: list[dict]
    summary: dict[str, Any]

    @property
    def seed(self):
        return self.config["seed"]

    @property
    def agents(self) -> tuple[str, ...]:
        """Names in the order of the team; () if the config names none."""
        return tuple(self.config.get("team", {}).get("agents", ()))

    @property
    def iterations(self) -> int:
        """Number of training iterations that have a row in metrics.jsonl."""
        return sum("train/return" in row or "seconds" in row for row in self.rows)


@dataclasses.dataclass(frozen=True)
class EvaluationData:
    """An evaluation file and its answers by mode ("sampled", "greedy")."""

    path: Path
    name: str
    report: dict[str, Any]
    actions: dict[str, list[JointAction]]


def read_runs(folders: Sequence) -> list[RunData]:
    """Read run folders, in order, with distinct names and with `verdict_shares` instead of counts.

    Raises:
      ValueError: naming the folder and what it lacks, or a folder that is given twice.
    """
    paths = [Path(folder) for folder in folders]
    _refuse_twice(paths)
    runs = [read_run(path, name) for path, name in zip(paths, short_names(paths), strict=True)]
    names = dict.fromkeys(name for run in runs for row in run.rows for name in row)
    return [dataclasses.replace(run, rows=verdict_shares(run.rows, list(names))) for run in runs]


def read_run(folder, name: str = "") -> RunData:
    """Read config.json, metrics.jsonl and, if there, summary.json of a run folder.

    Raises:
      ValueError: naming the folder and what is missing in it or cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"run folder {folder} does not exist; give the --workdir of a training run")
    config = formats.upgraded(_existing(folder / "config.json"), folder / "config.json")
    if "seed" not in config:
        raise UserError(f"run folder {folder}: its config.json has no 'seed'")
    if not (folder / metrics.FILE_NAME).is_file():
        raise UserError(f"run folder {folder} has no {metrics.FILE_NAME}; it is written as a run goes on")
    rows = metrics.read_metrics(folder)
    if not rows:
        raise UserError(f"run folder {folder}: its {metrics.FILE_NAME} holds no rows yet")
    _check_numbers(folder, rows)
    summary = formats.read(folder / "summary.json") if (folder / "summary.json").exists() else {}
    return RunData(folder, name or folder.resolve().name, config, rows, summary)


def verdict_shares(rows: Sequence[dict], names: Sequence[str]) -> list[dict]:
    """The rows with verdict counts as percentages of all verdicts of that kind in the row.

    A verdict of ``names`` that is missing in a row is 0 if the row has other verdicts of that kind.
    """

    def shares(row: dict, prefix: str) -> dict:
        total = sum(row[name] or 0 for name in row if name.startswith(prefix))
        return {n: 100 * (row.get(n) or 0) / total for n in names if n.startswith(prefix)} if total else {}

    return [row | {k: v for prefix in VERDICTS for k, v in shares(row, prefix).items()} for row in rows]


def read_evaluations(paths: Sequence) -> list[EvaluationData]:
    """Read files of `experiments.evaluate`, in order.

    Raises:
      ValueError: as `read_evaluation`, or for a file that is given twice.
    """
    paths = [Path(path) for path in paths]
    _refuse_twice(paths)
    names = short_names([path.with_suffix("") for path in paths], parts=2)
    return [read_evaluation(path, name) for path, name in zip(paths, names, strict=True)]


def read_evaluation(path, name: str = "") -> EvaluationData:
    """Read an evaluation file and the transcripts in the folder of the same name beside it.

    Raises:
      ValueError: naming the file and what is missing in it or beside it.
    """
    path = Path(path)
    report = formats.upgraded(_existing(path), path)
    modes = [mode for mode in MODES if isinstance(report.get(mode), dict)]
    if not modes or not isinstance(report.get("step"), int):
        raise UserError(f"{path} is no file of experiments.evaluate: it needs 'step', 'sampled' or 'greedy'")
    actions = {mode: transcripts.read(path.with_suffix("") / mode, report["step"]) for mode in modes}
    return EvaluationData(path, name or path.stem, report, actions)


def short_names(paths: Sequence[Path], parts: int = 1) -> list[str]:
    """Short, distinct names of paths: the last parts of each path.

    If these are not distinct, the paths without the folders that all have in common at the start and at
    the end.
    """
    folders = [path.resolve().parts for path in paths]
    short = ["/".join(path[-parts:]) for path in folders]
    if len(set(short)) == len(short):
        return short
    while all(len(path) > 1 for path in folders) and len({path[0] for path in folders}) == 1:
        folders = [path[1:] for path in folders]
    while all(len(path) > 1 for path in folders) and len({path[-1] for path in folders}) == 1:
        folders = [path[:-1] for path in folders]
    return ["/".join(path) for path in folders]


def _refuse_twice(paths: Sequence[Path]) -> None:
    resolved = [path.resolve() for path in paths]
    for path, place in zip(paths, resolved, strict=True):
        if resolved.count(place) > 1:
            raise UserError(f"{path} is given twice")


def _existing(path: Path) -> dict:
    if not path.is_file():
        raise UserError(f"{path.parent} has no {path.name}")
    return read_json(path)


def _check_numbers(folder: Path, rows: Sequence[dict]) -> None:
    for row in rows:
        for name, value in row.items():
            if value is not None and not isinstance(value, int | float):
                where = f"run folder {folder}, {metrics.FILE_NAME}, step {row['step']}"
                raise UserError(f"{where}: {name} is {value!r}, expected a number or null")
