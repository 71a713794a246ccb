"""Results of checks: a name, a status and one sentence each. A check that raises has failed."""

import functools
from collections.abc import Callable
from typing import NamedTuple

STATUSES = ("ok", "warn", "fail", "skipped")


class Result(NamedTuple):
    """Result of a check: ``status`` is one of `STATUSES`, ``sentence`` has the number and what to change.

    A longer text, such as a prompt, follows the sentence after a line break.
    """

    name: str
    status: str
    sentence: str


def check(name: str) -> Callable:
    """Decorator: a function that returns (status, sentence) becomes a check called ``name``.

    It returns a `Result`, also where the function raises: ``fail``, with the error's first line.
    """

    def decorate(function: Callable[..., tuple[str, str]]) -> Callable[..., Result]:
        @functools.wraps(function)
        def checked(*args, **options) -> Result:
            try:
                return Result(name, *function(*args, **options))
            except Exception as error:
                return failed(name, error)

        checked.title = name
        return checked

    return decorate


def failed(name: str, error: BaseException) -> Result:
    """The result of a check that raised an error."""
    return Result(name, "fail", _sentence(error))


def _sentence(error: BaseException) -> str:
    """An error as one line."""
    first = next(iter(str(error).strip().splitlines()), "")
    return first if isinstance(error, ValueError) and first else f"{type(error).__name__}: {first}"


def by_agent(values: dict[str, object]) -> str:
    """Values by agent as a text like ``aux 1, main 2``."""
    return ", ".join(f"{agent} {value}" for agent, value in values.items())
