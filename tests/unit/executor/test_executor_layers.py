"""Landlock and seccomp: what each refuses, that ordinary Python runs inside, and the filter's code.

Every attack runs in fresh interpreters without any layer, with one and with both, so that a refusal is known
to be the layer's. Where it would do harm if it worked, its arguments are invalid: that is another error.
"""

import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys

import pytest

from jaxmarl_llm.executor.isolation import landlock, seccomp

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Landlock and seccomp exist on Linux only")
FOLDER = str(pathlib.Path(landlock.__file__).parents[1])

# The modules are loaded as the executor's own processes load them: without the package around.
PREAMBLE = """
import ctypes, errno, fcntl, json, os, resource, signal, socket, sys, threading, types
package = types.ModuleType("executor")
package.__path__ = [sys.argv[1]]
sys.modules["executor"] = package
from executor.isolation import landlock, seccomp
from executor.isolation.libc import PR_SET_NO_NEW_PRIVS, prctl
given = json.loads(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
x86 = os.uname().machine == "x86_64"
stdlib = [path for path in sys.path if os.path.isdir(path)]

def call(on_x86_64, on_aarch64, *words):
    number = on_x86_64 if x86 else on_aarch64
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    result = libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result

def outcome(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    except BaseException as error:
        return type(error).__name__
    return "ok"

def apply(layers, writable=()):
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if "landlock" in layers:
        landlock.restrict(stdlib, writable)
    if "seccomp" in layers:
        seccomp.install(files=bool(writable))
"""


