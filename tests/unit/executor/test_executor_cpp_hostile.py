"""What hostile C++ text does to the compiler: files it names, work it asks for, processes that it leaves.

Where a confined compiler refuses, the same text is tried without confinement, so that the refusal is known to
be the confinement's.
"""

import base64
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from jaxmarl_llm.executor.cpp import compiler as cpp_compiler
from jaxmarl_llm.executor.cpp import tools as cpp_tools
from jaxmarl_llm.executor.isolation import libc
from jaxmarl_llm.executor.process import ENVIRONMENT, Process, WorkerDied, wait

if sys.platform != "linux":
    pytest.skip("the compiler is confined on Linux only", allow_module_level=True)
SIGNATURE = "int f(int x)"
GOOD = "int f(int x) { return x + 1; }\n"
TOKEN = "Ws7kQ2token"
PATIENCE = 300  # seconds until a test counts as hanging


@pytest.fixture(scope="module")
def compilers():
    """{level: compiler}"""
    try:
        return {level: cpp_compiler.Compiler(level) for level in (1, 2)}
    except cpp_tools.NoCompiler as error:
        pytest.skip(str(error))


@pytest.fixture
def leftovers(tmp_path, monkeypatch):
    """Afterwards: this process inherited no process from those that it started, and no folder is left."""
    monkeypatch.setitem(ENVIRONMENT, "TMPDIR", str(tmp_path))  # elsewhere others make such folders
    monkeypatch.setattr(sys.modules[__name__], "BEFORE", frozenset(_children()))
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    yield
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 0)
    assert not _children()
    assert not list(tmp_path.glob("executor-cpp-*"))


BEFORE: frozenset = frozenset()  # processes of other tests, such as pools that wait for more work


def _children():
    tasks = pathlib.Path("/proc/self/task").glob("*/children")
    return [child for task in tasks for child in task.read_text().split() if child not in BEFORE]


def outcome(compiler, text):
    """All that comes back: messages, or the library as text."""
    try:
        return compiler.build(text, SIGNATURE).decode("latin-1")
    except cpp_compiler.CompileError as error:
        return str(error)


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack",
    [
        '#include "{path}"\n',
        "#include <{path}>\n",
        "#define NAME <{path}>\n#include NAME\n",
                '#include "../../../../../../../..{path}"\n',
        '#include "/proc/self/root{path}"\n',
            'asm(".section .rodata\\n.incbin \\"{path}\\"\\n.text");\n',
        'asm(".include \\"{path}\\"");\n',
        '__attribute__((section(".rodata,\\"a\\"\\n.incbin \\"{path}\\"\\n#"))) int y = 1;\n',
    ],
)  # fmt: skip
def test_files_do_not_leak(compilers, tmp_path, attack):
    secret = tmp_path / "secret"
    secret.write_text(f"{TOKEN} {TOKEN};\n")
    text = attack.replace("{path}", str(secret)) + GOOD
    assert TOKEN in outcome(compilers[1], text)
    assert TOKEN not in (output := outcome(compilers[2], text))
    assert "rror: " in output and str(secret) in output


@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/self/environ", "/dev/zero"])
def test_files_of_the_machine_do_not_leak(compilers, path):
    for attack, words in (
        (f'#include "{path}"\n', f"fatal error: {path}: Permission denied"),
        (f'asm(".section .rodata\\n.incbin \\"{path}\\"\\n.text");\n', f"file not found: {path}"),
    ):
        assert words in outcome(compilers[2], attack + GOOD)


