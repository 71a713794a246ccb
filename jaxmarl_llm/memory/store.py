"""A memory that grows during a run, and is saved and resumed with it."""

import collections
import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic

from jaxmarl_llm.memory.items import Item, T, check_task, numbered
from jaxmarl_llm.utils import distributed, files
from jaxmarl_llm.utils.errors import UserError

_BEST = "best"


class Store(Sequence[T], Generic[T]):
    """Items from the oldest to the newest, numbered -1, -2, .. in this order.

    It can be the ``models`` of a `systems.types.System`: it contains no model, so ``states`` is empty.

    Args:
      kind: class of the items, a frozen dataclass that satisfies `memory.Kept`; the basic one is `Item`.
      name: name in files and errors, such as "lessons".
      limit: number of the newest items to keep; 0: all.
      items: initial items, such as those of another run (`saved`).
      task: kind of task; items of another kind are refused. Empty: any.

    Raises:
      UserError: for items of another task.
    """

    states: Mapping = {}

    def __init__(
        self, kind: type[T] = Item, name: str = "memory", limit: int = 0, items: Sequence[T] = (), task: str = ""
    ):  # fmt: skip
        self._kind, self._name, self._limit, self._task = kind, name, limit, task
        self._items: list[T] = []
        self._folder: pathlib.Path | None = None
        self._most = 0
        self.extend(items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place):
        return self._items[place]

    def extend(self, items: Sequence[T]) -> None:
        """Append items; the oldest are removed if there are more than the limit.

        Raises:
          UserError: for items of another task.
        """
        if self._task:
            check_task(items, self._task, f"the given {self._name}")
        self._items = numbered([*self._items, *items], self._limit)

    def count_uses(self, ids: Iterable[int]) -> None:
        """Add one use to an item for each occurrence of its id in ``ids``."""
        times = collections.Counter(ids)
        self._items = [
            dataclasses.replace(item, uses=item.uses + times[item.id]) if item.id in times else item  # type: ignore[type-var]
            for item in self._items
        ]

    @contextlib.contextmanager
    def kept_in(self, folder, keep: int) -> Iterator[None]:
        """Save to ``folder``/<name>, one file per save; the last ``keep`` files are kept."""
        self._folder, self._most = pathlib.Path(folder) / self._name, keep
        yield

    def save(self, step: int) -> None:
        """Write all items in their state after ``step`` iterations, one JSON line each."""
        self._write(self._opened(), step, self._most)

    def save_best(self, step: int) -> None:
        """Write the items for the agents' best state so far.

        The last two files are kept, as the agents' state is written later.
        """
        self._write(self._opened() / _BEST, step, 2)

    def restore(self, step: int) -> None:
        """Restore the items saved after ``step`` iterations. ValueError if there is no such file."""
        self._items = _read(self._opened() / _file(step), step, self._kind.from_row, self._name)

    def _opened(self) -> pathlib.Path:
        if self._folder is None:
            raise ValueError(f"{self._name}: no folder to keep it in; call kept_in first")
        return self._folder

    def _write(self, folder: pathlib.Path, step: int, most: int) -> None:
        if not distributed.is_main():
            return
        lines = [json.dumps(dataclasses.asdict(item)) + "\n" for item in self._items]  # type: ignore[call-overload]
        new = files.atomic_write_text(folder / _file(step), "".join(lines))
        # By age: a run resumed from before its best may find its next best at an earlier step.
        others = sorted((p.stat().st_mtime_ns, p) for p in folder.glob("*.jsonl") if p != new)
        for _, old in others[: max(len(others) + 1 - most, 0)]:
            old.unlink()


def saved(folder, step: int, kind: type[T], name: str = "memory") -> list[T]:
    """The items that a `Store` of this name saved in ``folder`` after ``step`` iterations; [] if none did.

    Raises:
      UserError: if a store was saved there, but not after ``step`` iterations.
    """
    own = pathlib.Path(folder) / name
    if not own.is_dir():
        return []
    best = own / _BEST / _file(step)
    return _read(best if best.is_file() else own / _file(step), step, kind.from_row, name)


def _file(step: int) -> str:
    return f"{step:06d}.jsonl"


def _read(path: pathlib.Path, step: int, from_row: Callable[[dict], T], name: str) -> list[T]:
    if not path.is_file():
        raise UserError(f"{path} is missing: the {name} of the run after {step} iterations")
    return files.read_json_lines(path, from_row)