def start(body, given=None, **options):
    """Run `body` after the preamble in a fresh interpreter."""
    command = [sys.executable, "-B", "-s", "-S", "-P", "-c", PREAMBLE + body, FOLDER, json.dumps(given)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def report(body, given=None, **options):
    """What `body` prints, which is JSON."""
    done = start(body, given, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(autouse=True)
def layers_are_there():
    if not landlock.abi():
        pytest.skip("the kernel has no Landlock")
    if seccomp.supported():
        pytest.skip(seccomp.supported())


LAYERS = ((), ("landlock",), ("seccomp",), ("landlock", "seccomp"))

ATTACKS = """
folder = given["folder"]
address = ("127.0.0.1", given["port"])
affinity = os.sched_getaffinity(0)
limit = resource.getrlimit(resource.RLIMIT_NOFILE)

def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)

def start_thread():
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()

attacks = {
    "read": lambda: open(folder + "/secret").read(),
    "list": lambda: os.listdir(folder),
    "list_root": lambda: os.listdir("/"),
    "read_environment": lambda: open("/proc/self/environ").read(),
    "write": lambda: open(folder + "/new", "w").close(),
    "append": lambda: open(folder + "/secret", "a").close(),
    "truncate": lambda: os.close(os.open(folder + "/secret", os.O_RDONLY | os.O_TRUNC)),
    "truncate_by_path": lambda: os.truncate(folder + "/secret", 0),
    "mkdir": lambda: os.mkdir(folder + "/made"),
    "mkfifo": lambda: os.mkfifo(folder + "/fifo"),
    "symlink": lambda: os.symlink("secret", folder + "/symlink"),
    "link": lambda: os.link(folder + "/secret", folder + "/link"),
    "rename": lambda: os.rename(folder + "/old", folder + "/renamed"),
    "unlink": lambda: os.unlink(folder + "/unwanted"),
    "rmdir": lambda: os.rmdir(folder + "/empty"),
    "chmod": lambda: os.chmod(folder + "/secret", 0o600),
    "write_null": lambda: open(os.devnull, "w").write("x"),
    "tcp_connect": lambda: socket.create_connection(address),
    "tcp_listen": lambda: socket.socket().bind(("127.0.0.1", 0)),
    "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", address),
    "abstract_socket": lambda: socket.socket(socket.AF_UNIX).connect("\\0" + given["abstract"]),
    "socketpair": lambda: socket.socketpair(),
    "fork": fork,
    "thread": start_thread,
    "clone3": lambda: call(435, 435, None, 0),
    "kill_parent": lambda: os.kill(given["parent"], 0),
    "kill_self": lambda: os.kill(os.getpid(), 0),
    "tgkill_self": lambda: call(234, 131, os.getpid(), os.getpid(), 0),
    "signal_by_owner": lambda: fcntl.fcntl(1, fcntl.F_SETOWN, 0),
    "ptrace_seize": lambda: call(101, 117, 0x4206, given["victim"], 0, 0),
    "read_memory": lambda: call(310, 270, given["victim"], None, 0, None, 0, 0),
    "write_memory": lambda: call(311, 271, given["victim"], None, 0, None, 0, 0),
    "pidfd": lambda: os.close(os.pidfd_open(given["victim"])),
    "unshare": lambda: call(272, 97, 0),
    "setns": lambda: call(308, 268, -1, 0),
    "mount": lambda: call(165, 40, None, None, None, 0, None),
    "chroot": lambda: call(161, 51, None),
    "set_limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit),
    "set_affinity": lambda: os.sched_setaffinity(0, affinity),
    "prctl": lambda: call(157, 167, 3, 0, 0, 0, 0),
    "ioctl": lambda: fcntl.ioctl(1, 0x541B, bytes(4)),
    "memfd": lambda: os.close(os.memfd_create("x")),
    "shared_memory": lambda: call(29, 194, 0, 0, 0),
    "semaphores": lambda: call(64, 190, 0, -1, 0),
    "keyring": lambda: call(250, 219, 6, 0, 0, 0, 0),
    "io_uring": lambda: call(425, 425, 0, None),
    "userfaultfd": lambda: call(323, 282, 2),
    "perf_events": lambda: call(298, 241, None, 0, -1, -1, 0),
    "madvise": lambda: call(28, 233, 0, 0, 4),
}
apply(given["layers"])
print(json.dumps({name: outcome(action) for name, action in attacks.items()}))
"""


def _prepare(folder):
    """The files that the attacks are after."""
    folder.mkdir()
    (folder / "empty").mkdir()
    for name in ("secret", "old", "unwanted"):
        (folder / name).write_text("secret")
    return str(folder)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """{layers: {attack: outcome}}; the attackers find a TCP and an abstract socket, and a process."""
    base = tmp_path_factory.mktemp("layers")
    abstract = f"jaxmarl-layers-{os.getpid()}"
    command = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        subprocess.Popen(command, stdin=subprocess.PIPE) as victim,
    ):
        unix.bind("\0" + abstract)
        unix.listen()
        given = {"port": tcp.getsockname()[1], "abstract": abstract}
        given |= {"parent": os.getpid(), "victim": victim.pid}
        actual = {}
        for layers in LAYERS:
            given |= {"layers": layers, "folder": _prepare(base / ("-".join(layers) or "none"))}
            actual[layers] = report(ATTACKS, given)
        victim.stdin.close()
    return actual


@pytest.mark.parametrize(
    "attack, needed_abi, expected",
    [  # expected without a layer, with Landlock, with seccomp, with both
        ("read", 1, "ok EACCES ok EACCES"),
        ("list", 1, "ok EACCES ok EACCES"),
        ("list_root", 1, "ok EACCES ok EACCES"),
        ("read_environment", 1, "ok EACCES ok EACCES"),
        ("write", 1, "ok EACCES EPERM EPERM"),
        ("append", 1, "ok EACCES EPERM EPERM"),
        ("truncate", 1, "ok EACCES EPERM EPERM"),
        ("truncate_by_path", 3, "ok EACCES EPERM EPERM"),
        ("mkdir", 1, "ok EACCES EPERM EPERM"),
        ("mkfifo", 1, "ok EACCES EPERM EPERM"),
        ("symlink", 1, "ok EACCES EPERM EPERM"),
        ("link", 1, "ok EACCES EPERM EPERM"),
        ("rename", 1, "ok EACCES EPERM EPERM"),
        ("unlink", 1, "ok EACCES EPERM EPERM"),
        ("rmdir", 1, "ok EACCES EPERM EPERM"),
        ("chmod", 1, "ok ok EPERM EPERM"),
        ("write_null", 1, "ok ok EPERM EPERM"),
        ("tcp_connect", 4, "ok EACCES EPERM EPERM"),
        ("tcp_listen", 4, "ok EACCES EPERM EPERM"),
        ("udp", 1, "ok ok EPERM EPERM"),
        ("abstract_socket", 6, "ok EPERM EPERM EPERM"),
        ("socketpair", 1, "ok ok EPERM EPERM"),
        ("fork", 1, "ok ok EPERM EPERM"),
        ("thread", 1, "ok ok RuntimeError RuntimeError"),
        ("clone3", 1, "EINVAL EINVAL ENOSYS ENOSYS"),
        ("kill_parent", 6, "ok EPERM EPERM EPERM"),
        ("kill_self", 1, "ok ok EPERM EPERM"),
        ("tgkill_self", 1, "ok ok EPERM EPERM"),
        ("signal_by_owner", 1, "ok ok EPERM EPERM"),
        ("ptrace_seize", 1, "ok EPERM EPERM EPERM"),
        ("read_memory", 1, "ok ok EPERM EPERM"),
        ("write_memory", 1, "ok ok EPERM EPERM"),
        ("pidfd", 1, "ok ok EPERM EPERM"),
        ("unshare", 1, "ok ok EPERM EPERM"),
        ("setns", 1, "EBADF EBADF EPERM EPERM"),
        ("mount", 1, "EFAULT EFAULT EPERM EPERM"),
        ("chroot", 1, "EFAULT EFAULT EPERM EPERM"),
        ("set_limit", 1, "ok ok ValueError ValueError"),
        ("set_affinity", 1, "ok ok EPERM EPERM"),
        ("prctl", 1, "ok ok EPERM EPERM"),
        ("ioctl", 1, "ok ok EPERM EPERM"),
        ("memfd", 1, "ok ok EPERM EPERM"),
        ("shared_memory", 1, "EINVAL EINVAL EPERM EPERM"),
        ("semaphores", 1, "EINVAL EINVAL EPERM EPERM"),
        ("keyring", 1, "EINVAL EINVAL EPERM EPERM"),
        ("io_uring", 1, "EFAULT EFAULT EPERM EPERM"),
        ("userfaultfd", 1, "EINVAL EINVAL EPERM EPERM"),
        ("perf_events", 1, "EFAULT EFAULT EPERM EPERM"),
        ("madvise", 1, "ok ok EPERM EPERM"),
    ],
)
def test_what_each_layer_refuses(outcomes, attack, needed_abi, expected):
    actual = [outcomes[layers][attack] for layers in LAYERS]
    expected = expected.split()
    if actual[0] != expected[0] and actual[0] in ("EPERM", "ENOSYS"):
        pytest.skip(f"this machine refuses it without the layers too: {actual[0]}")
    if landlock.abi() < needed_abi:
        pytest.skip(f"Landlock here is ABI {landlock.abi()}, not {needed_abi}")
    assert actual == expected, actual


@pytest.mark.parametrize(
    "layers, expected",
    [((), 7), (("landlock",), "EACCES"), (("seccomp",), "EPERM"), (("landlock", "seccomp"), "EPERM")],
)
def test_no_other_program_is_started(layers, expected):
    # Where it works the shell takes the place of the interpreter, and 7 is its exit status.
    body = """
apply(given)
print(json.dumps(outcome(lambda: os.execv("/bin/sh", ["sh", "-c", "exit 7"]))))
"""
    done = start(body, layers)
    assert (json.loads(done.stdout) if done.stdout else done.returncode) == expected, done.stderr


@pytest.mark.parametrize("layers", [(), ("landlock", "seccomp")])
def test_abort_ends_the_process(layers):
    done = start("apply(given)\nos.abort()\n", layers)
    instead = (signal.SIGSEGV, signal.SIGTRAP, signal.SIGILL)
    assert -done.returncode in (instead if layers else (signal.SIGABRT,))


def test_ordinary_python_runs_inside_both_layers():
    body = """
new = "decimal statistics uuid bisect fractions textwrap csv calendar zoneinfo logging difflib".split()
new = [name for name in new if name not in sys.modules]
apply(["landlock", "seccomp"])
found = {"new": len([__import__(name) for name in new])}

import decimal, hashlib, inspect, random, statistics, textwrap, time, uuid
found["extension"] = "_zoneinfo" in sys.modules
found["mean"] = str(statistics.mean([decimal.Decimal(1), decimal.Decimal("2.5")]))
module = {}
exec(compile("def f(x):\\n    return [i * i for i in range(x)]", "<text>", "exec"), module)
found["compiled"] = module["f"](4)
found["big"] = [len(bytearray(200 << 20)), len(list(range(3_000_000))), len(str(7**4999))]
found["time"] = time.time() > 1e9 and time.process_time() > 0 and time.monotonic() > 0
begin = time.monotonic()
time.sleep(0.02)
threading.Event().wait(0.02)
found["slept"] = time.monotonic() - begin >= 0.04
found["random"] = random.SystemRandom().random() < 1 and len(os.urandom(8)) == 8 and random.random() < 1
found["uuid"] = uuid.uuid4() != uuid.uuid4()
found["sha256"] = hashlib.sha256(b"").hexdigest()[:8]
found["source"] = inspect.getsource(textwrap).startswith('\"\"\"')

def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)
found["deep"] = deep(900)
found["bottomless"] = outcome(lambda: deep(10**6))
found["raised"] = [outcome(lambda: 1 / 0), outcome(lambda: [][1]), outcome(lambda: exec("("))]
found["no_memory"] = outcome(lambda: bytearray(1 << 60))
caught = []
signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
found["limit"] = resource.getrlimit(resource.RLIMIT_CORE)
os.close(os.dup(0))
print("to stderr", file=sys.stderr)
found["line"] = input()
print(json.dumps(found))
"""
    actual = report(body, input="through a pipe\n")
    assert actual.pop("new") > 5  # how many there are to import depends on the version
    assert actual == {
        "extension": True,
        "mean": "1.75",
        "compiled": [0, 1, 4, 9],
        "big": [200 << 20, 3_000_000, 4225],
        "time": True,
        "slept": True,
        "random": True,
        "uuid": True,
        "sha256": "e3b0c442",
        "source": True,
        "deep": 900,
        "bottomless": "RecursionError",
        "raised": ["ZeroDivisionError", "IndexError", "SyntaxError"],
        "no_memory": "MemoryError",
        "limit": [0, 0],
        "line": "through a pipe",
    }


def test_a_writable_folder_takes_files_and_nothing_else_does(tmp_path):
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "secret").write_text("before")
    body = """
inside, outside = given
apply(["landlock", "seccomp"], writable=[inside])
import shutil, tempfile
os.makedirs(inside + "/a/b")
with open(inside + "/a/file", "w+") as file:
    file.write("0123456789")
    file.truncate(4)
    file.seek(0)
    text = file.read()
os.rename(inside + "/a/file", inside + "/a/b/moved")
with tempfile.TemporaryDirectory(dir=inside) as folder:
    open(folder + "/x", "w").close()
names = os.listdir(inside), os.listdir(inside + "/a/b")
shutil.rmtree(inside + "/a")
refused = [
    lambda: open(outside + "/secret"),
    lambda: open(outside + "/new", "w"),
    lambda: open(outside + "/secret", "a"),
    lambda: os.mkdir(outside + "/new"),
    lambda: os.unlink(outside + "/secret"),
    lambda: os.rename(outside + "/secret", inside + "/secret"),
    lambda: os.symlink("x", inside + "/link"),
    lambda: os.mkfifo(inside + "/fifo"),
    lambda: socket.socketpair(),
]
open(os.devnull, "w").write("x")
print(json.dumps([text, names, os.listdir(inside), [outcome(action) for action in refused]]))
"""
    text, names, left, refused = report(body, [str(inside), str(outside)])
    assert (text, names, left) == ("0123", [["a"], ["moved"]], [])
    assert refused == ["EACCES"] * 6 + ["EPERM"] * 3
    assert (outside / "secret").read_text() == "before"
    assert os.listdir(outside) == ["secret"]


