"""Compiled C++ candidates: values and exceptions through a real library, loaded in a confined process.

The library never enters the process of the tests.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest

from jaxmarl_llm.executor import frames, wire
from jaxmarl_llm.executor.cpp import compiler as cpp_compiler
from jaxmarl_llm.executor.cpp import tools as cpp_tools
from jaxmarl_llm.executor.cpp.signature import parse

if sys.platform != "linux":
    pytest.skip("the compiler is confined on Linux only", allow_module_level=True)
FOLDER = str(pathlib.Path(wire.__file__).parent)

# Confined as candidates are at level 2 (3: inside namespaces too), and only then loaded.
RUNNER = """
import json, os, resource, sys, types
package = types.ModuleType("executor")
package.__path__ = [sys.argv[1]]
sys.modules["executor"] = package
from executor import frames, wire
from executor.cpp import library
from executor.isolation import confine, landlock, libc, namespaces, rootfs, seccomp
fd, level, path, signature = int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
needed = rootfs.needed_paths
rootfs.needed_paths = lambda: [*needed(), path]
paths = namespaces.enter() if level == 3 else rootfs.needed_paths()
for kind, value in (
    (resource.RLIMIT_CPU, 20), (resource.RLIMIT_AS, 512 << 20), (resource.RLIMIT_DATA, 512 << 20),
    (resource.RLIMIT_STACK, 8 << 20), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NOFILE, 24),
    (resource.RLIMIT_NPROC, 0), (resource.RLIMIT_CORE, 0),
):
    confine.lower(kind, value)
libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
landlock.restrict(paths)
seccomp.install()
try:
    function = library.load(path, signature)
    frames.write_frame(fd, "loaded")
except Exception as error:
    frames.write_frame(fd, f"{type(error).__name__}: {error}")
while True:
    arguments = [wire.decode(item) for item in frames.read_frame(fd)]
    before = list(map(id, arguments))
    try:
        reply = {"result": wire.encode(function(*arguments))}
    except Exception as error:
        reply = {"raised": [type(error).__name__, str(error)]}
    assert list(map(id, arguments)) == before
    frames.write_frame(fd, reply | {"arguments": [wire.encode(item) for item in arguments]})
