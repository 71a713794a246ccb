"""The system's C++ compiler: where it is, and which files it needs to read and to execute."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile

_PROGRAMS = ("cc1plus", "collect2", "as", "ld")
_LIBRARY_FILES = ("crti.o", "crtbeginS.o", "libstdc++.a", "libgcc.a", "libc.so", "libm.so")
_OPTIONAL_FILES = ("/etc/ld.so.cache",)
_SECONDS = 60  # for a question to the compiler


class NoCompiler(RuntimeError):
    """There is no compiler, or it cannot be confined here; the text says why."""


@dataclasses.dataclass(frozen=True)
class Tools:
    """A compiler: its path, and what it reads and executes besides."""

    path: str
    readable: tuple[str, ...]
    executable: tuple[str, ...]


def environment(path: str) -> dict[str, str]:
    """TMPDIR is the folder in which the compiler is started; the date is the same in every build."""
    search = os.pathsep.join(dict.fromkeys((os.path.dirname(path), "/usr/bin", "/bin")))
    return {"PATH": search, "LC_ALL": "C", "TMPDIR": ".", "SOURCE_DATE_EPOCH": "0"}


@functools.cache
def find() -> Tools:
    """The system's g++ and the files that it reports to need; NoCompiler where there is none."""
    path = shutil.which("g++")
    if not path:
        raise NoCompiler("there is no g++ on the PATH (on Debian and Ubuntu: apt install g++)")
    path = os.path.abspath(path)
    named = [_ask(path, f"-print-prog-name={name}").strip() for name in _PROGRAMS]
    search = environment(path)["PATH"]
    programs = [path, *(location for name in named if (location := shutil.which(name, path=search)))]
    libraries, linkers = _shared_libraries(programs)
    parts = [os.path.dirname(programs[1]), *_include_folders(path)]
    for name in _LIBRARY_FILES:
        location = _ask(path, f"-print-file-name={name}").strip()
        if os.path.isabs(location):
            parts.append(os.path.dirname(location))
    parts += [*libraries, *_OPTIONAL_FILES]
    readable = _existing(parts)
    private = {os.path.dirname(os.path.dirname(os.path.abspath(__file__))), os.path.expanduser("~")}
    for folder in readable:
        for held in private:
            if pathlib.Path(os.path.realpath(held)).is_relative_to(folder):
                raise NoCompiler(f"{path} needs to read {folder}, which holds {held}")
    return Tools(path, readable, _existing([*programs, *linkers]))


def _existing(paths) -> tuple[str, ...]:
    """Their real paths, each once."""
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.exists(path)))


def _ask(*command: str, **variables: str) -> str:
    """The output of a program on both streams; NoCompiler where it cannot be run."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                command,
                env=environment(command[0]) | variables,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_SECONDS,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCompiler(f"{command[0]} does not run: {error}") from None
    return done.stdout.decode(errors="surrogateescape")


def _include_folders(path: str) -> list[str]:
    """Where `#include <...>` looks."""
    text = _ask(path, "-v", "-E", "-x", "c++", os.devnull).partition("#include <...> search starts here:")[2]
    return [line.strip() for line in text.partition("End of search list.")[0].splitlines() if line.strip()]


def _shared_libraries(programs: list[str]) -> tuple[list[str], list[str]]:
    """The shared libraries of programs, and their dynamic linkers, as the dynamic linker lists them."""
    libraries, linkers = [], []
    for program in programs:
        for line in _ask(program, LD_TRACE_LOADED_OBJECTS="1").splitlines():
            name, arrow, target = line.strip().partition(" => ")
            words = (target if arrow else name).split()
            if words and os.path.isabs(words[0]):
                (libraries if arrow else linkers).append(words[0])
    return libraries, linkers
