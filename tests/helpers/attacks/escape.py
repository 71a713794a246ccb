"""Escape: files, processes, network, programs and limits, by Python's own means.

Each answers rightly only where its attack worked, so a pass is a hole. Where an attack would do harm if it
worked, it does less: signal 0 instead of 9, a new file instead of one that is there.
"""

from .record import attack, attempt, sheet

LEFT = "left-by-an-attack"  # part of the name of whatever would be left behind

_IMPORTS = "import ctypes, os, resource, signal, socket, sys, time"


def _refused(group, rows, level=2, verdicts="error"):
    """A record per row (name, what it tries, body of f)."""
    return tuple(
        attack(f"{group}-{name}", verdicts, tries, attempt(body, _IMPORTS), level=level)
        for name, tries, body in rows
    )


_READS = _refused(
    "read",
    (
        ("passwd", "the machine's users", "open('/etc/passwd').read()"),
        ("shadow", "their passwords", "open('/etc/shadow').read()"),
        (
            "dots",
            "a way out of the standard library",
            "open(os.path.dirname(os.__file__) + '/..' * 9 + '/etc/passwd')",
        ),
        ("host-name-file", "the machine's name", "open('/etc/hostname').read()"),
        ("root", "the top folder", "os.listdir('/')"),
        ("tmp", "temporary files", "os.listdir('/tmp')"),
        ("shm", "shared memory", "os.listdir('/dev/shm')"),
        ("home", "the user's files", "os.listdir('/root') + os.listdir('/home')"),
        ("executor", "our own source", "open(sys.modules['executor.candidate'].__file__).read()"),
        (
            "packages",
            "what is installed",
            "os.listdir(os.path.dirname(os.__file__) + '/site-packages/..' + '/../../..')",
        ),
        ("environ", "its first environment", "open('/proc/self/environ').read()"),
        ("maps", "its own memory map", "open('/proc/self/maps').read()"),
        ("memory", "its own memory by another door", "open('/proc/self/mem', 'rb')"),
        ("parent-memory", "its parent's memory", "open(f'/proc/{os.getppid()}/mem', 'rb')"),
        ("parent-environ", "its parent's environment", "open(f'/proc/{os.getppid()}/environ').read()"),
        ("trainer-fd", "the trainer's files", "[os.listdir(f'/proc/{p}/fd') for p in range(1, 99999)]"),
        ("processes", "the list of processes", "os.listdir('/proc')"),
        ("own-fd", "its channel by name", "open('/proc/self/fd/3', 'rb')"),
        ("dev-fd", "the same by another name", "open('/dev/fd/3', 'rb')"),
        ("dev-mem", "the machine's memory", "open('/dev/mem', 'rb')"),
        ("dev-kmsg", "the kernel's log", "open('/dev/kmsg')"),
        ("dev-tty", "the trainer's terminal", "open('/dev/tty', 'r')"),
        ("ptmx", "a terminal of its own", "os.openpty()"),
        ("disk", "the disk itself", "[open('/dev/' + d, 'rb') for d in ('vda', 'sda', 'nvme0n1')]"),
        ("sys", "the machine's devices", "os.listdir('/sys')"),
        ("nvidia", "the accelerator", "open('/dev/nvidia0')"),
        ("run", "sockets of services", "os.listdir('/run')"),
        (
            "docker",
            "the container's own service",
            "socket.socket(socket.AF_UNIX).connect('/var/run/docker.sock')",
        ),
    ),
)

