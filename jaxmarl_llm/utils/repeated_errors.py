"""Suppress libraries' messages about errors that they also raise: each error is printed only once."""

import functools
import logging
import pathlib
import sys


def leave_out() -> None:
    """Leave out what Orbax's and TensorStore's threads print when a checkpoint cannot be written."""
    logging.getLogger("absl").addFilter(_is_not_raised_too)
    if getattr(sys.unraisablehook, "func", None) is not _print_unless_late:
        sys.unraisablehook = functools.partial(_print_unless_late, sys.unraisablehook)


def _is_not_raised_too(record: logging.LogRecord) -> bool:
    """False for what Orbax logs with a traceback."""
    return not (record.exc_info and "orbax" in pathlib.Path(record.pathname).parts)


def _print_unless_late(others, unraisable) -> None:
    """Print an error that cannot be caught, unless it is from a write that ended after the first failed one.

    TensorStore's threads report to an event loop, which the first error has closed.
    """
    error = unraisable.exc_value
    late = isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
    if not (late and unraisable.object is None):
        others(unraisable)
