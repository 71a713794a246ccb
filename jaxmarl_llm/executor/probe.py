"""Whether isolation holds on this machine: one candidate of each kind of attack, tried for real.

The attacks are harmless where they succeed. Each is a call of the entry point of an ordinary program, made
from its tests, so that what is probed is what programs will meet.
"""

from __future__ import annotations

from .process import WorkerDied
from .types import ExecutorError, Limits, Program
from .worker import Worker

SOURCE = """
import ctypes, os, resource, socket, threading

library = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    if getattr(library, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)

def fork():
    if os.fork() == 0:
        os._exit(0)
    os.wait()

def thread():
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()

def write(folder):
    path = f"{folder}/probe-{os.urandom(8).hex()}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.unlink(path)

ATTACKS = {
    "read /etc/passwd": lambda: open("/etc/passwd").close(),
    "list /": lambda: os.listdir("/"),
    "read its environment in /proc": lambda: open("/proc/self/environ").close(),
    "write to /tmp": lambda: write("/tmp"),
    "write to /dev/shm": lambda: write("/dev/shm"),
    "open a TCP socket": lambda: socket.socket().close(),
    "open a UDP socket": lambda: socket.socket(type=socket.SOCK_DGRAM).close(),
    "open a unix socket": lambda: socket.socket(socket.AF_UNIX).close(),
    "fork": fork,
    "start a thread": thread,
    "see its parent's process": lambda: os.kill(os.getppid(), 0),
    "be traced": lambda: call("ptrace", 0, 0, None, None),
    "make a user namespace": lambda: call("unshare", 0x10000000),
    "mount": lambda: call("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None),
    "make a file in memory": lambda: os.close(os.memfd_create("probe")),
    "change a resource limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20)),
    "execute a program": lambda: os.execv("/bin/sh", ["sh", "-c", ""]),
}

def attempt(name):
    try:
        ATTACKS[name]()
    except (OSError, RuntimeError, ValueError):
        return "refused"
    return "done"
"""
ATTACKS = tuple(line.split('"')[1] for line in SOURCE.splitlines() if line.startswith('    "'))


def holes(level: int) -> tuple[str, ...]:
    """The attacks that succeed at a level, and what went wrong where it could not be attacked."""
    tests = ["def check(candidate):", *(f"    assert candidate({name!r}) == 'refused'" for name in ATTACKS)]
    program = Program({"probe": SOURCE}, "attempt", "\n".join(tests))
    try:
        worker = Worker(Limits(cpu_seconds=10), level)
    except WorkerDied as error:
        return (f"(no process: {error})",)
    try:
        report = worker.run(program)
    except ExecutorError as error:
        return (f"(no process: {error})",)
    finally:
        worker.close()
    if report.verdict == "pass":
        return ()
    # A text that names no attack says that the process did not survive them.
    return tuple(next((name for name in ATTACKS if repr(name) in text), text) for text in report.failures)
