"""The attacks that `probe` makes. The text of this file runs as a candidate; importing it does nothing.

Each attack returns if it succeeded and raises an error if it was refused. All are harmless if they succeed:
signals have number 0, created things are removed, settings are set to their present value, and connections
carry no data.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import socket
import struct
import threading

# Defaults; `probe` appends lines that set them.
TRAINER = 0  # process id of the trainer, or of another process that probes
PROJECT_FILE = ""  # a file of this project
ENVIRONMENT = ()  # names of the trainer's environment variables that a candidate must not have
INNER_HOSTNAME = ""  # the host name inside namespaces
CONNECT_SECONDS = 0.2  # to wait for an answer

library = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments, reached=None):
    """Call a function of the C library; the error `reached` shows that permission was given."""
    words = (ctypes.c_long(word) if isinstance(word, int) else word for word in arguments)
    result = getattr(library, name)(*words)
    if result == -1 and ctypes.get_errno() != reached:
        raise OSError(ctypes.get_errno(), name)
    return result


def system_call(on_x86_64, on_aarch64, *arguments):
    """A system call by its number."""
    numbers = {"x86_64": on_x86_64, "aarch64": on_aarch64}
    return call("syscall", numbers.get(os.uname().machine, -1), *arguments)


def scratch(folder):
    """Path of a new empty file."""
    path = f"{folder}/probe-{os.urandom(8).hex()}"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    return path


def write(folder):
    """Make a file, and remove it."""
    os.unlink(scratch(folder))


def link(make, source):
    """Make a link in /tmp, and remove it."""
    target = f"/tmp/probe-{os.urandom(8).hex()}"
    make(source, target)
    os.unlink(target)


def hard_link():
    """Link to a file of one's own."""
    path = scratch("/tmp")
    try:
        link(os.link, path)
    finally:
        os.unlink(path)


def change_mode():
    """Give /dev/null the mode that it has."""
    os.chmod(os.devnull, os.stat(os.devnull).st_mode & 0o7777)


def connect(host, port):
    """Connect by TCP, or be refused by the other host and not by this machine's kernel."""
    with socket.socket() as sock:
        sock.settimeout(CONNECT_SECONDS)
        try:
            sock.connect((host, port))
        except (ConnectionRefusedError, TimeoutError):
            pass  # a host answered, or a packet is under way: there is a network


def listen(family, address):
    """Wait for connections, and stop at once."""
    with socket.socket(family) as sock:
        sock.bind(address)
        sock.listen()


def fork():
    """Start a copy of this process that ends at once."""
    if os.fork() == 0:
        os._exit(0)
    os.wait()


def spawn():
    """Start a shell with nothing to do."""
    os.posix_spawn("/bin/sh", ["sh", "-c", ""], {})
    os.wait()


def thread():
    """Start a thread with nothing to do."""
    started = threading.Thread(target=int)
    started.start()
    started.join()


def trace_parent():
    """Stop the parent as a debugger does, and let it go on."""
    parent = os.getppid()
    call("ptrace", 0x4206, parent, 0, 0)  # PTRACE_SEIZE
    call("ptrace", 0x4207, parent, 0, 0)  # PTRACE_INTERRUPT
    os.waitpid(parent, 0x40000000)  # __WALL
    call("ptrace", 17, parent, 0, 0)  # PTRACE_DETACH


def parents_memory(name, address, size, reached=None):
    """Read or write memory of the parent; see `call` for ``reached``."""
    here, there = ctypes.create_string_buffer(size), struct.pack("@NN", address, size)
    local = struct.pack("@NN", ctypes.addressof(here), size)
    call(name, os.getppid(), local, 1, there, 1, 0, reached=reached)


def shared_memory():
    """Make a segment of System V shared memory, and remove it."""
    made = call("shmget", 0, 4096, 0o1600)  # IPC_PRIVATE, IPC_CREAT
    call("shmctl", made, 0, None)  # IPC_RMID


def message_queue():
    """Make a System V message queue, and remove it."""
    made = call("msgget", 0, 0o1600)
    call("msgctl", made, 0, None)


def bpf():
    """Make a map for programs in the kernel."""
    attributes = struct.pack("4I", 2, 4, 4, 1) + bytes(112)  # an array map with one entry
    os.close(system_call(321, 280, 0, attributes, 128))


def perf():
    """Make a counter of the kernel's performance events."""
    attributes = bytearray(128)
    struct.pack_into("2I", attributes, 0, 1, 128)  # a software event
    struct.pack_into("Q", attributes, 40, 0x61)  # disabled, without kernel and hypervisor
    os.close(system_call(298, 241, bytes(attributes), 0, -1, -1, 0))


def x32():
    """Make a system call by its x32 number, which a filter for x86_64 may not cover."""
    if os.uname().machine != "x86_64":
        raise OSError(errno.ENOSYS, "x32 is a part of x86_64")
    call("syscall", 0x40000000 | 39)  # getpid


def priority():
    """Set the priority to its present value."""
    os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0))


def limit():
    """Set a resource limit to its present value."""
    resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))


