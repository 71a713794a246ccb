"""Namespaces around the zygote: what is left inside, as root and as an ordinary user, and how it all ends."""

import contextlib
import ctypes
import json
import os
import pathlib
import secrets
import select
import signal
import socket
import subprocess
import sys

import pytest

from jaxmarl_llm.executor.isolation import namespaces

FOLDER = str(pathlib.Path(namespaces.__file__).parents[1])
ORDINARY = 54321  # a user and a group that nobody has
# Loaded by name after entering; most have shared libraries of their own.
MODULES = "decimal hashlib ssl sqlite3 ctypes lzma bz2 zlib uuid unicodedata asyncio xml.etree.ElementTree"

# Runs in a fresh interpreter; `facts` come from the test, `send` writes to its pipe.
BOOT = """
import ctypes, errno, importlib, json, os, signal, socket, sys, time, types
facts = json.loads(sys.argv[1])
package = types.ModuleType("executor")
package.__path__ = [facts["folder"]]
sys.modules["executor"] = package
confine, libc, namespaces, scheduling, zygote = (
    importlib.import_module(f"executor.{name}")
    for name in (
        "isolation.confine", "isolation.libc", "isolation.namespaces", "scheduling", "sandbox.zygote"
    )
)
if facts["become"]:
    os.setgroups([])
    os.setresgid(*[facts["become"]] * 3)
    os.setresuid(*[facts["become"]] * 3)
confine.worker_process(os.getppid())
def send(message):
    os.write(facts["pipe"], json.dumps(message).encode() + b"\\n")
"""

# Harmless, and done outside too: there it shows that the attempts succeed where nothing is in the way.
ATTEMPTS = """
def attempt(function, *args):
    try:
        function(*args)
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
def c_library(name, *args):
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*args) == -1:
        raise OSError(ctypes.get_errno(), name)
def connect(family, kind, address):
    with socket.socket(family, kind) as sock:
        sock.connect(address)
def imports(name):
    try:
        importlib.import_module(name)
        return ""
    except ImportError as error:
        return str(error)
report = {
    "uid": os.getresuid(),
    "gid": os.getresgid(),
    "hostname": os.uname().nodename,
    "read": {path: attempt(open, path) for path in facts["read"]},
    "tcp": attempt(connect, socket.AF_INET, socket.SOCK_STREAM, tuple(facts["tcp"])),
    "udp": attempt(connect, socket.AF_INET, socket.SOCK_DGRAM, tuple(facts["tcp"])),
    "abstract": attempt(connect, socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + facts["abstract"]),
    "shm": attempt(c_library, "shmget", facts["shm"], 0, 0),
    "signal": attempt(os.kill, facts["tester"], 0),
    "imports": {name: imports(name) for name in facts["modules"]},
}
"""

# Not harmless outside, so nothing of it runs unless the process is pid 1 of a namespace.
INSIDE = """
assert os.getpid() == 1 and os.getppid() == 0
stdlib = os.path.dirname(os.__file__)
files, folders = [], []
for folder, below, names in os.walk("/"):
    below[:] = [name for name in below if os.path.join(folder, name) != stdlib]
    folders.append(folder)
    files += [os.path.join(folder, name) for name in names]
packages = [name for name in ("site-packages", "dist-packages") if os.path.isdir(os.path.join(stdlib, name))]
libraries = os.path.dirname(next(path for path in files if ".so." in path and path.startswith("/lib")))
capabilities = ctypes.create_string_buffer(b"\\xff" * 24, 24)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
c_library("capget", header, capabilities)
report |= {
    "files": files,
    "folders": folders,
    "tmp": os.listdir("/tmp"),
    "packages": [os.listdir(os.path.join(stdlib, name)) for name in packages],
    "stdlib": stdlib,
    "write": {
        folder: attempt(open, folder + "/new", "x")
        for folder in ("/", "/tmp", "/dev", stdlib, libraries, *[f"{stdlib}/{name}" for name in packages])
    },
    "chmod": attempt(os.chmod, stdlib, 0o777),
    "null": attempt(lambda: open("/dev/null", "r+b", 0).write(b"x")),
    "mount": attempt(c_library, "mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None),
    "remount": attempt(c_library, "mount", None, b"/", None, 32 | 4096, None),  # MS_REMOUNT | MS_BIND
    "unmount": attempt(c_library, "umount2", b"/tmp", 2),
    "unshare": {name: attempt(c_library, "unshare", flag) for name, flag in facts["unshare"].items()},
    "capabilities": capabilities.raw.hex(),
    "bounding": [number for number in range(64) if ctypes.CDLL(None).prctl(23, number) == 1],
    "no_new_privs": ctypes.CDLL(None).prctl(39, 0, 0, 0, 0),
    "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
    "root_again": [attempt(os.setuid, 0), attempt(os.setgid, 0)],
    "hostname_again": attempt(socket.sethostname, "other"),
    "signal_all": attempt(os.kill, -1, 0),
}
"""

