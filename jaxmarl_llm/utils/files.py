"""Write files completely or not at all, and read text and JSON files with errors that name the file."""

import codecs
import contextlib
import errno
import io
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxmarl_llm.utils.errors import StorageError, UserError

_POINTER = b"version https://git-lfs"
# Of a disk that takes no (more) files, whatever the file.
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE}


def atomic_write_text(path: str | os.PathLike, text: str) -> Path:
    """Replace `path` with `text` (UTF-8) in one step and create its folder if needed.

    The text is written to a temporary file in the same folder, flushed to disk, then replaces the old file. A
    failure before that (full disk, read-only folder, kill) leaves the old file unchanged; if it can be
    reported, it is raised as OSError.
    """
    return atomic_write_bytes(path, text.encode("utf-8"))


def atomic_write_bytes(path: str | os.PathLike, data: bytes) -> Path:
    """`atomic_write_text` of bytes."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error counts
            temporary.unlink()
        raise
    return path


def ensure_writable(path: str | os.PathLike, advice: str) -> Path:
    """Check, before the work for it is done, that a file can be written; nothing is left behind.

    Raises:
      StorageError: naming the file, why it cannot be written, and ``advice``, the way out.
    """
    path = Path(path)
    # Of folders that are still to be made, the one in which the first of them will be.
    folder = next(place for place in path.absolute().parents if place.exists())
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}; {advice}") from error
    return path


def describe_disk_error(error: OSError) -> str:
    """A sentence about a disk that is full, read-only, broken or gone; empty for another error."""
    if error.errno not in _DISK:
        return ""
    reason = f"cannot be written: {os.strerror(error.errno)}"
    return f"{error.filename or 'a file'} {reason}; once it can, the same command goes on from what is saved"


def safe_text(text: str) -> str:
    """The text with "?" for half surrogates, which JSON and models can bring and UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def refuse_pointer(path: Path) -> None:
    """ValueError for a file that stands for a larger one in a git repository cloned without Git LFS."""
    if path.is_file():
        with path.open("rb") as stream:
            if stream.read(len(_POINTER)) == _POINTER:
                raise UserError(
                    f"{path} is a pointer of Git LFS, not the file itself; fetch it with: git lfs pull"
                )


def require_some(folder: Path, pattern: str, what: str) -> None:
    """UserError if a folder holds no file of a pattern, or is not there; ``what``: what the files hold."""
    if not any(folder.glob(pattern)):
        raise UserError(f"{folder}: its files {pattern} are missing, which hold {what}")


def read_text(path: str | os.PathLike) -> str:
    """The text of a UTF-8 file with ``\\n`` as its line ends, without the byte-order mark of Windows editors.

    Raises ValueError naming the file if it is missing, cannot be read or has another encoding.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # PowerShell's ">"
            raise UserError(f"{path}: cannot be read (its encoding is UTF-16; save it as UTF-8)")
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: cannot be read ({error}; save it as UTF-8)") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error


def read_json(path: str | os.PathLike, kind: type = dict) -> Any:
    """Read a JSON file (UTF-8) that holds one value of type ``kind``: dict, list, str, ...

    Raises ValueError naming the file if it is missing, cannot be read, is not JSON or holds another type.
    """
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path}: is empty, as a full disk or a power cut leaves files")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, kind):
        raise UserError(f"{path}: holds a JSON {type(value).__name__}, expected a {kind.__name__}")
    return value


def read_json_lines(path: str | os.PathLike, make: Callable[[dict], Any]) -> list:
    """Read a file with one JSON object per line, and return what ``make`` builds from each.

    Raises ValueError naming the file, and the line (from 1) that is not JSON, or that ``make`` cannot use:
    its KeyError, TypeError, AttributeError and ValueError are taken to be about the line.
    """
    lines = read_text(path).split("\n")  # not splitlines: texts may hold other separators, such as U+2028
    items = []
    for number, line in enumerate(lines[:-1] if not lines[-1] else lines, start=1):
        try:
            items.append(make(json.loads(line)))
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"{path}, line {number}: cannot be read ({reason})") from error
    return items
