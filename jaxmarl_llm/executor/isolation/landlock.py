"""The files a candidate may reach: a Landlock ruleset that allows reading some folders and nothing else.

Landlock needs no privileges, is inherited and cannot be undone. It leaves open what the running kernel cannot
handle: TCP before ABI 4, signals and abstract unix sockets before ABI 6, UDP and calls like stat() in every
version known here. The seccomp filter closes all of these except stat().
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Sequence

from . import libc

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on x86_64 and aarch64
_ASK_VERSION = 1
PACKAGES = ("site-packages", "dist-packages")  # folders in the standard library's that are not part of it
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = (1 << bit for bit in (4, 5, 7, 8))
_REFER, _TRUNCATE, _IOCTL_DEV = (1 << bit for bit in (13, 14, 15))
# Rights that a rule for something else than a folder may hold.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# Candidates may execute nothing: extension modules are read and mapped, which is not executing to Landlock.
_READ = _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _TRUNCATE | _MAKE_REG | _MAKE_DIR | _REMOVE_FILE | _REMOVE_DIR | _REFER

# {ABI: how many there are from it on}, as bits are given out in order: rights to files, rights to the network
# (TCP bind, TCP connect), scopes (abstract unix sockets, signals).
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16, 9: 17}
_NETWORK_RIGHTS = {4: 2}
_SCOPES = {6: 2}


def abi() -> int:
    """Version of Landlock in the running kernel, 0 where there is none."""
    try:
        return _version()
    except OSError:
        return 0


def supported() -> str:
    """Why there is no Landlock here; empty where there is."""
    if abi():
        return ""
    try:
        _version()
    except OSError as error:
        return f"there is no Landlock: {error}"
    return "there is no Landlock"


def _version() -> int:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "it exists on Linux only")
    return _syscall("landlock_create_ruleset", _CREATE_RULESET, None, 0, _ASK_VERSION)


def ruleset(readable: Sequence[str], writable: Sequence[str] = (), executable: Sequence[str] = ()) -> int:
    """Descriptor of rules: /dev/null, reading below `readable`, files below `writable`, and nothing else.

    What is `executable` can also be read; it must name the programs' dynamic linker too. Files means folders
    and regular files: no links, pipes, sockets or devices can be made. Of a folder that holds installed
    packages (`PACKAGES`) their names can be listed, and no file of theirs read. Any process that has the
    descriptor can `apply` it. OSError names the path or the call that failed.
    """
    version = abi()
    if not version:
        raise OSError(errno.ENOSYS, "the kernel has no Landlock, or it is switched off")
    handled = _handled(version)
    # Older kernels know a shorter struct, and accept this one as the rest is zero.
    attributes = struct.pack("=QQQ", *handled)
    made = _syscall("landlock_create_ruleset", _CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path, rights in _without_packages(readable):
            _allow(made, path, rights)
        for path in writable:
            _allow(made, path, _WRITE & handled[0])
        for path in executable:
            _allow(made, path, _READ | _EXECUTE)
        _allow(made, os.devnull, _READ_FILE | _WRITE_FILE)
    except BaseException:
        os.close(made)
        raise
    return made


def apply(made: int) -> None:
    """Confine the calling thread to a ruleset, for good. no_new_privs must be set already."""
    _syscall("landlock_restrict_self", _RESTRICT_SELF, made, 0)


def restrict(readable: Sequence[str], writable: Sequence[str] = (), executable: Sequence[str] = ()) -> None:
    """`ruleset` and `apply` in one; uses two free descriptors at a time and leaves none open."""
    made = ruleset(readable, writable, executable)
    try:
        apply(made)
    finally:
        os.close(made)


def _without_packages(readable):
    """(path, rights) of what may be read, a folder that holds packages entry by entry."""
    for path in readable:
        if not any(os.path.isdir(os.path.join(path, name)) for name in PACKAGES):
            yield path, _READ
            continue
        yield path, _READ_DIR
        for name in os.listdir(path):
            if name not in PACKAGES:
                yield os.path.join(path, name), _READ


def _handled(version: int) -> tuple[int, int, int]:
    """All rights to files, rights to the network and scopes of an ABI, as far as this module knows."""
    counts = (
        max((count for since, count in known.items() if since <= version), default=0)
        for known in (_FILE_RIGHTS, _NETWORK_RIGHTS, _SCOPES)
    )
    files, network, scopes = ((1 << count) - 1 for count in counts)
    return files, network, scopes


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Add a rule for a file, or for a folder and all below it."""
    target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(target).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, target)
        _syscall("landlock_add_rule", _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0, path=path)
    finally:
        os.close(target)


def _syscall(name, number, *arguments, path=None):
    """A system call by number; OSError with its name, and the path it was about."""
    words = (ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)
    result = libc.library.syscall(ctypes.c_long(number), *words)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}", path)
    return result