BOMBS = {
    "recursive include": '#include "candidate.cpp"\n#include "candidate.cpp"\n',
    "macros": "#define a0 1+1\n"
    + "".join(f"#define a{n} a{n - 1}+a{n - 1}\n" for n in range(1, 40))
    + "int y = a39;\n",
    "templates": "template<int D, int N> struct T { enum { v = T<D-1, 2*N>::v + T<D-1, 2*N+1>::v }; };\n"
    "template<int N> struct T<0, N> { enum { v = 1 }; };\nint y = T<24, 0>::v;\n",
    "constexpr": "constexpr int g(int n) { return n < 2 ? n : g(n-1) + g(n-2); }\n"
    "static_assert(g(60), \"\");\n",
    "assembler loop": 'asm(".rept 2000000000\\nnop\\n.endr");\n',
    "large object": "char y[1ull << 33] = {1};\n",
    "large section": 'asm(".data\\n.fill 0x7fffffff, 8, 1\\n.text");\n',
    "many messages": "int y = " + "(" * 100_000 + "\n",
    "many errors": "".join(f"#error {'x' * 900}\n" for _ in range(1000)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_bombs_end_with_an_error_and_leave_nothing(compilers, leftovers, name):
    small = cpp_compiler.CompileLimits(cpu_seconds=2, memory_mb=512, file_mb=4)
    compiler = compilers[2]
    full, compiler.limits = compiler.limits, small
    try:
        with pytest.raises(cpp_compiler.CompileError) as error:
            compiler.build(BOMBS[name] + ("" if name == "many messages" else GOOD), SIGNATURE)
    finally:
        compiler.limits = full
    assert 0 < len(str(error.value)) <= cpp_compiler.MAX_MESSAGES + 200
    if name in ("constexpr", "many messages"):
        assert error.value.limit and "CPU time limit exceeded" in str(error.value)
    assert compiler.build(GOOD, SIGNATURE)


def test_builds_are_remembered_and_repeatable(compilers):
    library = compilers[2].build(GOOD, SIGNATURE)
    assert compilers[2].build(GOOD, SIGNATURE) is library
    assert compilers[1].build(GOOD, SIGNATURE) == library


def test_wall_limit_ends_the_compiler_and_is_not_remembered(compilers, leftovers):
    compiler = compilers[2]
    compiler.build(GOOD, SIGNATURE)  # and with it the glue
    full, compiler.limits = compiler.limits, cpp_compiler.CompileLimits(wall_seconds=0.05)
    text = BOMBS["templates"].replace("24", "12") + GOOD
    try:
        with pytest.raises(cpp_compiler.CompileError, match="stopped after 0.05 s") as error:
            compiler.build(text, SIGNATURE)
    finally:
        compiler.limits = full
    assert error.value.limit
    assert compiler.build(text, SIGNATURE)


TRAINER = """
import sys
sys.path.insert(0, sys.argv[1])
from jaxmarl_llm.executor.cpp import compiler as cpp_compiler
compiler = cpp_compiler.Compiler(2)
print("ready", flush=True)
compiler.build(sys.argv[2], "int f(int)")
"""


def test_nothing_outlives_the_killed_trainer(compilers, leftovers):
    text = BOMBS["templates"] + GOOD
    root = str(pathlib.Path(cpp_compiler.__file__).parents[3])
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER, root, text], stdout=subprocess.PIPE)
    assert trainer.stdout.readline() == b"ready\n"
    while not _running("cc1plus", trainer.pid):
        assert trainer.poll() is None
        time.sleep(0.05)
    trainer.kill()
    trainer.communicate()
    give_up = time.monotonic() + PATIENCE
    while _children():  # what it left has come to us
        assert time.monotonic() < give_up
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        time.sleep(0.05)


def _running(name, ancestor) -> bool:
    """Whether a descendant of that process has the name."""
    pending = [str(ancestor)]
    while pending:
        pid = pending.pop()
        try:
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == name:
                return True
            pending += pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            continue
    return False


