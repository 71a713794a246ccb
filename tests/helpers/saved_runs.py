"""Folders that each version has written, in tests/data/saved_runs/format_<number>, and what writes this one's.

Format 0 is of commit 05a9594, the last one before files had a number. Whoever raises `formats.VERSION` runs
  PYTHONPATH=.:tests/helpers python -m saved_runs
before that change, and commits the archive: it holds a run of configs/coding.py:smoke and its evaluation.
"""

import pathlib
import subprocess
import sys
import tarfile
import tempfile

from repository import ROOT

from jaxmarl_llm.utils import formats

DATA = ROOT / "tests" / "data" / "saved_runs"
LEFT_OUT = ("plots", "tensorboard", "report.html", "in_use.json")


def names(number: int) -> list[str]:
    """What there is of a format."""
    return sorted(path.name.removesuffix(".tar.xz") for path in (DATA / f"format_{number}").glob("*.tar.xz"))


def unpacked(number: int, name: str, folder: pathlib.Path) -> pathlib.Path:
    """A copy of a saved folder in ``folder``; its path."""
    with tarfile.open(DATA / f"format_{number}" / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def write() -> pathlib.Path:
    """Make the run of this version and pack it, without paths of this machine."""
    target = DATA / f"format_{formats.VERSION}" / "coding.tar.xz"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        run = pathlib.Path(made) / "coding"
        for command in (
            ["train", "--config=configs/coding.py:smoke", f"--workdir={run}", "--config.log.report=False"],
            ["evaluate", f"--workdir={run}", "--samples=2"],
        ):
            subprocess.run([sys.executable, "-m", f"experiments.{command[0]}", *command[1:]], cwd=ROOT, check=True)
        for path in sorted(run.rglob("*")):
            text = path.read_bytes() if path.is_file() else b""
            if made.encode() in text and b"\0" not in text:
                path.write_bytes(text.replace(made.encode(), b"runs"))

        def entry(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
            parts = pathlib.PurePath(info.name).parts
            if set(parts) & set(LEFT_OUT) or parts[1:3] == ("checkpoints", "1"):
                return None
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            return info

        with tarfile.open(target, "w:xz") as archive:
            archive.add(run, "coding", filter=entry)
    return target


if __name__ == "__main__":
    print(write())
