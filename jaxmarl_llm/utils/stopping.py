"""A request to stop this process, made by `utils.signals` and checked by long work between its steps."""

import threading

_REQUESTED = threading.Event()


class StopRequested(BaseException):
    """The process is asked to stop. No `Exception`: code that handles errors lets it through."""


def request() -> None:
    """Let the next `check` raise, in any thread."""
    _REQUESTED.set()


def withdraw() -> None:
    """Let `check` pass again."""
    _REQUESTED.clear()


def check() -> None:
    """Raise `StopRequested` if the process is asked to stop; call it where work can be left without loss."""
    if _REQUESTED.is_set():
        raise StopRequested
