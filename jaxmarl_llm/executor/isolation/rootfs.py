"""What a candidate may see of the file system: the standard library, and nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys

from . import landlock, libc

HOSTNAME = "sandbox"
TMP_SIZE = "16m"
LIBRARIES, LIBRARIES_SIZE = "/library", "40m"  # of one compiled candidate: files there may be mapped as code
_OLD = "/.old"  # the host's files, while the new root is being built
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV, _ATTR_NOEXEC = 1, 2, 4, 8
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000  # Linux 5.12; one number everywhere
_MNT_DETACH = 2


def needed_paths() -> list[str]:
    """The standard library, and the shared libraries of its extension modules where the linker finds them.

    It forks, to load them all without keeping them.
    """
    folders = [path for path in sys.path if os.path.basename(path) == "lib-dynload" and os.path.isdir(path)]
    result, result_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(result_end, os.fsencode("\n".join(_load_and_list(folders))))
        finally:
            os._exit(0)
    os.close(result_end)
    with open(result, "rb") as file:
        libraries = os.fsdecode(file.read()).split("\n")
    os.waitpid(pid, 0)
    optional = [*folders, "/etc/ld.so.cache", *libraries]
    return [os.path.dirname(os.__file__), *(path for path in optional if os.path.exists(path))]


def _load_and_list(folders: list[str]) -> list[str]:
    """Load the extension modules in the folders; the file names of all that is then loaded."""
    for folder in folders:
        for name in os.listdir(folder):
            if not name.startswith(("_test", "_tkinter")):  # no use inside, and slow to load
                with contextlib.suppress(OSError):  # its library is not installed
                    ctypes.CDLL(os.path.join(folder, name))

    class Info(ctypes.Structure):
        _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]

    names = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
    note = kind(lambda info, size, data: names.append(os.fsdecode(info[0].name)) or 0)
    libc.library.dl_iterate_phdr(note, None)
    return [name for name in names if name.startswith("/")]


def furnish(paths: list[str]) -> None:
    """A host name, and a read-only root that holds the paths and /dev/null; only its empty /tmp and
    LIBRARIES are writable.

    Candidates may write there what Landlock allows them: nothing, or one folder in /tmp.
    """
    socket.sethostname(HOSTNAME)
    sources = {path: os.path.realpath(path) for path in [*paths, os.devnull]}
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)  # nothing below reaches the host
    _mount_tmpfs("/tmp", "mode=755,size=1m")
    os.mkdir("/tmp" + _OLD)
    libc.call("pivot_root", b"/tmp", os.fsencode("/tmp" + _OLD))
    os.chdir("/")
    os.umask(0o022)  # the directories above the paths are for NOBODY too
    for folder, options, noexec in (
        ("/tmp", f"mode=1777,size={TMP_SIZE}", _MS_NOEXEC),
        (LIBRARIES, f"mode=1777,size={LIBRARIES_SIZE}", 0),
    ):
        os.mkdir(folder)
        _mount_tmpfs(folder, options, noexec)
    for path, source in sources.items():
        if not os.path.exists(path):  # otherwise it is in a directory that is there already
            _bind(_OLD + source, path)
    libc.call("umount2", os.fsencode(_OLD), _MNT_DETACH)
    os.rmdir(_OLD)
    _set_attributes("/", _ATTR_RDONLY)
    for folder in ("/tmp", LIBRARIES):  # these two alone: a path that lies in /tmp stays as it is
        _set_attributes(folder, clear=_ATTR_RDONLY, flags=0)


def _bind(source: str, target: str) -> None:
    """Show a file, or a directory without installed packages."""
    folder = os.path.isdir(source)
    os.makedirs(target if folder else os.path.dirname(target), exist_ok=True)
    if not folder:
        open(target, "x").close()
    _mount(source, target, None, _MS_BIND | _MS_REC)
    _set_attributes(target, _ATTR_NOSUID | (_ATTR_NOEXEC if target == os.devnull else _ATTR_NODEV))
    for name in landlock.PACKAGES:
        if os.path.isdir(os.path.join(target, name)):
            _mount_tmpfs(os.path.join(target, name), "mode=755,size=4k")


def _mount(source, target, kind, flags: int, options: str = "") -> None:
    source, target, kind = (text and os.fsencode(text) for text in (source, target, kind))
    libc.call("mount", source, target, kind, ctypes.c_ulong(flags), options.encode())


def _mount_tmpfs(target: str, options: str, noexec: int = _MS_NOEXEC) -> None:
    _mount("tmpfs", target, "tmpfs", _MS_NOSUID | _MS_NODEV | noexec, options)


def _set_attributes(target: str, attributes: int = 0, clear: int = 0, flags: int = _AT_RECURSIVE) -> None:
    """Set and clear them on the mount and, by default, on all mounts below it."""
    values = struct.pack("=4Q", attributes, clear, 0, 0)  # then propagation, namespace
    number, directory, flags, size = map(ctypes.c_long, (_SYS_MOUNT_SETATTR, _AT_FDCWD, flags, len(values)))
    libc.call("syscall", number, directory, os.fsencode(target), flags, values, size)
