"""The rules for rows of a task that has an executor: their tests are run before anybody is judged by them."""

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
    """What is done about rows whose tests judge nobody, see `items.RowRules`.

    Args:
      executor: what judges answers afterwards; tests are only read if it is no `Executor`.
      modules: what tests may import beside the standard library.
      bad_rows: "refuse", or "drop".
    """
    check = functools.partial(_faults, executor) if isinstance(executor, Executor) else None
    return RowRules(modules, check, bad_rows == "drop")


def _faults(executor: Executor, items: Sequence[CodingItem]) -> dict[str, str]:
    """{task_id: what is wrong}, see `row_checks.faults`."""
    faults = row_checks.faults(items, executor, _memory_folder(), LateProgress("row checked"))
    executor.metrics()  # what was run here belongs to no iteration
    return faults


def _memory_folder() -> pathlib.Path | None:
    """Where rows that are in order are remembered; None without a place for it."""
    with contextlib.suppress(RuntimeError, ValueError):  # nobody's home
        return user_cache.folder()
    return None
