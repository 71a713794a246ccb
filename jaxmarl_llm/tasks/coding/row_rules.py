"""The rules for rows of a task that has an executor: their tests are run before they judge answers."""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Collection, Sequence

from jaxmarl_llm.executor import Executor
from jaxmarl_llm.tasks.coding import row_checks
from jaxmarl_llm.tasks.coding.items import CodingItem, RowRules
from jaxmarl_llm.utils import user_cache
from jaxmarl_llm.utils.console import LateProgress


def of_executor(executor, modules: Collection[str] = (), bad_rows: str = "refuse") -> RowRules:
    """How to treat rows whose tests cannot judge answers, see `items.RowRules`.

    Args:
      executor: judges the answers later; if it is not an `Executor`, tests are only read, not run.
      modules: what tests may import besides the standard library.
      bad_rows: "refuse", or "drop".
    """
    check = functools.partial(_faults, executor) if isinstance(executor, Executor) else None
    return RowRules(modules, check, bad_rows == "drop")


def _faults(executor: Executor, items: Sequence[CodingItem]) -> dict[str, str]:
    """{task_id: what is wrong}, see `row_checks.faults`."""
    faults = row_checks.faults(items, executor, _memory_folder(), LateProgress("row checked"))
    executor.metrics()  # these runs do not belong to any iteration
    return faults


def _memory_folder() -> pathlib.Path | None:
    """Folder in which valid rows are remembered; None if there is none."""
    with contextlib.suppress(RuntimeError, ValueError):  # no home directory
        return user_cache.folder()
    return None
