"""Memory of lessons across problems: the bank of a whole run, saved with the run."""

import dataclasses
from collections.abc import Sequence

from jaxmarl_llm import memory
from jaxmarl_llm.protocols.lessons.bank import Entry
from jaxmarl_llm.protocols.lessons.history import BankBuilder

NAME = "lessons"


class LessonMemory(memory.Store[Entry]):
    """The lessons of a run so far, from the oldest to the newest.

    Args:
      limit: number of newest lessons to keep; 0: all.
      step, factor: see `lessons.bank.adjusted`.
      entries: initial lessons, such as those of another run (`saved`).
      task: kind of task; lessons of another kind are refused. Empty: any.
    """

    def __init__(
        self, limit: int = 0, *, step: float = 0.1, factor: str = "released", entries: Sequence[Entry] = (),
        task: str = "",
    ):  # fmt: skip
        self._step, self._factor = step, factor
        super().__init__(Entry, NAME, limit, entries, task)

    def add(self, forest) -> None:
        """Add the lessons of a forest, with factors from the programs that were written under them."""
        # Relevance belongs to a problem, so it is computed again for every later one.
        # Pooled: chains may have been shown each other's lessons; where they were not, this changes nothing.
        banks = BankBuilder(str, None, pooled=True, step=self._step, factor=self._factor).banks(forest)
        new = sorted((entry for bank in banks.values() for entry in bank), key=lambda entry: entry.id)
        # The lessons that their authors were shown have other ids from now on.
        self.extend([dataclasses.replace(entry, shown=(), task=self._task) for entry in new])


def saved(folder, step: int) -> list[Entry]:
    """The lessons that a `LessonMemory` kept in ``folder`` after ``step`` iterations, see `memory.saved`."""
    return memory.saved(folder, step, Entry, NAME)