def descriptors():
    """Anything open beyond /dev/null at 0 to 2 and the channel at 3."""
    null = os.stat(os.devnull).st_rdev
    for fd in (*range(3), *range(4, 1024)):
        try:
            if os.fstat(fd).st_rdev != null or fd > 3:
                return
        except OSError:
            pass
    raise OSError(errno.EBADF, "no other descriptor")


def environment():
    """Find variables of the trainer's environment."""
    if not set(ENVIRONMENT) & set(os.environ):
        raise OSError(errno.ENOENT, "a cleared environment")


def host_name():
    """Find the machine's name."""
    if os.uname().nodename == INNER_HOSTNAME:
        raise OSError(errno.ENOENT, "the name inside")


ATTACKS = {  # what a program can do where the attack succeeds
    # Files
    "read /etc/passwd": lambda: open("/etc/passwd").close(),
    "read the project's files": lambda: open(PROJECT_FILE).close(),
    "open the project's files for writing": lambda: os.close(os.open(PROJECT_FILE, os.O_WRONLY)),
    "list /": lambda: os.listdir("/"),
    "list /tmp": lambda: os.listdir("/tmp"),
    "write to /tmp": lambda: write("/tmp"),
    "write to /dev/shm": lambda: write("/dev/shm"),
    "write to its folder": lambda: write("."),
    "make a symbolic link": lambda: link(os.symlink, "/etc/passwd"),
    "make a hard link": hard_link,
    "change a file's mode": change_mode,
    "change its root": lambda: os.chroot("/"),
    "mount": lambda: call("mount", b"none", b"/tmp", b"probe", 0, None, reached=errno.ENODEV),
    "read its environment in /proc": lambda: open("/proc/self/environ").close(),
    "read the trainer's command line": lambda: open(f"/proc/{TRAINER}/cmdline").close(),
    "read the trainer's environment": lambda: open(f"/proc/{TRAINER}/environ").close(),
    "list the trainer's descriptors": lambda: os.listdir(f"/proc/{TRAINER}/fd"),
    "inherit the trainer's environment": environment,
    "find a descriptor that is not its own": descriptors,
    # Network
    "open a TCP socket": lambda: socket.socket().close(),
    "open a UDP socket": lambda: socket.socket(type=socket.SOCK_DGRAM).close(),
    "open a unix socket": lambda: socket.socket(socket.AF_UNIX).close(),
    "open a netlink socket": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
    "connect to this machine": lambda: connect("127.0.0.1", 9),
    "connect to the cloud's metadata": lambda: connect("169.254.169.254", 80),
    "listen on loopback": lambda: listen(socket.AF_INET, ("127.0.0.1", 0)),
    "listen on an abstract socket": lambda: listen(socket.AF_UNIX, "\0probe-" + os.urandom(8).hex()),
    # Processes
    "fork": fork,
    "start a thread": thread,
    "spawn a program": spawn,
    "execute a program": lambda: os.execv("/bin/sh", ["sh", "-c", ""]),
    "execute its own interpreter": lambda: os.execv("/proc/self/exe", ["python", "-c", ""]),
    "signal its parent": lambda: os.kill(os.getppid(), 0),
    "signal the trainer": lambda: os.kill(TRAINER, 0),
    "signal the trainer's group": lambda: os.killpg(os.getpgid(TRAINER), 0),
    "signal every process": lambda: os.kill(-1, 0),
    "signal through the kernel": lambda: fcntl.fcntl(3, fcntl.F_SETOWN, 0),
    "hold its parent by a descriptor": lambda: os.close(os.pidfd_open(os.getppid())),
    "trace its parent": trace_parent,
    "read its parent's memory": lambda: parents_memory("process_vm_readv", id(None), 8),
    # Nothing is mapped there: this error comes after the permission check.
    "write to its parent's memory": lambda: parents_memory("process_vm_writev", 8, 1, errno.EFAULT),
    "change its priority": priority,
    "choose its CPUs": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
    "change a resource limit": limit,
    # The kernel's other doors
    "make a user namespace": lambda: call("unshare", 0x10000000),
    "make a file in memory": lambda: os.close(os.memfd_create("probe")),
    "share memory": shared_memory,
    "make a message queue": message_queue,
    "make an io_uring": lambda: os.close(system_call(425, 425, 1, bytes(120))),
    "add a key": lambda: system_call(248, 217, b"user", b"probe", b"x", 1, -2),
    "use a keyring": lambda: system_call(250, 219, 0, -3, 0),
    "use bpf": bpf,
    "use perf events": perf,
    "use userfaultfd": lambda: os.close(system_call(323, 282, 1)),
    "make x32 system calls": x32,
    # What only namespaces hide
    "learn the host's name": host_name,
    "learn whether a file exists": lambda: os.stat("/etc/passwd"),
    "learn whether a process exists": lambda: os.stat(f"/proc/{TRAINER}"),
}
NEEDS_LEVEL_3 = ("learn the host's name", "learn whether a file exists", "learn whether a process exists")


def attempt(name):
    """The outcome of an attack: "refused" or "done"."""
    try:
        ATTACKS[name]()
    except (OSError, RuntimeError, ValueError, AttributeError):  # the last: no such call on this system
        return "refused"
    return "done"