def test_landlock_alone_keeps_readable_folders_and_special_files(tmp_path):
    body = """
readable, writable = given
apply([])
landlock.restrict([readable], [writable])
def make(folder):
    return [outcome(action) for action in (
        lambda: open(folder + "/file", "w").close(),
        lambda: os.mkdir(folder + "/folder"),
        lambda: os.symlink("file", folder + "/symlink"),
        lambda: os.mkfifo(folder + "/fifo"),
        lambda: socket.socket(socket.AF_UNIX).bind(folder + "/socket"),
        lambda: os.unlink(folder + "/old"),
    )]
print(json.dumps([make(readable), make(writable)]))
"""
    folders = [tmp_path / "readable", tmp_path / "writable"]
    for folder in folders:
        folder.mkdir()
        (folder / "old").touch()
    actual = report(body, [str(folder) for folder in folders])
    assert actual == [["EACCES"] * 6, ["ok", "ok", "EACCES", "EACCES", "EACCES", "ok"]]


def test_landlock_names_what_failed_and_keeps_no_descriptor(tmp_path):
    file = tmp_path / "readable"
    file.write_text("text")
    body = """
folder, file = given
def open_descriptors():
    found = set()
    for fd in range(64):
        try:
            os.fstat(fd)
        except OSError:
            continue
        found.add(fd)
    return found

before = open_descriptors()
prctl(PR_SET_NO_NEW_PRIVS, 1)
resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + 2, len(before) + 2))
try:
    landlock.restrict([folder + "/missing"])
except OSError as error:
    told = [errno.errorcode[error.errno], error.filename]
still = outcome(lambda: os.listdir(folder))
landlock.restrict([file])
print(json.dumps([told, still, open_descriptors() == before, open(file).read(),
                  outcome(lambda: os.listdir(folder))]))
"""
    actual = report(body, [str(tmp_path), str(file)])
    assert actual == [["ENOENT", f"{tmp_path}/missing"], "ok", True, "text", "EACCES"]


