"""Running a candidate's source as a script, with text on its standard input and what it prints as result.

Descriptors 0 and 1 are files in memory then (`confine`), so that open(0), os.write(1, …) and sys.stdin.buffer
work as they do in a terminal's place. Each run begins and ends as that of an interpreter: builtins and streams
are as new, __main__ is a fresh module, and at the end functions of atexit run and streams are flushed.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import io
import os
import resource
import sys
import types
from collections.abc import Callable

from . import threads

SPARE = 4  # the same two files, out of the script's way
NAME = "solution.py"  # that the script sees as its own
RECURSION, MAX_RECURSION = 1000, (1 << 31) - 1  # Python's own default, and the highest that it takes
_FILES = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/fd/0": 0, "/dev/fd/1": 1}  # are not there in the sandbox


def runner(code, space: dict) -> Callable[[str], str]:
    """A function from the text of standard input to the text of standard output.

    Each call runs the code anew, in a fresh module that starts with the names in `space`. An exit with status
    0 is an ordinary end; SystemExit of another status is raised, as every other exception is.
    """
    io.open = builtins.open = _open_streams_too(builtins.open)  # pathlib uses io.open
    resource.setrlimit = _all_but_stack(resource.setrlimit)
    set_recursion_limit = sys.setrecursionlimit
    threads.run_in_place()
    new_builtins = dict(vars(builtins))

    def run(text: str = "") -> str:
        _refill(text.encode(errors="surrogateescape"))
        _restore_builtins(new_builtins)
        sys.argv = [NAME]
        sys.setrecursionlimit = _above(_depth(), set_recursion_limit)
        sys.setrecursionlimit(RECURSION)
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        vars(module).update(space, __name__="__main__", __builtins__=builtins, __file__=NAME)
        streams = [sys.stdout]
        try:
            exec(code, vars(module))
        except SystemExit as end:
            if not _is_success(end.code):
                raise
        finally:
            atexit._run_exitfuncs()
            _flush([*streams, sys.stdout])
            vars(module).clear()  # so that files of its own are closed
        return _printed()

    return run


def _is_success(status) -> bool:
    """Whether an interpreter that is left with this value ends with status 0."""
    return status is None or (isinstance(status, int) and status & 0xFF == 0)


def _restore_builtins(new: dict) -> None:
    current = vars(builtins)
    for name in current.keys() - new.keys():
        del current[name]
    current.update(new)


def _depth() -> int:
    """How many frames of Python are below the caller's."""
    frame, count = sys._getframe(1), 0
    while frame := frame.f_back:
        count += 1
    return count


def _above(depth: int, set_limit):
    """sys.setrecursionlimit that does not count the frames below the script."""

    def setrecursionlimit(limit, /):
        set_limit(min(limit + depth, MAX_RECURSION) if 0 < limit < MAX_RECURSION else limit)

    return setrecursionlimit


def _all_but_stack(set_limit):
    """resource.setrlimit that leaves the stack as it is: as large as can be here."""

    def setrlimit(kind, limits, /):
        if kind != resource.RLIMIT_STACK:
            set_limit(kind, limits)

    return setrlimit


def _open_streams_too(open_file):
    """open() for which the names of standard input and output are files."""

    def open(file, *args, **kwargs):
        path = os.fspath(file) if isinstance(file, os.PathLike) else file
        descriptor = _FILES.get(path) if isinstance(path, str) else None
        return open_file(file if descriptor is None else os.dup(descriptor), *args, **kwargs)

    return open


def _refill(data: bytes) -> None:
    """Put the input into descriptor 0, empty descriptor 1, and make sys.stdin and sys.stdout anew."""
    for fd in (0, 1):
        with contextlib.suppress(OSError):
            os.close(fd)
    for fd in (0, 1):  # anew, as open(0).read() has closed it: the lowest free number is taken
        os.dup(SPARE + fd)
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
    os.write(0, data)
    os.lseek(0, 0, os.SEEK_SET)
    streams = {"encoding": "utf-8", "errors": "surrogateescape", "newline": "\n", "closefd": False}
    sys.stdin = sys.__stdin__ = open(0, **streams)
    sys.stdout = sys.__stdout__ = open(1, "w", **streams)
    sys.stderr = sys.__stderr__


def _flush(streams) -> None:
    """As an interpreter does at its end; the first stream may have been detached or closed."""
    first, last = streams
    with contextlib.suppress(ValueError):
        first.flush()
    if last is not None and last is not first and not getattr(last, "closed", False):
        last.flush()


def _printed() -> str:
    os.lseek(1, 0, os.SEEK_SET)
    parts = []
    while part := os.read(1, 1 << 20):
        parts.append(part)
    return b"".join(parts).decode(errors="replace")
