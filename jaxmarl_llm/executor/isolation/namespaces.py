"""Linux namespaces around the zygote: no files but the standard library, no network, no other processes.

All by system calls: no program has to be installed. A process cannot move itself into a new pid namespace,
only its next child, so `enter` leaves two processes:

* outside, the one that the trainer started: it closes its descriptors and waits, to end as the other one
  ends. It dies with the trainer.
* inside, its child, the only one that returns: pid 1. It dies with the outer one, and the kernel then kills
  everything else inside.

Pid 1 has no /proc to list its children, and needs none: kill(-1) reaches every process of the namespace
except the caller. Orphans become its children, nothing inside can signal it, and its own parent has number 0.
Root becomes NOBODY, in namespaces that still belong to root; an ordinary user keeps its uid. Neither keeps a
capability, and neither can make a user namespace, which would give some back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence

from .. import frames
from . import confine, libc, rootfs

NOBODY = 65534
_NEWUSER, _ALL_BUT_USER = 0x10000000, 0x6E020000  # the latter: mount, cgroup, uts, ipc, pid, network
_CAPABILITY_VERSION = 0x20080522
_SYSCTLS = {  # file: (value that forbids, what to do)
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "set it to 0, or allow userns in a profile"),
    "kernel/unprivileged_userns_clone": ("0", "set it to 1"),
    "user/max_user_namespaces": ("0", "raise it"),
}


def supported() -> str:
    """Why `enter` does not work here, with a fix; empty where it does. Tried out in a process of its own."""
    if sys.platform != "linux":
        return "namespaces exist on Linux only"
    from ..process import START_SECONDS, Process, WorkerDied, wait  # here: the zygote needs none of it

    probe = Process("isolation.namespaces")
    try:
        if not wait([probe], START_SECONDS):
            return f"the probe of namespaces did not answer in {START_SECONDS} s"
        answer = probe.receive()
    except WorkerDied as error:
        return str(error)
    finally:
        probe.stop()
    return f"{answer['error']}; {_advice(answer['errno'])}" if answer["error"] else ""


def main(control_fd: int, parent: int) -> None:
    """The process that `supported` starts."""
    confine.worker_process(parent)
    answer = {"error": "", "errno": 0}
    try:
        enter()
    except OSError as error:
        answer = {"error": str(error), "errno": error.errno}
    frames.send_control(socket.socket(fileno=control_fd), answer)


def enter(packages: Sequence[str] = ()) -> list[str]:
    """Move into namespaces of our own; only a new child returns, as their pid 1: the paths that it still has.

    packages: paths that stay besides the standard library's.

    For a process with one thread that exec has just started and that has loaded no foreign text. OSError
    where the machine does not allow it; the process is then half-way and must end.
    """
    parent, root = os.getppid(), os.geteuid() == 0
    # Folders first: a file of a package's that is shown alone would stand for the whole folder.
    paths = sorted([*rootfs.needed_paths(), *packages], key=os.path.isfile)
    uid, gid = (NOBODY, NOBODY) if root else (os.geteuid(), os.getegid())
    libc.prctl(libc.PR_SET_DUMPABLE, 1)  # otherwise the maps in /proc belong to root
    write_maps = _map_writer(uid, gid)
    sysctls = os.open("/proc/sys/user", os.O_PATH | os.O_DIRECTORY)
    if root:  # with all its rights: the interpreter may lie in somebody's private home
        os.setgroups([])
        libc.call("unshare", _ALL_BUT_USER)
        rootfs.furnish(paths)
    libc.call("unshare", _NEWUSER if root else _NEWUSER | _ALL_BUT_USER)
    write_maps()
    if not root:
        rootfs.furnish(paths)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _forbid_user_namespaces(sysctls)
    _drop_capabilities()
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    confine.die_with_parent(parent)  # once more: changing the uid ended it
    _become_first_process()
    return paths


def _map_writer(uid: int, gid: int) -> Callable[[], None]:
    """Fork a helper that stays outside, where root may write our maps; call the result to have it do so."""
    waiting, go = os.pipe()
    folder = f"/proc/{os.getpid()}/"
    helper = os.fork()
    if helper == 0:
        status = errno.EIO
        try:
            os.close(go)
            if os.read(waiting, 1):
                maps = {"setgroups": "deny", "gid_map": f"{gid} {gid} 1", "uid_map": f"{uid} {uid} 1"}
                for name, text in maps.items():
                    with open(folder + name, "w") as file:
                        file.write(text)
                status = 0
        except OSError as error:
            status = error.errno
        finally:
            os._exit(status)
    os.close(waiting)

    def write_maps() -> None:
        os.write(go, b"!")
        os.close(go)
        status = os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1])
        if status:
            raise OSError(status, f"map of user {uid} and group {gid}: {os.strerror(status)}")

    return write_maps


def _forbid_user_namespaces(sysctls: int) -> None:
    """Allow no user namespace below ours: the kernel shows each process the limit of its own namespace."""
    with contextlib.suppress(OSError):  # read-only in containers, where the system call filter remains
        with open(os.open("max_user_namespaces", os.O_WRONLY, dir_fd=sysctls), "w") as file:
            file.write("0")
    os.close(sysctls)


def _drop_capabilities() -> None:
    for capability in range(64):
        try:
            libc.prctl(libc.PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            break  # the kernel knows no more of them
    libc.call("capset", struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24))  # clears the ambient set too


def _become_first_process() -> None:
    """Fork; the child returns, as pid 1 of the namespace, and this process waits for its end."""
    alive, alive_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(alive_end)
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.set_blocking(alive, False)
        with contextlib.suppress(BlockingIOError):
            os.read(alive, 1)
            os._exit(1)  # end of file: the outer process was gone before the line above
        os.close(alive)
        return
    os.dup2(alive_end, 0)
    os.closerange(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)


def _advice(code: int) -> str:
    """What to do about an error number."""
    for name, (closed, advice) in _SYSCTLS.items():
        with contextlib.suppress(OSError), open(f"/proc/sys/{name}") as file:
            if file.read().strip() == closed:
                return f"sysctl {name.replace('/', '.')} is {closed}: {advice}"
    if code in (errno.ENOSYS, errno.EINVAL):
        return "the kernel is older than Linux 5.12, or built without namespaces"
    return (
        "in a container, start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
        "and run as a user other than root"
    )
