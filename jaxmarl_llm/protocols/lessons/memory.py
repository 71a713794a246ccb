"""Memory of lessons across problems: the bank of a whole run, saved with the run."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from jaxmarl_llm.protocols.lessons.bank import Entry, kept
from jaxmarl_llm.protocols.lessons.history import BankBuilder
from jaxmarl_llm.utils import distributed, files
from jaxmarl_llm.utils.errors import UserError

_FOLDER, _BEST = "lessons", "best"


class LessonMemory(Sequence):
    """The lessons of a run so far, numbered -1, -2, .. from the oldest (`lessons.bank.kept`).

    It can be the ``models`` of a `systems.types.System`: it holds no model, so ``states`` is empty.

    Args:
      limit: number of the newest lessons to keep; 0: all.
      step, factor: see `lessons.bank.adjusted`.
      entries: lessons to begin with, such as those of another run (`saved`).
    """

    states: Mapping = {}

    def __init__(
        self, limit: int = 0, *, step: float = 0.1, factor: str = "released", entries: Sequence[Entry] = ()
    ):
        self._limit, self._step, self._factor = limit, step, factor
        self._entries = kept(entries, limit)
        self._folder: pathlib.Path | None = None
        self._most = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, place):
        return self._entries[place]

    def add(self, forest) -> None:
        """Add the lessons of a forest, with factors from the programs that were written under them."""
        # Relevance belongs to a problem, so it is computed again for every later one.
        # Pooled: chains may have been shown each other's lessons; where they were not, this changes nothing.
        banks = BankBuilder(str, None, pooled=True, step=self._step, factor=self._factor).banks(forest)
        new = sorted((entry for bank in banks.values() for entry in bank), key=lambda entry: entry.id)
        self._entries = kept([*self._entries, *new], self._limit)

    @contextlib.contextmanager
    def kept_in(self, folder, keep: int) -> Iterator[None]:
        """Save to ``folder``/lessons, a file for each save, the last ``keep`` of them."""
        self._folder, self._most = pathlib.Path(folder) / _FOLDER, keep
        yield

    def save(self, step: int) -> None:
        """Write all lessons as they are after ``step`` iterations, a JSON line each."""
        self._write(self._folder, step, self._most)

    def save_best(self, step: int) -> None:
        """Write the lessons for the agents' best state so far.

        The last two files are kept, as the agents' state is written later.
        """
        self._write(self._folder / _BEST, step, 2)

    def restore(self, step: int) -> None:
        """Restore the lessons saved after ``step`` iterations. ValueError if there is no such file."""
        self._entries = _read(self._folder / _name(step), step)

    def _write(self, folder: pathlib.Path, step: int, most: int) -> None:
        if not distributed.is_main():
            return
        lines = [json.dumps(dataclasses.asdict(entry)) + "\n" for entry in self._entries]
        new = files.atomic_write_text(folder / _name(step), "".join(lines))
        # By age: a run resumed from before its best may find its next best at an earlier step.
        others = sorted((p.stat().st_mtime_ns, p) for p in folder.glob("*.jsonl") if p != new)
        for _, old in others[: max(len(others) + 1 - most, 0)]:
            old.unlink()


def saved(folder, step: int) -> list[Entry]:
    """The lessons that a `LessonMemory` kept in ``folder`` after ``step`` iterations; [] if none was kept there.

    Raises:
      ValueError: if one was kept there, but not after ``step`` iterations.
    """
    lessons_folder = pathlib.Path(folder) / _FOLDER
    if not lessons_folder.is_dir():
        return []
    best = lessons_folder / _BEST / _name(step)
    return _read(best if best.is_file() else lessons_folder / _name(step), step)


def _name(step: int) -> str:
    return f"{step:06d}.jsonl"


def _read(path: pathlib.Path, step: int) -> list[Entry]:
    if not path.is_file():
        raise UserError(f"{path} is missing: the lessons of the run after {step} iterations")
    return files.read_json_lines(path, lambda row: Entry(**row | {"shown": tuple(row["shown"])}))
