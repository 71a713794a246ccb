"""Running a candidate's source as a script, with text on its standard input and what it prints as result.

Descriptors 0 and 1 are files in memory then (`confine`), so that open(0), os.write(1, …) and sys.stdin.buffer
work as they do in a terminal's place.
"""

from __future__ import annotations

import contextlib
import os
import sys

SPARE = 4  # the same two files, out of the script's way


def runner(code, space: dict):
    """A function from the text of standard input to the text of standard output.

    Each call runs the code anew, in a fresh module that starts with the names in `space`. Leaving with
    sys.exit() or sys.exit(0) is an ordinary end, other statuses raise.
    """

    def run(text: str = "") -> str:
        _refill(text.encode())
        try:
            exec(code, {**space, "__name__": "__main__"})
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
        sys.stdout.flush()
        return _printed()

    return run


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
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)


def _printed() -> str:
    os.lseek(1, 0, os.SEEK_SET)
    parts = []
    while part := os.read(1, 1 << 20):
        parts.append(part)
    return b"".join(parts).decode(errors="replace")