_WRITES = _refused(
    "write",
    (
        ("tmp", "a file in /tmp", f"open('/tmp/{LEFT}', 'w').write('x')"),
        ("shm", "a file in shared memory", f"open('/dev/shm/{LEFT}', 'w')"),
        ("cwd", "a file where it stands", f"open('{LEFT}', 'w')"),
        ("conftest", "a configuration for pytest", f"open('conftest.py', 'x').write('# {LEFT}')"),
        ("reward", "a file with the reward", f"open('/tmp/{LEFT}-reward.json', 'w').write('1')"),
        ("stdlib", "a module of the library", f"open(os.path.dirname(os.__file__) + '/{LEFT}.py', 'w')"),
        ("stdlib-append", "more text in a module of the library", "open(os.__file__, 'a')"),
        ("stdlib-both", "the same, opened for both", "open(os.__file__, 'r+')"),
        ("directory", "a folder", f"os.mkdir('/tmp/{LEFT}')"),
        ("symlink", "a link to a secret", f"os.symlink('/etc/passwd', '/tmp/{LEFT}')"),
        ("hard-link", "a second name for a file", f"os.link(os.__file__, '/tmp/{LEFT}')"),
        ("fifo", "a pipe with a name", f"os.mkfifo('/tmp/{LEFT}')"),
        ("device", "a device", f"os.mknod('/tmp/{LEFT}', 0o20666, os.makedev(1, 5))"),
        ("nameless", "a file without a name", "os.open('/tmp', os.O_TMPFILE | os.O_RDWR)"),
        ("tempfile", "a file by the library", "import tempfile\ntempfile.TemporaryFile()"),
        ("truncate", "an end to a module", "os.truncate(os.__file__, os.stat(os.__file__).st_size)"),
        ("rename", "another name for a module", "os.rename(os.__file__, os.__file__)"),
        ("unlink", "a file less", f"os.unlink('/tmp/{LEFT}')"),
        ("chmod", "other rights for a file", "os.chmod(os.__file__, os.stat(os.__file__).st_mode & 0o777)"),
        ("chown", "another owner of a file", "os.chown(os.__file__, -1, -1)"),
        (
            "times",
            "other times of a file",
            "s = os.stat(os.__file__)\nos.utime(os.__file__, ns=(s.st_atime_ns, s.st_mtime_ns))",
        ),
        ("attributes", "attributes of a file", f"os.setxattr(os.__file__, 'user.{LEFT}', b'')"),
        (
            "lock",
            "a lock that other programs see",
            "import fcntl\nfcntl.flock(os.open(os.__file__, 0), fcntl.LOCK_EX)",
        ),
        ("posix-lock", "another kind", "import fcntl\nfcntl.lockf(os.open(os.__file__, 0), fcntl.LOCK_SH)"),
        (
            "lease",
            "signals when others open a file",
            "import fcntl\nfcntl.fcntl(os.open(os.__file__, 0), 1024, 0)",
        ),
        (
            "notify",
            "signals when others touch a folder",
            "import fcntl\nfcntl.fcntl(os.open(os.path.dirname(os.__file__), 0), 1026, 1)",
        ),
        (
            "shared-memory",
            "memory with a name",
            f"from multiprocessing import shared_memory\nshared_memory.SharedMemory('{LEFT}', True, 9)",
        ),
        (
            "semaphore",
            "a semaphore with a name",
            f"import _multiprocessing\n_multiprocessing.SemLock(0, 1, 1, '/{LEFT}', True)",
        ),
    ),
)

_PROCESSES = _refused(
    "process",
    (
        ("see-parent", "whether its parent is there", "os.kill(os.getppid(), 0)"),
        ("kill-parent", "the zygote", "os.kill(os.getppid(), 9)"),
        ("kill-all", "every process of the user", "os.kill(-1, 0)"),
        ("kill-group", "a group of processes", "os.killpg(os.getpid(), 0)"),
        (
            "kill-trainer",
            "processes by number",
            "if not [p for p in range(2, 99999) if not os.kill(p, 0)]: raise OSError",
        ),
        (
            "daemon",
            "a process that outlives the run",
            "if os.fork() == 0:\n    os.setsid()\n    os.fork() or time.sleep(9)\n    os._exit(0)",
        ),
        ("session", "a session of its own", "os.setsid()"),
        ("group", "another group of processes", "os.setpgid(0, 0)"),
        ("wait", "other children of ours", "os.waitpid(-1, os.WNOHANG)"),
        ("pidfd", "a handle of its parent", "os.close(os.pidfd_open(os.getppid()))"),
        ("exec-shell", "a shell", "os.execv('/bin/sh', ['sh', '-c', ''])"),
        (
            "exec-python",
            "a new interpreter",
            "os.execv(sys.executable or '/usr/bin/python3', ['python', '-c', ''])",
        ),
        (
            "exec-library",
            "the loader as a program",
            "[os.execv(p, [p]) for p in ('/lib64/ld-linux-x86-64.so.2', '/lib/ld-linux-aarch64.so.1')]",
        ),
        ("exec-memory", "a program in memory", "fd = os.memfd_create('x')\nos.execve(fd, ['x'], {})"),
        ("popen", "a pipe to a shell", "if os.popen('echo 1').read() != '1\\n': raise OSError"),
        ("nice", "more of the processor", "os.nice(-5)"),
        ("nice-less", "less of it, to hold up the worker", "os.nice(0)"),
        ("affinity", "another processor", "os.sched_setaffinity(0, {0})"),
        ("scheduler", "a real-time class", "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))"),
        ("limit-cpu", "more time", "resource.setrlimit(resource.RLIMIT_CPU, (99, 99))"),
        ("limit-memory", "more memory", "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))"),
        (
            "limit-soft",
            "a limit within what is allowed",
            "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))",
        ),
        ("limit-parent", "its parent's limits", "resource.prlimit(os.getppid(), resource.RLIMIT_CPU)"),
        ("user", "to be root", "os.setuid(0)"),
        ("groups", "other groups", "os.setgroups([0])"),
        ("chroot", "another root", "os.chroot('/tmp')"),
        ("chdir", "another folder", "os.chdir('/tmp')"),
        ("umask", "rights of files to come", "os.umask(0)"),
        (
            "sync",
            "the disk",
            "os.sync()\nraise OSError if os.name != 'posix' else ctypes.CDLL(None).syncfs(0) and OSError",
        ),
        ("load", "how busy the machine is", "open('/proc/loadavg').read()"),
        ("usage", "what others use", "resource.getrusage(resource.RUSAGE_CHILDREN)"),
    ),
)