def test_both_layers_need_no_new_privs_and_say_so():
    body = """
if os.geteuid() == 0:
    os.setuid(65534)
print(json.dumps([outcome(seccomp.install), outcome(lambda: landlock.restrict([]))]))
"""
    assert report(body) == ["EACCES", "EPERM"]


def test_a_kernel_without_landlock_is_an_error(monkeypatch):
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    with pytest.raises(OSError, match="no Landlock"):
        landlock.restrict([])


@pytest.mark.parametrize(
    "version, expected",
    [  # how many rights to files, to the network, and scopes
        (1, (13, 0, 0)),
        (2, (14, 0, 0)),
        (3, (15, 0, 0)),
        (4, (15, 2, 0)),
        (5, (16, 2, 0)),
        (6, (16, 2, 2)),
        (8, (16, 2, 2)),
        (9, (17, 2, 2)),
        (99, (17, 2, 2)),
    ],
)
def test_all_rights_of_a_version_are_handled(version, expected):
    assert landlock._handled(version) == tuple((1 << count) - 1 for count in expected)


def test_older_versions_are_asked_for_what_they_know(tmp_path):
    # This kernel in place of older ones: it accepts their sets of rights, and reading is refused under all.
    body = """
prctl(PR_SET_NO_NEW_PRIVS, 1)
found = []
for version in range(1, landlock.abi() + 1):
    pid = os.fork()
    if pid == 0:
        landlock.abi = lambda: version
        landlock.restrict(stdlib, [given])
        os._exit(7 if outcome(lambda: open("/etc/passwd")) == "EACCES" else 0)
    found.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps(found))
"""
    assert report(body, str(tmp_path)) == [7] * landlock.abi()