# In the compiler's place, a program that tries more than a compiler would.
INTRUDER = """
import ctypes, errno, json, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    if getattr(libc, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)
def fork():
    if os.fork() == 0:
        os._exit(0)
    os.wait()
def session():
    if os.fork() == 0:
        try:
            os.setsid()
            os._exit(0)
        finally:
            os._exit(1)
    if os.wait()[1]:
        raise PermissionError(errno.EPERM, "setsid")
attacks = {
    "start a process": fork,
    "write in its folder": lambda: open("own", "w").close(),
    "read a secret": lambda: open(sys.argv[1]).close(),
    "read /etc/passwd": lambda: open("/etc/passwd").close(),
    "read /proc": lambda: open("/proc/self/environ").close(),
    "list /": lambda: os.listdir("/"),
    "write to /tmp": lambda: open("/tmp/written-by-intruder", "w").close(),
    "change the mode of a file": lambda: os.chmod(sys.argv[1], 0o600),
    "set times of a file": lambda: os.utime(sys.argv[1]),
    "make a link": lambda: os.symlink("/etc/passwd", "link"),
    "open a socket": lambda: socket.socket().close(),
    "make a pair of sockets": lambda: socket.socketpair()[0].close(),
    "signal its parent": lambda: os.kill(os.getppid(), 0),
    "leave its session": session,
    "leave its process group": lambda: os.setpgid(0, 0),
    "be traced": lambda: call("ptrace", 0, 0, None, None),
    "make a user namespace": lambda: call("unshare", 0x10000000),
    "make a file in memory": lambda: os.close(os.memfd_create("x")),
    "execute a shell": lambda: os.execv("/bin/sh", ["sh", "-c", "exit 0"]),
}
found = {}
for name, attack in attacks.items():
    try:
        attack()
        found[name] = "done"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
print(json.dumps([found, list(os.environ)]))
"""


def test_whatever_runs_in_the_compilers_place_is_refused(compilers, leftovers, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(TOKEN)
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    libraries, linkers = cpp_tools._shared_libraries([python])
    tools = compilers[2]._tools
    stdlib = os.path.dirname(os.__file__)
    job = {
        "files": {"intruder.py": base64.b64encode(INTRUDER.encode()).decode()},
        "commands": [[python, "-I", "-S", "-B", "intruder.py", str(secret)]],
        "output": "own",
        "environment": cpp_tools.environment(tools.path),
        "cpu": 20,
        "wall": PATIENCE,
        "memory_mb": 1024,
        "file_mb": 4,
        "confined": True,
        "readable": [*tools.readable, *libraries, stdlib],
        "executable": [python, *linkers],
    }
    answer = _serve(job)
    actual, names = json.loads(answer["messages"])
    allowed = {name for name, result in actual.items() if result == "done"}
    assert allowed == {"start a process", "write in its folder"}
    assert set(actual.values()) <= {"done", "EPERM", "EACCES"}
    assert set(names) <= {"PATH", "LC_ALL", "TMPDIR", "SOURCE_DATE_EPOCH", "LC_CTYPE"}
    assert answer["output"] == ""


def _serve(job):
    process = Process("cpp.process")
    try:
        process.send(job)
        assert wait([process], PATIENCE)
        return process.receive()
    finally:
        process.control.close()
        process.popen.wait()
        process.stop()


def test_a_compiler_that_cannot_be_confined_does_not_run(compilers, monkeypatch):
    tools = compilers[2]._tools
    compiler = cpp_compiler.Compiler(2)
    for broken in (
        cpp_tools.Tools(tools.path, ("/no/such/folder",), tools.executable),
        cpp_tools.Tools("/no/such/program", tools.readable, tools.executable),
    ):
        monkeypatch.setattr(compiler, "_tools", broken)
        with pytest.raises(WorkerDied, match="/no/such"):
            compiler.build(GOOD + "//", SIGNATURE)


def test_no_compiler_is_a_reason(monkeypatch, tmp_path):
    cpp_tools.find.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(cpp_tools.NoCompiler, match="apt install g\\+\\+"):
        cpp_compiler.Compiler(2)
    monkeypatch.undo()
    monkeypatch.setenv("HOME", "/usr/include/c++")
    with pytest.raises(
        cpp_tools.NoCompiler, match="needs to read /usr/include, which holds /usr/include/c\\+\\+"
    ):
        cpp_tools.find()
    cpp_tools.find.cache_clear()