_NETWORK = _refused(
    "net",
    (
        ("tcp", "a TCP socket", "socket.socket()"),
        ("udp", "a UDP socket", "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 53))"),
        ("tcp6", "a TCP socket of IPv6", "socket.socket(socket.AF_INET6)"),
        ("unix", "a unix socket", "socket.socket(socket.AF_UNIX)"),
        ("abstract", "a unix socket without a file", f"socket.socket(socket.AF_UNIX).bind('\\0{LEFT}')"),
        ("pair", "a pair of sockets", "socket.socketpair()"),
        ("listen", "a service on loopback", "socket.create_server(('127.0.0.1', 0))"),
        ("loopback", "a service of the machine", "socket.create_connection(('127.0.0.1', 22), 0.1)"),
        ("metadata", "the cloud's metadata", "socket.create_connection(('169.254.169.254', 80), 0.1)"),
        ("dns", "a name server", "socket.getaddrinfo('example.org', 80)"),
        ("raw", "raw packets", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
        ("packet", "all packets", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
        ("netlink", "the network's settings", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"),
        ("vsock", "the virtual machine's host", "socket.socket(socket.AF_VSOCK)"),
        ("crypto", "the kernel's cryptography", "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)"),
        (
            "send-channel",
            "descriptors to the tester",
            "socket.send_fds(socket.socket(fileno=3), [b'x'], [0])",
        ),
        ("receive-channel", "descriptors from the tester", "socket.recv_fds(socket.socket(fileno=3), 1, 1)"),
        (
            "peer",
            "who is at the other end",
            "socket.socket(socket.AF_UNIX, fileno=3).getsockopt(socket.SOL_SOCKET, 17, 12)",
        ),
    ),
)

# Promised at level 3 only.
_HIDDEN = _refused(
    "hidden",
    (
        ("file", "whether a file exists", "os.stat('/etc/passwd')"),
        ("program", "whether a program exists", "os.stat('/bin/sh')"),
        ("project", "where our source lies", "os.stat(sys.modules['executor.candidate'].__file__)"),
        ("host-name", "the machine's name", "if os.uname().nodename == 'sandbox': raise OSError"),
        ("parent", "its parent's number", "if os.getppid() in (0, 1): raise OSError"),
    ),
    level=3,
)

_INHERITED = sheet(
    "inherited",
    r"""
descriptors | fail | files of ours that are still open
    import os
    def f(x):
        for fd in [*range(3), *range(4, 1024)]:
            try: found = os.fstat(fd)
            except OSError: continue
            if found.st_rdev != os.makedev(1, 3): return x + 1

environment | fail | secrets in the environment
    import os
    def f(x):
        return x + 1 if set(os.environ) - {'LC_ALL', 'PYTHONHASHSEED', 'TZ'} else 0

command-line | fail | words of the tests
    import sys
    def f(x):
        return x + 1 if 'assert' in str(sys.argv + sys.orig_argv) else 0

core | fail | a core file
    import resource
    def f(x):
        return x + 1 if resource.getrlimit(resource.RLIMIT_CORE) != (0, 0) else 0

loaded-modules | fail | modules of the trainer's side
    import sys
    def f(x):
        ours = {'jax', 'numpy', 'executor.tester', 'executor.units', 'executor.link', 'executor.pool'}
        return x + 1 if ours & {*sys.modules} else 0

threads | fail | threads of ours
    import sys
    def f(x):
        return x + 1 if len(sys._current_frames()) > 1 else 0
""",
)

ATTACKS = (*_READS, *_WRITES, *_PROCESSES, *_NETWORK, *_HIDDEN, *_INHERITED)
