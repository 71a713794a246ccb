"""The system calls a candidate may make: a seccomp filter that refuses all but a short list.

Landlock restricts files; this filter restricts system calls and covers what Landlock does not: sockets,
processes, signals, ptrace, namespaces, shared memory. Refused calls fail with EPERM instead of killing the
process, so that Python raises OSError and the candidate fails in the usual way. The list holds the calls that
CPython 3.11 to 3.13 with glibc needs after start-up for pure Python and the standard library.

The filter is classic BPF, a chain of "if the number is this: return that", for x86_64 and aarch64.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import struct
import sys

from . import libc

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_LOAD, _AND, _IF_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06  # BPF: load word, and, jump if equal, return
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW = (_RETURN, 0, 0, 0x7FFF0000)
_DENY = (_RETURN, 0, 0, 0x00050000 | errno.EPERM)
_ABSENT = (_RETURN, 0, 0, 0x00050000 | 38)  # ENOSYS, whose number differs outside Linux

_MACHINE = platform.machine()
# Column of the tables below, and AUDIT_ARCH_*.
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

# name: number on x86_64, on aarch64 (None where there is no such call).
_ALLOWED = {
    # Memory. PROT_EXEC stays allowed: extension modules need it, and native code meets the same filter.
    # No madvise: nothing here depends on it, and root can take pages out of the machine's use with it.
    "brk": (12, 214),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "mprotect": (10, 226),
    # Descriptors that are open already: the channel, and files under import. ld.so uses pread64.
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "lseek": (8, 62),
    "ftruncate": (77, 46),  # of what is open for writing: the files in memory of a script
    "pread64": (17, 67),
    # The import system's questions about files. Landlock does not cover them: whether a file outside exists,
    # and its size, can be asked. stat and lstat are what glibc before 2.33 calls.
    "fstat": (5, 80),
    "newfstatat": (262, 79),
    "stat": (4, None),
    "lstat": (6, None),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    # Clocks, where the vDSO cannot answer, and sleep; restart_syscall resumes a sleep after a stop.
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "restart_syscall": (219, 128),
    "getrandom": (318, 278),
    # Handlers and masks of its own signals; SIGKILL, which ends candidates, cannot be blocked.
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    # Who it is. os.getppid() cannot raise: refused, it would be -1, which in kill() means "everybody".
    # uname shows the host name, but `import uuid` fails without it.
    "getpid": (39, 172),
    "getppid": (110, 173),
    "gettid": (186, 178),
    "uname": (63, 160),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
# abort() is a tgkill to oneself, which is not here: a filter can compare with the process id only if it is
# made anew for every process. So abort() goes on to its next means, an invalid instruction: the process still
# dies of a signal, SIGSEGV or SIGTRAP in place of SIGABRT. os.kill(os.getpid(), 9) fails with EPERM.

_TO_WRITE = 0o1103  # Linux's O_WRONLY, O_RDWR, O_CREAT and O_TRUNC, the same on both machines
# name: numbers, checks (argument, mask, values): allowed where each masked argument is one of its values.
_CHECKED = {
    "openat": ((257, 56), (2, _TO_WRITE, (0,))),
    "open": ((2, None), (1, _TO_WRITE, (0,))),
    # isatty() asks TCGETS of every file that open() opens, and FIOCLEX sets close-on-exec.
    "ioctl": ((16, 29), (1, 0xFFFFFFFF, (0x5401, 0x5451))),
    # F_GETFD, F_SETFD, F_GETFL, os.dup's F_DUPFD_CLOEXEC. Not F_SETOWN, which makes the kernel send signals.
    "fcntl": ((72, 25), (1, 0xFFFFFFFF, (1, 2, 3, 1030))),
    # Waiting for a lock with a time limit, and waking: private WAIT, WAKE and their _BITSET forms, on either
    # clock. glibc aborts the process where they are refused.
    "futex": ((202, 98), (1, 0xFFFFFFFF, (128, 129, 137, 138, 393))),
    # Its own limits can be read, that is without a pointer to new ones. Not those of another process: whether
    # it exists could be asked that way.
    "prlimit64": ((302, 261), (0, 0xFFFFFFFF, (0,)), (2, 0xFFFFFFFFFFFFFFFF, (0,))),
}
# For candidates with a folder of their own: Landlock says which. openat and open lose their check.
_FILES = {
    "openat": (257, 56),
    "open": (2, None),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
}
# For candidates that other agents may call on sockets of their own: to wait for whoever comes first.
_WAITS = {
    "poll": (7, None),
    "ppoll": (271, 73),
}
# For the compiler and the programs that it starts. No setsid and setpgid: nothing leaves the process group,
# by which all of it is ended. No chmod, chown and utimensat, which Landlock does not cover.
_PROGRAMS = {
    "execve": (59, 221),
    "vfork": (58, None),
    "wait4": (61, 260),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "umask": (95, 166),
    "madvise": (28, 233),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "set_tid_address": (218, 96),
    "set_robust_list": (273, 99),
    "rseq": (334, 293),
}
_PROGRAMS_CHECKED = {
    # No new namespace, and no CLONE_PARENT, which makes a sibling and not a child.
    "clone": ((56, 220), (0, 0x7E028000, (0,))),
    # ARCH_SET_FS, and a question about shadow stacks.
    "arch_prctl": ((158, None), (0, 0xFFFFFFFF, (0x1002, 0x3001))),
}
_CLONE3 = (435, 435)  # its flags lie in memory, out of a filter's sight; ENOSYS makes libc try clone: EPERM


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def supported() -> str:
    """Empty where install() can work here, else the reason why not."""
    if sys.platform != "linux":
        return "seccomp exists on Linux only"
    if _MACHINE not in _MACHINES or sys.byteorder != "little" or sys.maxsize < 1 << 32:
        bits = struct.calcsize("P") * 8
        return f"no table of system calls for {_MACHINE}, {bits} bits, {sys.byteorder} endian"
    # A program at address 0 changes nothing; a kernel that takes filters answers EFAULT.
    error = _set_filter(None)
    return "" if error == errno.EFAULT else f"the kernel takes no seccomp filters: {os.strerror(error)}"


def install(files: bool = False, programs: bool = False, waits: bool = False) -> None:
    """Filter the calling thread, for good; `files` also allows to make, write, rename and remove files.

    `programs` also allows to start processes and programs, which inherit the filter, and to connect them by
    pipes. `waits` also allows to wait for one of several descriptors.

    no_new_privs must be set already. OSError where the kernel refuses, ValueError for an unknown machine.
    """
    code = program(files=files, programs=programs, waits=waits)
    error = _set_filter(_Program(len(code) // 8, code))
    if error:
        raise OSError(error, f"seccomp: {os.strerror(error)}")


def _set_filter(filter_program):
    """Error number of the call that installs a filter, or 0."""
    pointer = ctypes.byref(filter_program) if filter_program else None
    done = libc.library.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), pointer)
    return ctypes.get_errno() if done != 0 else 0


@functools.cache
def program(
    machine: str = _MACHINE, files: bool = False, programs: bool = False, waits: bool = False
) -> bytes:
    """The filter for a machine, as an array of struct sock_filter."""
    if machine not in _MACHINES:
        raise ValueError(f"machine is {machine!r}; allowed: {', '.join(_MACHINES)}")
    column, arch = _MACHINES[machine]
    # Another architecture's numbers mean other calls. x32 is x86_64 with bit 30 set: equal to no number
    # below.
    code = [(_LOAD, 0, 0, _ARCH), (_IF_EQUAL, 1, 0, arch), _DENY, (_LOAD, 0, 0, _NUMBER)]
    plain = _ALLOWED | (_FILES if files else {}) | (_PROGRAMS if programs else {}) | (_WAITS if waits else {})
    for numbers in plain.values():
        code += _case(numbers[column], [_ALLOW])
    for numbers, *checks in (_CHECKED | (_PROGRAMS_CHECKED if programs else {})).values():
        code += _case(numbers[column], _check(checks))
    code += _case(_CLONE3[column], [_ABSENT])
    code.append(_DENY)
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _case(number, body):
    """Run `body`, which returns, if the call has this number."""
    return [] if number is None else [(_IF_EQUAL, 0, len(body), number), *body]


def _check(checks):
    """Allow if each masked argument is one of its values, else deny; int arguments have a 32-bit mask."""
    (argument, mask, values), *others = checks
    low = _ARGUMENTS + 8 * argument
    body = []
    if mask >> 32:
        body += [(_LOAD, 0, 0, low + 4), (_AND, 0, 0, mask >> 32), (_IF_EQUAL, 1, 0, 0), _DENY]
    body += [(_LOAD, 0, 0, low), (_AND, 0, 0, mask & 0xFFFFFFFF)]
    for value in values:
        body += _case(value, _check(others) if others else [_ALLOW])
    return [*body, _DENY]