def test_reasons_against_seccomp(monkeypatch):
    assert seccomp.supported() == ""
    monkeypatch.setattr(seccomp, "_set_filter", lambda program: 22)
    assert "Invalid argument" in seccomp.supported()
    monkeypatch.setattr(seccomp, "_MACHINE", "riscv64")
    assert "riscv64" in seccomp.supported()
    with pytest.raises(ValueError, match="riscv64.*x86_64, aarch64"):
        seccomp.program("riscv64")


def test_x32_calls_are_refused_by_the_kernel():
    if os.uname().machine != "x86_64":
        pytest.skip("x32 is a part of x86_64")
    body = "apply(given)\nprint(json.dumps(outcome(lambda: call(0x40000000 | 39, 0))))\n"
    assert report(body, ["seccomp"]) == "EPERM"
    assert report(body, []) in ("ENOSYS", "ok")


ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x50001, 0x50026
ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def decide(code, arch, number, *arguments):
    """Run a filter as the kernel does: the value it returns for a call."""
    words = [word % (1 << 64) for word in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("<IIQ6Q", number, arch, 0, *words)
    at, accumulator = 0, 0
    while True:
        operation, if_true, if_false, value = struct.unpack_from("<HBBI", code, 8 * at)
        at += 1
        if operation == 0x20:  # load a word
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x15:
            at += if_true if accumulator == value else if_false
        else:
            assert operation == 0x06, hex(operation)
            return value


# name: number on x86_64, on aarch64, or None; asked without arguments.
ALLOWED = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "lseek": (8, 62), "pread64": (17, 67),
    "fstat": (5, 80), "newfstatat": (262, 79), "stat": (4, None), "lstat": (6, None),
    "getdents64": (217, 61), "getcwd": (79, 17), "open": (2, None), "openat": (257, 56), "brk": (12, 214),
    "mmap": (9, 222), "munmap": (11, 215), "mremap": (25, 216), "mprotect": (10, 226),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115),
    "restart_syscall": (219, 128), "getrandom": (318, 278), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "getpid": (39, 172), "getppid": (110, 173),
    "gettid": (186, 178), "uname": (63, 160), "exit": (60, 93), "exit_group": (231, 94),
    "prlimit64": (302, 261), "ftruncate": (77, 46),
}  # fmt: skip
FILES = {
    "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None),
    "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276),
}  # fmt: skip


