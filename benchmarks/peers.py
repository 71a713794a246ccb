"""The systems that this package is compared with, in a separate environment and separate processes.

A `Peer` keeps its models loaded and answers one JSON line per request, so that units of work can alternate
between systems.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from jaxmarl_llm.weights import model_files

COMLRL = "comlrl-1.4.3"
# Torch alone and first, so that the second call does not install another torch.
INSTALLS = (
    ("torch==2.13.0",),
    ("comlrl==1.4.3", "transformers==5.23.0", "peft==0.21.2"),
)
ROOT = pathlib.Path(__file__).resolve().parent.parent


def default_folder() -> pathlib.Path:
    """Where the environment of the peers is kept."""
    return model_files.cache_folder() / COMLRL


def make_environment(folder: pathlib.Path) -> pathlib.Path:
    """The Python of a virtual environment with `INSTALLS`; built if missing or changed."""
    python, ready, wanted = folder / "bin" / "python", folder / "ready", json.dumps(INSTALLS)
    if not ready.is_file() or ready.read_text() != wanted:
        print(f"installing {COMLRL} and what it is compared by into {folder} (once)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        for packages in INSTALLS:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        ready.write_text(wanted)  # last: an interrupted installation starts again
    return python


def installed() -> pathlib.Path | None:
    """A Python that has CoMLRL, torch and peft: this one, or the environment's if it exists; else None."""
    if all(importlib.util.find_spec(name) for name in ("comlrl", "torch", "peft")):
        return pathlib.Path(sys.executable)
    folder = default_folder()
    return folder / "bin" / "python" if (folder / "ready").is_file() else None


class Peer:
    """A process that answers requests with its measurements: one JSON line in, one out.

    It may import from this checkout. Its standard error is kept, and shown if it ends before answering.
    """

    def __init__(self, command: Sequence[str | pathlib.Path], name: str):
        self.name = name
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip

    def ask(self, **request) -> dict:
        """The answer to a request. RuntimeError, with its last lines of error, if the process has ended."""
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            status = self._process.wait()
            self._errors.seek(0)
            last_lines = "".join(self._errors.readlines()[-30:])
            raise RuntimeError(f"{self.name} ended with status {status}; its standard error:\n{last_lines}")
        return json.loads(answer)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            try:
                stream.close()
            except BrokenPipeError:  # the process did not read the request
                pass
