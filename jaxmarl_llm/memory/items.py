"""Items of a memory: a text, its search keys, its value and its provenance."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

from jaxmarl_llm.utils.errors import UserError


class Kept(Protocol):
    """What a memory requires of its items, which are frozen dataclasses; the basic one is `Item`."""

    @property
    def id(self) -> int:
        """Its number in the memory: -1, -2, .. from the oldest (`numbered`)."""

    @property
    def text(self) -> str:
        """The text that is shown."""

    @property
    def value(self) -> float:
        """How useful it is; higher is better."""

    @property
    def score(self) -> float:
        """The measured score of its subject, such as a program."""

    @property
    def uses(self) -> int:
        """How often its use has been counted."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where it comes from: JSON values by name, such as "task", "problem", "agent"."""

    def key(self, name: str) -> str:
        """The text of one of its keys; its own text for the empty name."""

    @classmethod
    def from_row(cls, row: dict) -> Self:
        """The item of a row of a file that `dataclasses.asdict` produced."""


T = TypeVar("T", bound=Kept)


@dataclasses.dataclass(frozen=True)
class Item:
    """A text of a memory.

    Attributes:
      text: the text that is shown.
      keys: search texts by name; `key` adds the text itself under the empty name.
      value: how useful it is. score: the measured score of its subject. Both in the task's own units.
      uses: how often it was shown, if this is counted (`Store.count_uses`).
      provenance: where it comes from, JSON values: at least "task", the kind of task (`check_task`).
      id: its number in a memory, negative; 0 outside a memory.
    """

    text: str
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    value: float = 0.0
    score: float = 0.0
    uses: int = 0
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    id: int = 0

    def key(self, name: str) -> str:
        """The text of one of its keys; its own text for the empty name.

        Raises:
          UserError: if the key does not exist.
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
    """The ``number`` items with the greatest ``by``, greatest first; with equal values, older ones first.

    ``least``: items below it are left out.
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
