"""Only one process works in a folder at a time: a lock that names its holder and ends with its process."""

import contextlib
import fcntl
import json
import logging
import os
import pathlib
import socket
import time
from collections.abc import Iterator

from jaxmarl_llm.utils.errors import StorageError, UserError

FILE = "in_use.json"  # host, pid and start of the process that works in the folder, while it does


@contextlib.contextmanager
def held(folder, way_out: str = "wait for it, stop it, or take another --workdir") -> Iterator[None]:
    """Hold a folder, which is created if needed, until the block ends or the process dies in any way.

    The kernel holds the lock (flock), so a killed process leaves no lock; the file only names the holder. If
    a file system has no locks, a warning is logged and the folder is not locked.

    Raises:
      UserError: naming the holder and ``way_out``, if another process, or this one, holds the folder.
    """
    path = pathlib.Path(folder) / FILE
    with contextlib.ExitStack() as stack:
        while True:
            file = stack.enter_context(_opened(path))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{folder} is in use by {_holder(path)}; {way_out}") from None
            except OSError as error:
                logging.warning(
                    "%s cannot be locked (%s): let one process at a time work there", folder, error
                )
            if _is_at(file, path):  # else the last holder removed it after it was opened
                break
        _write(file, _about_this_process())
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # a disk that has become read-only
                path.unlink()  # before the lock ends with the file


def _opened(path: pathlib.Path):
    """The file, made if needed, open for reading and writing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "a+", encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"the folder {path.parent} cannot be written to: {reason}") from error


def _is_at(file, path: pathlib.Path) -> bool:
    """Whether an open file is the one that has this path now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _about_this_process() -> str:
    started = time.strftime("%Y-%m-%d %H:%M:%S")
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": started}) + "\n"


def _write(file, text: str) -> None:
    """Replace the file's content; a full disk does not prevent the lock."""
    with contextlib.suppress(OSError):
        file.seek(0)
        file.truncate()
        file.write(text)
        file.flush()


def _holder(path: pathlib.Path) -> str:
    """The process that the file names, as text; "another one" if it names none (yet)."""
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
