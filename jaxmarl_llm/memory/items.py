"""What a memory keeps: a text, the keys it is searched by, what it was worth and where it comes from."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

from jaxmarl_llm.utils.errors import UserError


class Kept(Protocol):
    """What a memory needs of its items, which are frozen dataclasses; `Item` is the plain one."""

    @property
    def id(self) -> int:
        """Its number in the memory: -1, -2, .. from the oldest (`numbered`)."""

    @property
    def text(self) -> str:
        """What is shown."""

    @property
    def value(self) -> float:
        """How useful it is, the more the better."""

    @property
    def score(self) -> float:
        """The measured score of what it is about."""

    @property
    def uses(self) -> int:
        """How often its use has been counted."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where it comes from: JSON values by name, such as "task", "problem", "agent"."""

    def key(self, name: str) -> str:
        """The text of one of its keys; of the empty name its own text."""

    @classmethod
    def from_row(cls, row: dict) -> Self:
        """The item of a row of a file, which `dataclasses.asdict` made."""


T = TypeVar("T", bound=Kept)


@dataclasses.dataclass(frozen=True)
class Item:
    """A text of a memory.

    Attributes:
      text: what is shown.
      keys: texts it is searched by, by name; `key` adds the text itself under the empty name.
      value: how useful it is. score: the measured score of what it is about. Both in the task's own units.
      uses: how often it was shown, if somebody counts (`Store.count_uses`).
      provenance: where it comes from, JSON values: at least "task", the kind of task (`check_task`).
      id: its number in a memory, negative; 0 outside of one.
    """

    text: str
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    value: float = 0.0
    score: float = 0.0
    uses: int = 0
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    id: int = 0

    def key(self, name: str) -> str:
        """The text of one of its keys; of the empty name its own text.

        Raises:
          UserError: if it has no such key.
        """
        if not name:
            return self.text
        if name not in self.keys:
            raise UserError(
                f"an item of the memory has no key {name!r}; it has {', '.join(self.keys) or 'none'}"
            )
        return self.keys[name]

    @classmethod
    def from_row(cls, row: dict) -> "Item":
        """The item of a row of a file."""
        return cls(**row)


def numbered(items: Sequence[T], limit: int = 0) -> list[T]:
    """The newest ``limit`` items, 0: all, with the ids -1, -2, .. from the oldest."""
    last = list(items)[-limit:] if limit else list(items)
    return [dataclasses.replace(item, id=-1 - n) for n, item in enumerate(last)]  # type: ignore[type-var]


def greatest(
    items: Sequence[T], number: int, by: Callable[[T], float], least: float | None = None
) -> list[T]:
    """The ``number`` items of the greatest ``by``, the greatest first, of equal ones the older first.

    ``least``: leave out those below it.
    """
    eligible = [item for item in items if least is None or by(item) >= least]
    return sorted(eligible, key=lambda item: -by(item))[:number]


def check_task(items: Sequence[Kept], task: str, where: str) -> None:
    """Refuse items of another kind of task than ``task``.

    ``where`` names the memory in the error. Items without "task" in their provenance pass.

    Raises:
      UserError: naming the memory and both kinds.
    """
    for item in items:
        if (theirs := item.provenance.get("task", task)) != task:
            raise UserError(f"{where} is a memory of task {theirs!r}, which is of no use for task {task!r}")
