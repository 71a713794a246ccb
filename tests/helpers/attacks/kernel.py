"""Escape by system calls: what the kernel offers and Python has no name for.

Each answers rightly where its call got past the filter, whatever the kernel then said of the arguments (which
are invalid where the call would do harm). ENOSYS means that the kernel does not have it.
"""

from .record import attack, attempt

_CALL = """
import ctypes, errno, os
library = ctypes.CDLL(None, use_errno=True)
library.syscall.restype = ctypes.c_long
def call(x86_64, aarch64, *words):
    number = x86_64 if os.uname().machine == 'x86_64' else aarch64
    if number is None: raise OSError
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    if library.syscall(ctypes.c_long(number), *words) < 0:
        code = ctypes.get_errno()
        if code in (errno.EPERM, errno.ENOSYS): raise OSError(code, '')
"""

# name: what it tries, numbers on x86_64 and aarch64, arguments.
_CALLS = (
    ("fork", "a process", 57, None, ""),
    ("vfork", "a process that shares memory", 58, None, ""),
    ("clone", "a process with flags", 56, 220, "17, 0, 0, 0, 0"),
    ("clone-thread", "a thread", 56, 220, "0x10f00, 0, 0, 0, 0"),
    ("clone-namespace", "a process in a namespace", 56, 220, "0x10000011, 0, 0, 0, 0"),
    ("clone3", "a process, with flags out of sight", 435, 435, "bytes(88), 88"),
    ("execve", "a program", 59, 221, "b'/bin/sh', None, None"),
    ("execveat", "a program relative to a folder", 322, 281, "-100, b'/bin/sh', None, None, 0"),
    ("ptrace-parent", "its parent's memory and registers", 101, 117, "16, os.getppid(), None, None"),
    ("ptrace-me", "to be traced", 101, 117, "0, 0, None, None"),
    ("read-memory", "its parent's memory", 310, 270, "os.getppid(), None, 0, None, 0, 0"),
    ("write-memory", "to write there", 311, 271, "os.getppid(), None, 0, None, 0, 0"),
    ("compare", "kernel objects of its parent", 312, 272, "os.getpid(), os.getppid(), 0, 0, 0"),
    ("pidfd", "a handle of its parent", 434, 434, "os.getppid(), 0"),
    ("pidfd-file", "a file of its parent", 438, 438, "-1, 0, 0"),
    ("pidfd-signal", "a signal by a handle", 424, 424, "-1, 0, None, 0"),
    ("kill", "a signal", 62, 129, "os.getppid(), 0"),
    ("tgkill", "a signal to a thread", 234, 131, "os.getppid(), os.getppid(), 0"),
    ("queue-signal", "a signal with data", 129, 138, "os.getppid(), 0, None"),
    ("unshare-user", "a user namespace", 272, 97, "0x10000000"),
    ("unshare-mount", "a mount namespace", 272, 97, "0x20000"),
    ("setns", "another namespace", 308, 268, "-1, 0"),
    ("mount", "a file system", 165, 40, "None, None, None, 0, None"),
    ("unmount", "one less", 166, 39, "None, 0"),
    ("pivot-root", "another root", 155, 41, "None, None"),
    ("move-mount", "another place of a mount", 429, 429, "-1, None, -1, None, 0"),
    ("open-tree", "a mount as a descriptor", 428, 428, "-1, None, 0"),
    ("mount-attributes", "a writable mount", 442, 442, "-1, None, 0, None, 0"),
    ("open-handle", "a file by its number", 304, 265, "-1, None, 0"),
    ("openat2", "a file, with flags out of sight", 437, 437, "-100, b'/etc/passwd', bytes(24), 24"),
    ("creat", "a file", 85, None, "None, 0"),
    ("io-uring", "system calls by a queue", 425, 425, "1, None"),
    ("io-setup", "the older queue", 206, 0, "1, None"),
    ("bpf", "programs in the kernel", 321, 280, "0, None, 0"),
    ("userfaultfd", "to hold up the kernel", 323, 282, "1"),
    ("perf-event", "to watch other programs", 298, 241, "None, 0, -1, -1, 0"),
    ("memfd", "a file in memory", 319, 279, "b'x', 0"),
    ("memfd-secret", "memory that nobody sees", 447, 447, "0"),
    ("keyctl", "a key ring that the next program reads", 250, 219, "0, -3, 1"),
    ("add-key", "a key", 248, 217, "None, None, None, 0, -3"),
    ("shmget", "shared memory by number", 29, 194, "0, 4096, 0"),
    ("semget", "a semaphore by number", 64, 190, "0, 1, 0"),
    ("msgget", "a queue by number", 68, 186, "0, 0"),
    ("mq-open", "a queue by name", 240, 180, "b'x', 0, 0, None"),
    ("personality", "an address space without chance", 135, 92, "0xffffffff"),
    ("setuid", "to be another user", 105, 146, "0"),
    ("setresuid", "the same, of three kinds", 117, 147, "-1, -1, -1"),
    ("capset", "capabilities", 126, 91, "None, None"),
    ("prctl-dumpable", "to be dumpable again", 157, 167, "4, 1, 0, 0, 0"),
    ("prctl-death", "to outlive its parent", 157, 167, "1, 0, 0, 0, 0"),
    ("prctl-name", "another name", 157, 167, "15, b'x', 0, 0, 0"),
    ("seccomp", "another filter", 317, 277, "1, 0, None"),
    ("landlock", "other rules for files", 444, 444, "None, 0, 1"),
    ("prlimit-set", "other limits", 302, 261, "0, 7, bytes(16), None"),
    ("setrlimit", "the same by the older call", 160, 164, "7, None"),
    ("affinity", "another processor", 203, 122, "0, 0, None"),
    ("scheduler", "another scheduling class", 144, 119, "0, -1, None"),
    ("priority", "another priority", 141, 140, "0, 0, 0"),
    ("io-priority", "another priority of disk access", 251, 30, "1, 0, 0"),
    ("host-name", "another name of the machine", 170, 161, "None, 1"),
    ("clock", "another time", 227, 112, "0, None"),
    ("adjust-time", "a faster clock", 159, 171, "None"),
    ("swap", "memory on disk", 167, 224, "None, 0"),
    ("kernel-log", "the kernel's log", 103, 116, "10, None, 0"),
    ("module", "code in the kernel", 175, 105, "None, 0, None"),
    ("kexec", "another kernel", 246, 104, "0, 0, None, -1"),
    ("reboot", "an end of the machine", 169, 142, "0, 0, 0, None"),
    ("accounting", "a file that the kernel writes", 163, 89, "b'/dev/null/x'"),
    ("fanotify", "what others open", 300, 262, "0, 0"),
    ("inotify", "what others change", 294, 26, "0"),
    ("epoll", "a descriptor to wait on", 291, 20, "0"),
    ("eventfd", "a counter as a descriptor", 290, 19, "0, 0"),
    ("signalfd", "signals as a descriptor", 289, 74, "-1, None, 8, 0"),
    ("timerfd", "a timer as a descriptor", 283, 85, "1, 0"),
    ("timer", "a timer that sends signals", 222, 107, "1, None, None"),
    ("setitimer", "another one", 38, 103, "0, None, None"),
    ("socket", "a socket", 41, 198, "2, 1, 0"),
    ("socketpair", "a pair of them", 53, 199, "1, 1, 0, None"),
    ("sendmsg", "descriptors on the channel", 46, 211, "3, None, 0"),
    ("recvmsg", "the same, received", 47, 212, "3, None, 64"),
    ("shutdown", "an end of the channel", 48, 210, "3, 0"),
    ("sendto", "data on the channel past the filter of writes", 44, 206, "3, None, 0, 0, None, 0"),
    ("splice", "data between descriptors", 275, 76, "0, None, 3, None, 0, 0"),
    ("sendfile", "a file on the channel", 40, 71, "3, 0, None, 0"),
    ("dup3", "another descriptor under a number", 292, 24, "0, 3, 0"),
    ("pipe", "a pipe", 293, 59, "None, 0"),
    ("writev", "data from several places", 20, 66, "3, None, 0"),
    ("truncate", "an end to a file", 76, 45, "None, 0"),
    ("link", "a second name", 265, 37, "-100, None, -100, None, 0"),
    ("symlink", "a link", 266, 36, "None, -100, None"),
    ("mknod", "a device", 259, 33, "-100, None, 0, 0"),
    ("chmod", "other rights", 268, 53, "-100, None, 0"),
    ("chown", "another owner", 260, 54, "-100, None, -1, -1, 0"),
    ("utimens", "other times", 280, 88, "-100, None, None, 0"),
    ("setxattr", "attributes", 188, 5, "None, None, None, 0, 0"),
    ("chroot", "another root", 161, 51, "None"),
    ("mlock", "memory that stays", 149, 228, "0, 0"),
    ("madvise", "pages out of the machine's use", 28, 233, "0, 0, 100"),
    ("move-pages", "pages of its parent", 279, 239, "os.getppid(), 0, None, None, None, 0"),
    ("protection-key", "a key for pages", 330, 289, "0, 0"),
    ("membarrier", "to disturb other threads", 324, 283, "0, 0, 0"),
    ("futex-shared", "a lock that others see", 202, 98, "bytes(8), 0, 1, None, None, 0"),
    ("fcntl-owner", "signals to others by the kernel", 72, 25, "3, 8, 0"),
    ("fcntl-flags", "signals on input", 72, 25, "3, 4, 0x2000"),
    ("ioctl-inject", "input for a terminal", 16, 29, "0, 0x5412, b'x'"),
    ("ioctl-wide", "the same with high bits that a filter may forget", 16, 29, "0, 0x100005412, b'x'"),
    ("set-session", "a session", 112, 157, ""),
    ("wait", "other children", 61, 260, "-1, None, 1, None"),
    ("sysinfo", "what others use", 99, 179, "None"),
    ("statfs", "the file system", 137, 43, "None, None"),
    ("local-table", "another descriptor table of the processor", 154, None, "0, None, 0"),
    ("ports", "the machine's ports", 172, None, "0"),
    ("x32-getpid", "a call under its x32 number", 0x40000027, None, ""),
    ("x32-fork", "another one", 0x40000039, None, ""),
    ("x32-execve", "one that x32 has for itself", 0x40000208, None, "None, None, None"),
    ("no-such-call", "a number of no call", 9999, 9999, ""),
    ("negative-call", "a number below zero", -1, -1, ""),
)

_NATIVE = """
import ctypes, mmap, os
def run(code):
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
def f(x):
    if os.uname().machine != 'x86_64': raise OSError
    if run(CODE) < 0: raise OSError
    return x + 1
"""

ATTACKS = tuple(
    attack(
        f"call-{name}",
        "error",
        tries,
        attempt(f"call({', '.join(filter(None, (str(x86_64), str(aarch64), arguments)))})", _CALL),
        level=2,
    )
    for name, tries, x86_64, aarch64, arguments in _CALLS
) + (
    attack(
        "native-fork",
        "error",
        "a fork by machine code of its own",
        _NATIVE.replace("CODE", r"b'\xb8\x39\x00\x00\x00\x0f\x05\xc3'"),
        level=2,
    ),
    # Kernels without 32-bit calls send a signal.
    attack(
        "native-32-bit",
        "error killed",
        "a 32-bit call, whose numbers mean other calls",
        _NATIVE.replace("CODE", r"b'\xb8\x14\x00\x00\x00\xcd\x80\xc3'"),
        level=2,
    ),
)