# What zygote.py does: watch a child's clock, bury it, adopt and kill orphans.
CHILDREN = """
assert os.getpid() == 1
pid = os.fork()
if pid == 0:
    end = time.process_time() + 0.1
    while time.process_time() < end:
        sum(range(1000))
    signal.pause()
while scheduling.cpu_clock(pid) < 0.1:
    time.sleep(0.01)
report["clock"] = scheduling.cpu_clock(pid)
os.kill(pid, signal.SIGKILL)
_, status, usage = os.wait4(pid, 0)
report["status"], report["usage"] = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        while os.getppid() != 1:
            time.sleep(0.005)
        report["reach"] = attempt(os.kill, 1, signal.SIGKILL)  # "done", and without effect
        os.write(write, report["reach"].encode())
        signal.pause()
    os._exit(0)
report["orphan"] = os.read(read, 100).decode()
os.kill(-1, signal.SIGKILL)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
report["left"] = attempt(os.kill, -1, 0)
"""


@pytest.fixture(autouse=True, scope="module")
def needs_namespaces():
    reason = namespaces.supported()
    if reason:
        pytest.skip(reason)


def start(script, become=0, python=sys.executable, **facts):
    """A fresh interpreter that runs BOOT and the script; (process, read end of its pipe)."""
    read, write = os.pipe()
    facts |= {"folder": FOLDER, "become": become, "pipe": write}
    process = subprocess.Popen(
        [python, "-B", "-s", "-S", "-P", "-c", BOOT + script, json.dumps(facts)],
        env={"LC_ALL": "C.UTF-8"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[write],
        start_new_session=True,
    )
    os.close(write)
    return process, os.fdopen(read, "rb", 0)


@contextlib.contextmanager
def started(script, **facts):
    process, pipe = start(script, **facts)
    with process, pipe:
        try:
            yield process, pipe
        finally:
            process.kill()


def read_all(script, **facts):
    """The one message of a script that runs to its end."""
    with started(script, **facts) as (process, pipe):
        text = pipe.read()
        errors = process.stderr.read().decode()
        assert process.wait() == 0, errors
        return json.loads(text)


def python_for_everybody():
    """An interpreter that an ordinary user can start; None where there is none."""
    user = {"user": ORDINARY, "group": ORDINARY, "extra_groups": []}
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        command = [python, "-I", "-S", "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        with contextlib.suppress(OSError):
            if subprocess.run(command, **user, stderr=subprocess.DEVNULL).returncode == 0:
                return python
    return None


@pytest.fixture(scope="module", params=["as we are", "as an ordinary user"])
def reports(request):
    """The same attempts by the same user, {"outside": report, "inside": report}."""
    become, python = 0, sys.executable
    if request.param != "as we are":
        if os.geteuid() != 0:
            pytest.skip("we are an ordinary user already")
        become, python = ORDINARY, python_for_everybody()
        if python is None:
            pytest.skip("no interpreter that an ordinary user can start")
    libc = ctypes.CDLL(None, use_errno=True)
    name, key = secrets.token_hex(8), secrets.randbelow(1 << 30) + 1
    shm = libc.shmget(key, 4096, 0o1000 | 0o2000 | 0o666)  # IPC_CREAT | IPC_EXCL
    assert shm >= 0
    listening = socket.create_server(("127.0.0.1", 0))
    abstract = socket.socket(socket.AF_UNIX)
    with listening, abstract:
        abstract.bind("\0" + name)
        abstract.listen()
        facts = {
            "become": become,
            "python": python,
            "read": ["/etc/passwd", "/proc/self/status", "/proc", "/usr/bin/env", "/bin/sh", "/sys/kernel"],
            "tcp": listening.getsockname(),
            "abstract": name,
            "shm": key,
            "tester": os.getpid(),
            "modules": MODULES.split(),
            "unshare": {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000},
        }
        try:
            outside = read_all(ATTEMPTS + "send(report)", **facts)
            inside = read_all("namespaces.enter()\n" + ATTEMPTS + INSIDE + CHILDREN + "send(report)", **facts)
        finally:
            libc.shmctl(shm, 0, None)  # IPC_RMID
    return {"outside": outside, "inside": inside, "become": become}


def test_identity(reports):
    inside, outside = reports["inside"], reports["outside"]
    want = namespaces.NOBODY if outside["uid"][0] == 0 else outside["uid"][0]
    assert inside["uid"] == [want] * 3
    assert inside["gid"] == [namespaces.NOBODY if want == namespaces.NOBODY else outside["gid"][0]] * 3
    assert inside["hostname"] == "sandbox" != outside["hostname"]


def test_no_capabilities_and_no_way_back(reports):
    inside = reports["inside"]
    assert inside["capabilities"] == "00" * 24
    assert inside["bounding"] == []
    assert inside["no_new_privs"] == 1 and inside["dumpable"] == 0
    assert inside["root_again"] == ["EINVAL", "EINVAL"]  # ids that do not exist inside
    assert inside["hostname_again"] == "EPERM"
    assert [inside["mount"], inside["remount"], inside["unmount"]] == ["EPERM"] * 3
    assert [inside["unshare"][name] for name in ("mount", "pid", "net")] == ["EPERM"] * 3


@pytest.mark.skipif(
    os.path.isdir("/proc/sys/user") and bool(os.statvfs("/proc/sys/user").f_flag & os.ST_RDONLY),
    reason="/proc/sys is read-only",
)
def test_no_user_namespace_inside(reports):
    assert reports["inside"]["unshare"]["user"] == "ENOSPC"
    # The limit is that of the sandbox: the host's is untouched.
    assert int(pathlib.Path("/proc/sys/user/max_user_namespaces").read_text()) > 0


def test_files(reports):
    inside = reports["inside"]
    stdlib, files = inside["stdlib"], [path for path in inside["files"] if path != "/dev/null"]
    assert "/dev/null" in inside["files"]
    assert [path for path in files if ".so" not in os.path.basename(path)] == []
    shown = [stdlib, "/tmp", "/library", "/dev", *(os.path.dirname(path) for path in files)]
    for folder in inside["folders"]:
        assert any(f"{path}/".startswith(folder.rstrip("/") + "/") for path in shown), folder
    assert inside["tmp"] == [] and not any(inside["packages"])
    assert not [path for path in inside["folders"] if path.startswith(FOLDER)]


def test_reads(reports):
    outside, inside = reports["outside"]["read"], reports["inside"]["read"]
    assert outside["/etc/passwd"] == outside["/proc/self/status"] == "done"
    assert set(inside.values()) == {"ENOENT"}


def test_writes(reports):
    inside = reports["inside"]
    # The zygote may write to /tmp; what a candidate may do there is for Landlock and seccomp to say.
    assert inside["write"].pop("/tmp") == "done"
    assert set(inside["write"].values()) == {"EROFS"}
    assert inside["chmod"] == "EROFS"
    assert inside["null"] == "done"


def test_network(reports):
    outside, inside = reports["outside"], reports["inside"]
    assert [outside[name] for name in ("tcp", "udp", "abstract")] == ["done"] * 3
    assert [inside[name] for name in ("tcp", "udp")] == ["ENETUNREACH"] * 2
    assert inside["abstract"] == "ECONNREFUSED"


def test_other_processes_and_shared_memory(reports):
    outside, inside = reports["outside"], reports["inside"]
    assert outside["signal"] == ("EPERM" if reports["become"] else "done")
    assert inside["signal"] == inside["signal_all"] == "ESRCH"
    assert (outside["shm"], inside["shm"]) == ("done", "ENOENT")


def test_standard_library(reports):
    outside, inside = reports["outside"]["imports"], reports["inside"]["imports"]
    assert inside == outside
    assert inside["decimal"] == inside["hashlib"] == ""


def test_children_are_watched_and_killed(reports):
    inside = reports["inside"]
    assert 0.1 <= inside["clock"] < 1
    assert inside["clock"] - 0.02 <= inside["usage"]
    assert inside["status"] == -signal.SIGKILL
    assert inside["orphan"] == "done"  # the signal to pid 1 was accepted, and pid 1 lives to report it
    assert inside["left"] == "ESRCH"


# A parent that starts the outer process and then sleeps, like the trainer; the pipe stays open inside only.
FAMILY = """
pid = os.fork()
if pid == 0:
    confine.worker_process(os.getppid())
    outer = os.getpid()
    namespaces.enter()
    if os.fork():
        send(outer)
    signal.pause()
os.close(facts["pipe"])
signal.pause()
"""


def ends_within(pipe, seconds):
    """Whether the last writer of the pipe closes it within the time."""
    ready, _, _ = select.select([pipe], [], [], seconds)
    return bool(ready) and pipe.read() == b""


@pytest.mark.parametrize("victim", ["outer", "parent"])
def test_everything_inside_dies_with_the_outer_process_or_its_parent(victim):
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    with started(FAMILY) as (process, pipe):
        outer = json.loads(pipe.readline())
        assert not ends_within(pipe, 0.2)
        assert pathlib.Path("/proc/self/mountinfo").read_text() == mounts
        os.kill(outer if victim == "outer" else process.pid, signal.SIGKILL)
        assert ends_within(pipe, 2)
    assert pathlib.Path("/proc/self/mountinfo").read_text() == mounts


def inner(process):
    """The host's number of the process inside."""
    return int(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


def test_outer_process_ends_like_the_inner_one_and_holds_nothing_open():
    script = "namespaces.enter()\nsend(1)\nos.close(facts['pipe'])\ntime.sleep(1.5)\nos._exit(7)"
    with started(script) as (process, pipe):
        assert pipe.readline() == b"1\n"
        assert ends_within(pipe, 1)
        assert process.poll() is None
        assert process.wait(5) == 7
    with started("namespaces.enter()\nsend(1)\nsignal.pause()") as (process, pipe):
        pipe.readline()
        os.kill(inner(process), signal.SIGKILL)
        assert process.wait(5) == -signal.SIGKILL


def test_user_as_the_host_sees_it():
    # Inside, a root that is not in the map would look like NOBODY too.
    want = str(namespaces.NOBODY if os.geteuid() == 0 else os.geteuid())
    with started("namespaces.enter()\nsend(1)\nsignal.pause()") as (process, pipe):
        pipe.readline()
        for pid in (process.pid, inner(process)):
            status = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
            fields = dict(line.split(":", 1) for line in status)
            assert fields["Uid"].split() == [want] * 4
            if os.geteuid() == 0:
                assert fields["Gid"].split() == [want] * 4 and fields["Groups"].split() == []


def test_supported_says_why_not():
    # In a user namespace of its own that allows none below it.
    script = """
libc.call("unshare", 0x10000000)
with open("/proc/sys/user/max_user_namespaces", "w") as file:
    file.write("0")
send(namespaces.supported())
"""
    reason = read_all(script)
    assert "[Errno 28] unshare" in reason
    assert "sysctl user.max_user_namespaces is 0: raise it" in reason


def test_without_an_interpreter_to_show_it_fails():
    script = """
os.__file__ = "/no/such/folder/os.py"
try:
    namespaces.enter()
except OSError as error:
    send(error.errno)
"""
    assert read_all(script) == 2
