"""C++ sources through the system's g++: a candidate's text and a signature become a shared library.

The compiler reads hostile text, which can name files (`#include`, `.incbin`) and ask for any amount of
work. It runs in a process of its own, in one process group that is killed as a whole, with limits on CPU
time, memory, file size and wall time, a cleaned environment and a private folder. At levels 2 and 3 Landlock
allows it to read only the compiler's own programs, headers and libraries, and to write only its private
folder; a seccomp filter allows programs, pipes and files, but no sockets, signals, ptrace or namespaces. It
can still test whether another file exists. At level 1 there are only the limits: the text can read what
the user can.

The headers of signatures' types are included before the text: cstddef, cstdint, string, utility, vector.
Flags: -O2 (or -O3), -std=c++17 (or c++20), no fused multiply-add, libstdc++ and libgcc linked statically, so
that a confined process can load the library with the C library alone.
"""

from __future__ import annotations

import base64
import dataclasses
import os
import re
import threading

from ..errors import InputError
from ..process import Process, WorkerDied, wait
from . import glue, tools
from .signature import parse
from .tools import NoCompiler

STANDARDS, OPTIMIZATIONS = ("c++17", "c++20"), (2, 3)
MAX_SOURCE = 1 << 20  # bytes
MAX_MESSAGES = 4000  # characters
CACHE_SIZE = 256  # libraries (about 0.6 MB each), glue and errors
_GRACE = 60.0  # seconds beyond the wall limit after which our own process counts as stuck
_COMPILE = ("-c", "-pipe", "-fPIC", "-ffp-contract=off", "-frandom-seed=0", "-fmax-errors=10", "-w")
_LINK = (
    "-shared",
    "-s",
    "-static-libstdc++",
    "-static-libgcc",
    "-Wl,-z,defs,-z,now",
    "-Wl,--exclude-libs,ALL",
)
_TRIAL = ("double square(double x) { return x * x; }", "double square(double x)")


class CompileError(Exception):
    """The candidate does not compile. The text is the compiler's messages, capped.

    limit: a limit on time ended it, so that another try may end otherwise.
    """

    def __init__(self, text: str, limit: bool = False):
        super().__init__(text)
        self.limit = limit


@dataclasses.dataclass(frozen=True)
class CompileLimits:
    """What one compilation may use.

    cpu_seconds: CPU time (s) of each process of the compiler. wall_seconds: elapsed time (s) of all of it.
    memory_mb: address space (MiB) of each process. file_mb: size (MiB) of each file, the library among them.
    """

    cpu_seconds: float = 20.0
    wall_seconds: float = 300.0
    memory_mb: int = 2048
    file_mb: int = 32


_DEFAULT_LIMITS = CompileLimits()