@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("column, machine", [(0, "x86_64"), (1, "aarch64")])
def test_the_filter_allows_these_calls_and_no_others(column, machine, files):
    code = seccomp.program(machine, files)
    names = ALLOWED | FILES if files else ALLOWED
    expected = {numbers[column] for numbers in names.values()} - {None}
    numbers = range(1024)
    assert {n for n in numbers if decide(code, ARCHES[machine], n) == ALLOW} == expected
    assert [n for n in numbers if decide(code, ARCHES[machine], n) == ENOSYS] == [435]
    assert {decide(code, ARCHES[machine], n | 0x40000000) for n in numbers} == {EPERM}
    other_arches = {*ARCHES.values(), 0x40000003, 0x40000028} - {ARCHES[machine]}
    assert {decide(code, arch, n) for n in numbers for arch in other_arches} == {EPERM}


@pytest.mark.parametrize("column, machine", [(0, "x86_64"), (1, "aarch64")])
def test_agents_that_are_connected_may_wait_for_several_descriptors(column, machine):
    code = seccomp.program(machine, waits=True)
    expected = {numbers[column] for numbers in (*ALLOWED.values(), (7, None), (271, 73))} - {None}
    assert {n for n in range(1024) if decide(code, ARCHES[machine], n) == ALLOW} == expected


@pytest.mark.parametrize(
    "numbers, arguments, decision",
    [
        ((257, 56), (-100, 1, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY), ALLOW),  # openat
        ((257, 56), (-100, 1, os.O_WRONLY), EPERM),
        ((257, 56), (-100, 1, os.O_RDWR), EPERM),
        ((257, 56), (-100, 1, os.O_RDONLY | os.O_CREAT), EPERM),
        ((257, 56), (-100, 1, os.O_RDONLY | os.O_TRUNC), EPERM),
        ((257, 56), (-100, 1, 3), EPERM),
        ((2, None), (1, os.O_RDONLY), ALLOW),  # open
        ((2, None), (1, os.O_WRONLY), EPERM),
        ((16, 29), (0, 0x5401), ALLOW),  # ioctl TCGETS
        ((16, 29), (0, 0x5451), ALLOW),  # FIOCLEX
        ((16, 29), (0, 0x5412), EPERM),  # TIOCSTI
        ((16, 29), (0x5401, 0), EPERM),
        ((16, 29), (0, 0x5412 | 0x5401 << 32), EPERM),  # the kernel sees the low half
        ((72, 25), (0, 1), ALLOW),  # fcntl F_GETFD
        ((72, 25), (0, 1030), ALLOW),  # F_DUPFD_CLOEXEC
        ((72, 25), (0, 4), EPERM),  # F_SETFL
        ((72, 25), (0, 8), EPERM),  # F_SETOWN
        ((202, 98), (0, 128), ALLOW),  # futex FUTEX_WAIT_PRIVATE
        ((202, 98), (0, 393), ALLOW),  # FUTEX_WAIT_BITSET_PRIVATE with CLOCK_REALTIME
        ((202, 98), (0, 6), EPERM),  # FUTEX_LOCK_PI
        ((302, 261), (0, 7, 0, 0x7FFF12345678), ALLOW),  # prlimit64, reading
        ((302, 261), (0, 7, 0x12345678, 0), EPERM),
        ((302, 261), (0, 7, 0x7FFF00000000, 0), EPERM),
        ((302, 261), (0, 7, 1, 0), EPERM),
        ((302, 261), (5, 7, 0, 1), EPERM),  # of another process
    ],
)
@pytest.mark.parametrize("column, machine", [(0, "x86_64"), (1, "aarch64")])
def test_the_filter_looks_at_arguments(column, machine, numbers, arguments, decision):
    code = seccomp.program(machine)
    number = numbers[column]
    if number is not None:
        assert decide(code, ARCHES[machine], number, *arguments) == decision
    if number in (257, 56, 2) and number is not None:
        assert decide(seccomp.program(machine, files=True), ARCHES[machine], number, *arguments) == ALLOW
