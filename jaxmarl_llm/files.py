"""Writing files so that a reader, or a run that is resumed, never finds half of one."""

import os
from pathlib import Path


def atomic_write_text(path: str | os.PathLike, text: str) -> Path:
    """Replaces `path` with `text` (UTF-8) in one step and creates its folder if needed.

    The text goes to a temporary file in the same folder, to the disk, then over the old file. Whatever goes
    wrong before that (full disk, read-only folder, kill) leaves the old file as it was; what can be reported
    is raised as OSError.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path