class Compiler:
    """Builds libraries at one isolation level and keeps the last ones. Safe to use from several threads.

    NoCompiler at once where there is no compiler or where it does not work under that level's confinement.
    """

    def __init__(
        self,
        level: int,
        limits: CompileLimits = _DEFAULT_LIMITS,
        standard: str = "c++17",
        optimization: int = 2,
    ):
        for name, value, allowed in (
            ("level", level, (1, 2, 3)),
            ("standard", standard, STANDARDS),
            ("optimization", optimization, OPTIMIZATIONS),
        ):
            if value not in allowed:
                raise InputError(f"{name} is {value!r}; allowed: {', '.join(map(str, allowed))}")
        self.level, self.limits = level, limits
        self._flags = (f"-std={standard}", f"-O{optimization}", *_COMPILE)
        self._tools = tools.find()
        self._cache: dict[object, bytes | CompileError] = {}
        self._lock = threading.Lock()
        self._try_out()

    def build(self, text: str, signature_text: str) -> bytes:
        """The library that defines the function; ValueError for the signature, CompileError for the text.

        WorkerDied where our own part fails, which says nothing about the text.
        """
        signature = parse(signature_text)
        source = _encode(text)
        return self._cached((signature, text), lambda: self._link(source, signature))

    def _cached(self, key, make) -> bytes:
        """The result or CompileError of `make` for the key: the remembered one, or a new one."""
        with self._lock:
            known = self._cache.get(key)
        if known is None:
            try:
                known = make()
            except CompileError as error:
                if error.limit:
                    raise
                known = error
            with self._lock:
                self._cache[key] = known
                if len(self._cache) > CACHE_SIZE:
                    self._cache.pop(next(iter(self._cache)))
        if isinstance(known, CompileError):
            raise CompileError(str(known))
        return known

    def _link(self, source: bytes, signature) -> bytes:
        files = {
            "before.h": glue.before(signature).encode(),
            "candidate.cpp": source + glue.after(signature).encode(),
            "glue.o": self._cached(signature, lambda: self._glue(signature)),
        }
        commands = [
            [self._tools.path, *self._flags, "-include", "before.h", "candidate.cpp", "-o", "candidate.o"],
            [self._tools.path, *_LINK, "candidate.o", "glue.o", "-o", "library.so"],
        ]
        try:
            return self._run(files, commands, "library.so")
        except CompileError as error:
            text = str(error)
            if re.search(rf"^{glue.ENTRY_FILE}:\d", text, re.MULTILINE):
                text = f"no function fits {signature}\n{text}"[:MAX_MESSAGES]
            raise CompileError(text, error.limit) from None

    def _glue(self, signature) -> bytes:
        files = {"glue.cpp": glue.glue(signature).encode()}
        try:
            return self._run(files, [[self._tools.path, *self._flags, "glue.cpp", "-o", "glue.o"]], "glue.o")
        except CompileError as error:  # our own text: not the candidate's fault
            raise WorkerDied(f"the glue for {signature} does not compile: {error}") from None

    def _run(self, files, commands, output) -> bytes:
        """Run commands on files in a confined process; the content of the file `output`."""
        limits = self.limits
        process = Process("cpp.process")
        try:
            process.send(
                {
                    "files": {name: base64.b64encode(data).decode() for name, data in files.items()},
                    "commands": commands,
                    "output": output,
                    "environment": tools.environment(self._tools.path),
                    "cpu": limits.cpu_seconds,
                    "wall": limits.wall_seconds,
                    "memory_mb": limits.memory_mb,
                    "file_mb": limits.file_mb,
                    "confined": self.level > 1,
                    "readable": self._tools.readable,
                    "executable": self._tools.executable,
                }
            )
            if not wait([process], limits.wall_seconds + _GRACE):
                raise WorkerDied("the compiler's process is stuck")
            answer = process.receive()
        finally:
            process.control.close()  # at this it ends, and with it what it started
            process.popen.wait()
            process.stop()
        return self._result(answer)

    def _result(self, answer) -> bytes:
        if "setup" in answer:
            raise WorkerDied(f"the compiler could not be started: {answer['setup']}")
        if answer["output"] is not None:
            return base64.b64decode(answer["output"])
        text = answer["messages"].strip()[:MAX_MESSAGES]
        if answer["timeout"]:
            raise CompileError(f"compiler stopped after {self.limits.wall_seconds} s\n{text}", limit=True)
        if not text:
            text = f"the compiler ended with status {answer['status']} and without a library"
        # g++'s words for SIGXCPU. A text that has them in its own messages is compiled again next time.
        raise CompileError(text, limit="CPU time limit exceeded" in text)

    def _try_out(self) -> None:
        """Build a function, and, where that must not work, one that includes a file of ours."""
        secret = os.path.abspath(__file__)
        try:
            self.build(*_TRIAL)
            if self.level > 1:
                self.build(f'#include "{secret}"\n', _TRIAL[1])
        except CompileError as error:
            if "Permission denied" not in str(error):
                raise NoCompiler(f"{self._tools.path}: {error}") from None
        except WorkerDied as error:
            raise NoCompiler(f"{self._tools.path} at level {self.level}: {error}") from None


def _encode(text: str) -> bytes:
    """A source as bytes; CompileError where it is none."""
    try:
        source = text.encode()
    except UnicodeEncodeError:
        raise CompileError("the text is not valid Unicode") from None
    if len(source) > MAX_SOURCE:
        raise CompileError(f"the text has {len(source)} bytes; allowed: {MAX_SOURCE}")
    return source