"""


class Loaded:
    """A library in a process of its own; calls give (result, arguments afterwards)."""

    def __init__(self, folder, library: bytes, signature: str, level: int = 2):
        path = folder / "library.so"
        path.write_bytes(library)
        path.chmod(0o644)
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(300)
        command = [
            sys.executable,
            "-B",
            "-s",
            "-S",
            "-P",
            "-c",
            RUNNER,
            FOLDER,
            str(theirs.fileno()),
            str(level),
        ]
        with theirs:
            self.process = subprocess.Popen(
                [*command, str(path), signature], pass_fds=[theirs.fileno()], env={}, stderr=subprocess.PIPE
            )
        self.fd = self.socket.fileno()
        os.set_blocking(self.fd, True)
        self.loaded = self._read()

    def _read(self):
        try:
            return frames.read_frame(self.fd)
        except (EOFError, OSError):
            return None

    def __call__(self, *arguments):
        frames.write_frame(self.fd, [wire.encode(item) for item in arguments])
        reply = self._read()
        if reply is None:
            return "ended", self.process.wait(300)
        after = [wire.decode(item) for item in reply["arguments"]]
        return (wire.decode(reply["result"]), after) if "result" in reply else tuple(reply["raised"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self.socket.close()


@pytest.fixture(scope="module")
def compiler():
    try:
        return cpp_compiler.Compiler(level=2)
    except cpp_tools.NoCompiler as error:
        pytest.skip(str(error))


ECHO = (
    "std::pair<std::string, std::vector<std::pair<std::vector<bool>, double>>> f(bool a, char b, int c, "
    "long long d, size_t e, float g, const std::string& h, "
    "std::vector<std::pair<std::vector<bool>, double>> i, std::vector<std::vector<std::string>>& j)"
)
# Says what it received in C's own words.
ECHO_SOURCE = """
#include <algorithm>
#include <cstdio>
#include <iostream>
using namespace std;
typedef vector<pair<vector<bool>, double>> Items;
pair<string, Items> f(bool a, char b, int c, long long d, size_t e, float g, const string& h, Items i,
                      vector<vector<string>>& j) {
    char text[500];
    snprintf(text, sizeof text, "%d %c %d %lld %zu %.9g %zu", a, b, c, d, e, g, h.size());
    cout << "goes nowhere" << endl;
    reverse(i.begin(), i.end());
    for (auto& row : j) sort(row.begin(), row.end());
    j.push_back({h});
    return {text, i};
}
"""


@pytest.mark.slow
def test_values_of_every_type_pass_in_both_directions(compiler, tmp_path):
    with Loaded(tmp_path, compiler.build(ECHO_SOURCE, ECHO), ECHO) as call:
        assert call.loaded == "loaded"
        names = [["b", "", "a\u00e9"], []]
        result, after = call(
            True,
            "x",
            -(1 << 31),
            (1 << 63) - 1,
            (1 << 64) - 1,
            0.1,
            "h\u00e9\0",
            [([True, False], 0.1), ([], -0.0)],
            names,
        )
        assert result[0] == f"1 x -2147483648 9223372036854775807 18446744073709551615 0.100000001 {4}"
        assert repr(result[1]) == "[([], -0.0), ([True, False], 0.1)]"
        assert after[8] == [["", "a\u00e9", "b"], [], ["h\u00e9\0"]]
        result, after = call(False, "\n", 0, -(1 << 63), 0, float("inf"), "", [([False] * 9, 5e-324)], [])
        assert result == (f"0 \n 0 {-(1 << 63)} 0 inf 0", [([False] * 9, 5e-324)])
        assert after[8] == [[""]]
        assert call(1) == (
            "TypeError",
            f"{parse(ECHO)} takes 9 arguments, 1 were given",
        )
        kind, text = call(True, "x", 1 << 31, 0, 0, 0.0, "", [], [])
        assert kind == "OverflowError" and text.startswith(
            "argument 3 (c) of f: 2147483648 is out of range for int"
        )


@pytest.mark.parametrize(
    "source",
    [
        "#define Codec 1 +\n#define Reader +\n#define vector +\n#define size_t +\n#define return_ return\n"
        "static inline double f(double x) noexcept { return_ 2 * x; } int f(int x) { return x; }\\",
        "template <class T> T f(T x) { return 2 * x; }",
    ],
)
def test_any_definition_that_the_compiler_takes_for_the_function_will_do(compiler, tmp_path, source):
    with Loaded(tmp_path, compiler.build(source, "double f(double)"), "double f(double)") as call:
        assert call(1.5) == (3.0, [1.5])


@pytest.mark.parametrize(
    "source, words",
    [
        ("int f(double x) { return 1; }", "no function fits double f(double)\nsignature:"),
        ("double f(double x, int n) { return 1; }", "no function fits double f(double)\nsignature:"),
        ("#define double float\ndouble f(double x) { return 1; }", "no function fits double f(double)"),
        ("int f(", "no function fits double f(double)"),
        ("double g(double x) { return 1; }", "'::f' has not been declared"),
        ("double f(double x);", "undefined reference to `f(double)'"),
        ("double f(double x) { return y; }", "candidate.cpp:1:29: error: 'y' was not declared"),
        ("double f(double x) { return '\ud800'; }", "not valid Unicode"),
        ("//" + "x" * cpp_compiler.MAX_SOURCE, "allowed: 1048576"),
    ],
)
def test_what_does_not_fit_the_signature_is_named(compiler, source, words):
    with pytest.raises(cpp_compiler.CompileError) as error:
        compiler.build(source, "double f(double)")
    assert words in str(error.value)


def test_void_function_changes_a_list_in_place_at_level_3(compiler, tmp_path):
    from jaxmarl_llm.executor.isolation import namespaces

    if reason := namespaces.supported():
        pytest.skip(reason)
    signature = "void relu(std::vector<double>& x)"
    source = "#include <vector>\nvoid relu(std::vector<double> &x) { for (double &v : x) if (v < 0) v = 0; }"
    with Loaded(tmp_path, compiler.build(source, signature), signature, level=3) as call:
        assert call.loaded == "loaded"
        assert call([1.5, -2.0, 3]) == (None, [[1.5, 0.0, 3.0]])
        assert call([]) == (None, [[]])


def test_exceptions_and_crashes(compiler, tmp_path):
    source = """
    #include <new>
    #include <stdexcept>
    #include <vector>
    struct Own : std::exception { const char *what() const noexcept { return "own text"; } };
    int dive(int n) { volatile char space[4096]; space[0] = 1; return dive(n + 1) + space[0]; }
    int f(int which) {
        std::vector<int> v(3);
        switch (which) {
            case 0: throw std::invalid_argument("bad n");
            case 1: return v.at(9);
            case 2: { std::vector<char> all(1ull << 40, 1); return all[3]; }
            case 3: throw Own();
            case 4: throw 7;
            case 5: throw std::overflow_error("much");
            case 6: abort();
            case 7: return dive(0);
        }
        return which;
    }
    """
    source = "#include <cstdlib>\n" + source
    library = compiler.build(source, "int f(int)")
    with Loaded(tmp_path, library, "int f(int)") as call:
        assert call(0) == ("ValueError", "std::invalid_argument: bad n")
        kind, text = call(1)
        assert kind == "IndexError" and text.startswith("std::out_of_range: vector::_M_range_check")
        assert call(2)[0] == "MemoryError"
        assert call(3) == ("CppError", "Own: own text")
        assert call(4)[0] == "CppError"
        assert call(5) == ("OverflowError", "std::overflow_error: much")
        assert call(8) == (8, [8])
        outcome, status = call(6)
        assert outcome == "ended" and status < 0
    with Loaded(tmp_path, library, "int f(int)") as call:
        outcome, status = call(7)
        assert outcome == "ended" and status < 0


def test_native_code_meets_the_same_refusals(compiler, tmp_path):
    """Each attack returns what errno became; the control is the same library without confinement."""
    source = """
    #include <cerrno>
    #include <fcntl.h>
    #include <signal.h>
    #include <string>
    #include <sys/mman.h>
    #include <sys/ptrace.h>
    #include <sys/socket.h>
    #include <sys/wait.h>
    #include <system_error>
    #include <thread>
    #include <unistd.h>
    #include <vector>
    template <class F> int tried(F f) { errno = 0; return f() < 0 ? errno : 0; }
    std::vector<int> f(const std::string &secret) {
        std::vector<int> found = {
            tried([&] { return open(secret.c_str(), O_RDONLY); }),
            tried([] { return open("/etc/passwd", O_RDONLY); }),
            tried([] { return open("/tmp/written-by-cpp", O_WRONLY | O_CREAT, 0600); }),
            tried([] { return socket(AF_INET, SOCK_STREAM, 0); }),
            // Waited for: its end must not signal us while we are traced, which would stop us for ever.
            tried([] { int pid = fork(); if (pid == 0) _exit(0); return pid < 0 ? -1 : waitpid(pid, 0, 0); }),
            tried([] { return kill(getppid(), 0); }),
            tried([] { return (int)ptrace(PTRACE_TRACEME, 0, 0, 0); }),
            tried([] { return memfd_create("x", 0); }),
        };
        try { std::thread([] {}).join(); found.push_back(0); }
        catch (const std::system_error &error) { found.push_back(error.code().value()); }
        return found;
    }
    """
    signature = "std::vector<int> f(const std::string& secret)"
    library = compiler.build(source, signature)
    secret = tmp_path / "secret"
    secret.write_text("token")
    with Loaded(tmp_path, library, signature) as call:
        actual, _ = call(str(secret))
        assert len(actual) == 9 and 0 not in actual
    script = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from jaxmarl_llm.executor.cpp import library\n"
        "print(json.dumps(library.load(*sys.argv[2:4])(sys.argv[4])))"
    )
    root = str(pathlib.Path(FOLDER).parents[1])
    command = [sys.executable, "-c", script, root, str(tmp_path / "library.so"), signature, str(secret)]
    done = subprocess.run(command, capture_output=True, check=True)
    pathlib.Path("/tmp/written-by-cpp").unlink()
    assert json.loads(done.stdout) == [0] * 9


@pytest.mark.parametrize(
    "source, call",
    [
        ("__attribute__((constructor)) static void g() { _exit(0); } int f(int x) { return x; }", None),
        ("int f(int x) { _exit(0); }", "ended"),
        (
            'extern "C" int jaxmarl_run(const char*, long long, char**, long long*); int f(int x) '
            "{ char *o; long long s; return jaxmarl_run(0, 0, &o, &s); }",
            (0, [3]),
        ),
    ],
)
def test_a_library_harms_itself_only(compiler, tmp_path, source, call):
    with Loaded(
        tmp_path, compiler.build("#include <unistd.h>\n" + source, "int f(int)"), "int f(int)"
    ) as function:
        if call is None:
            assert function.loaded is None
        else:
            outcome = function(3)
            assert outcome == call or outcome[0] == call


def test_what_is_no_library_does_not_load(tmp_path):
    with Loaded(tmp_path, b"\x7fELF" + bytes(500), "int f(int)") as call:
        assert call.loaded.startswith("OSError")
