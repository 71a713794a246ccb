"""C++ programs through the whole executor: verdicts, hostile code, what is left over, and measured time."""

import contextlib
import glob
import os
import socket
import sys
import threading

import pytest

from jaxmarl_llm.executor import Executor, Limits, Program, TimingPlan, frames
from jaxmarl_llm.executor.cpp import builder as cpp_builder
from jaxmarl_llm.executor.cpp import compiler as cpp_compiler
from jaxmarl_llm.executor.cpp import tools as cpp_tools
from jaxmarl_llm.executor.process import WorkerDied
from jaxmarl_llm.executor.serving.supervisor import Supervisor
from jaxmarl_llm.executor.serving.worker import Worker
from jaxmarl_llm.executor.types import to_plain

if sys.platform != "linux":
    pytest.skip("C++ candidates are confined on Linux only", allow_module_level=True)
LIMITS = Limits(cpu_seconds=1.0, wall_seconds=120)
HEADER = "std::vector<double> f(std::vector<double>& x, int n)"
# Scales into the result and clips in place.
TESTS = """
def check(candidate):
    x = [1.0, -2.0]
    y = candidate(x, 3)
    assert y == [3.0, -6.0]
    assert (candidate([], 1), x) == ([], [1.0, 0.0])
"""
CLIP = "for (double &v : x) if (v < 0) v = 0;"
RIGHT = HEADER + " { std::vector<double> y(x); for (double &v : y) v *= n; " + CLIP + " return y; }\n"


@pytest.fixture(scope="module")
def executor(level):
    try:
        cpp_tools.find()
    except cpp_tools.NoCompiler as error:
        pytest.skip(str(error))
    with Executor(workers=1, limits=LIMITS, min_level=1, level=level) as running:
        yield running


def program(source, tests=TESTS, signature=HEADER, **fields):
    return Program({"main": source}, "f", tests, language="c++", signature=signature, **fields)


def constructor(body):
    return f"#include <unistd.h>\n__attribute__((constructor)) static void g() {{ {body} }}\n{RIGHT}"


PROGRAMS = {
    "right": (RIGHT, "pass", ""),
    "wrong result": (RIGHT.replace("v *= n", "v += n"), "fail", "assert y == [3.0, -6.0]"),
    "nothing in place": (RIGHT.replace("v = 0", "v = v"), "fail", "x) == ([], [1.0, 0.0])"),
    "does not compile": (RIGHT.replace("return y", "return z"), "load-error", "error: 'z' was not declared"),
    "another signature": (
        "int f(int n) { return n; }",
        "load-error",
        "no function fits std::vector<double> f(",
    ),
    "throws": (
        f'#include <stdexcept>\n{HEADER} {{ throw std::invalid_argument("bad n"); }}',
        "error",
        "ValueError: std::invalid_argument: bad n",
    ),
    "throws a number": (f"{HEADER} {{ throw 7; }}", "error", "an exception that is no std::exception"),
    "asks for too much": (f"{HEADER} {{ return std::vector<double>(1ull << 40); }}", "memory", "MemoryError"),
    "loops": (f"{HEADER} {{ for (volatile int i = 0;; i = 1) {{}} }}", "timeout-cpu", "timeout-cpu"),
    "crashes": (f"{HEADER} {{ *(volatile int *)8 = 1; return x; }}", "killed", "killed"),
    "aborts": (f"#include <cstdlib>\n{HEADER} {{ abort(); }}", "killed", "killed"),
    "exits": (f"#include <unistd.h>\n{HEADER} {{ _exit(0); }}", "protocol", "process ended"),
    "exits at load": (constructor("_exit(0);"), "protocol", "process ended"),
    "crashes at load": (constructor("*(volatile int *)8 = 1;"), "killed", "killed"),
    "throws at load": (constructor("throw 7;"), "killed", "killed"),
    "loops at load": (constructor("for (volatile int i = 0;; i = 1) {}"), "timeout-cpu", "timeout-cpu"),
}


@pytest.mark.slow
def test_verdicts(executor):
    reports = executor.run([program(source) for source, _, _ in PROGRAMS.values()])
    for (name, (_, verdict, words)), report in zip(PROGRAMS.items(), reports, strict=True):
        assert report.verdict == verdict, (name, report)
        assert words in "; ".join(report.failures), (name, report)
        assert (report.passed, report.total) == (2 if verdict == "pass" else report.passed, 2), (name, report)
        assert report.passed < 2 or verdict == "pass"
        assert report.level == executor.level
    (report,) = executor.run([program(RIGHT)])
    assert report.cached and report.calls == {"f": 2}
    assert report.cpu_seconds < 0.1 < report.wall_seconds  # the compiler takes longer, and does not count


@pytest.mark.slow
def test_a_prelude_is_for_the_tests_and_a_folder_for_the_program(executor):
    source = """
    #include <fstream>
    std::string f(const std::string &text) {
        std::ofstream("note") << text;
        std::string found;
        std::ifstream("note") >> found;
        return found;
    }
    """
    tests = "def check(candidate):\n    assert candidate('abc') == WORD\n"
    fields = {"prelude": "WORD = 'abc'\n", "signature": "std::string f(const std::string& text)"}
    with_folder, without = executor.run([program(source, tests, tmp=tmp, **fields) for tmp in (True, False)])
    assert with_folder.verdict == "pass", with_folder
    assert without.verdict == "fail", without  # RLIMIT_FSIZE is 0 at every level


# f(which, path): 1 where the attack succeeded.
HOSTILE = """
#include <cerrno>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
int f(int which, const std::string &path) {
    switch (which) {
        case 0: return open("/etc/passwd", O_RDONLY) >= 0;
        case 1: return socket(AF_INET, SOCK_STREAM, 0) >= 0;
        case 2: {
            int pid = fork();
            if (pid == 0) _exit(0);
            return pid > 0;
        }
        case 3: return open(path.c_str(), O_RDONLY) >= 0;
        case 4: return open("/tmp", O_RDONLY | O_DIRECTORY) >= 0;
        case 5: return open("/tmp/written-by-cpp", O_WRONLY | O_CREAT, 0600) >= 0;
        case 6: return memfd_create("x", 0) >= 0;
        case 7: return kill(getppid(), 0) == 0;
        case 8: return open("/library", O_RDONLY | O_DIRECTORY) >= 0;
        case 9: return open("/library/x", O_WRONLY | O_CREAT, 0600) >= 0;
    }
    return -1;
}
"""


def test_hostile_code_is_refused(executor, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("token")
    signature = "int f(int which, const std::string& path)"
    tests = [f"def check(c):\n    assert c({which}, {str(secret)!r}) == 1\n" for which in range(10)]
    verdicts = [r.verdict for r in executor.run([program(HOSTILE, text, signature) for text in tests])]
    if executor.level == 1:  # there they succeed: what fails above is the confinement's doing
        assert [verdicts[which] for which in (0, 1, 3, 4, 5, 6, 7)] == ["pass"] * 7
        os.unlink("/tmp/written-by-cpp")
    else:
        assert verdicts == ["fail"] * 10
    assert not os.path.exists("/tmp/written-by-cpp")


def frame(text):
    """Statements that write a frame to the channel."""
    data = frames._HEADER.pack(len(text)) + text.encode()
    return f"{{ const unsigned char t[] = {{{', '.join(map(str, data))}}}; write(3, t, {len(data)}); }}"


READY, ANSWER = '{"answer": {"ready": {"f": ["call"]}}}', '{"answer": {"ok": ["l", []]}}'
FORGED = [
    constructor(frame(READY) + frame(ANSWER) * 9 + "_exit(0);"),
    constructor(frame(READY) + frame('{"status": "pass", "passed": 2, "total": 2}') + "_exit(0);"),
    constructor(frame(READY) + frame(READY)),
    constructor('write(3, "pass", 4); _exit(0);'),
    constructor(frame('{"ask": {"do": "call", "of": "check", "args": []}}')),
    f"#include <unistd.h>\n{HEADER} {{ {frame(ANSWER)} {frame(ANSWER)} _exit(0); }}",
]


@pytest.mark.slow
def test_forged_replies_do_not_pass(executor):
    for report in executor.run([program(source) for source in FORGED]):
        assert report.verdict in ("fail", "protocol", "error", "unsupported"), report
        assert report.passed < report.total == 2
    assert executor.run([program(RIGHT + "// after them")])[0].verdict == "pass"


# Its own file's path for "", else whether there is such a file.
SELF = """
#include <dlfcn.h>
#include <sys/stat.h>
std::string f(const std::string &path) {
    Dl_info info;
    if (path.empty()) return dladdr((void *)&f, &info) ? info.dli_fname : "";
    struct stat found;
    return stat(path.c_str(), &found) == 0 ? "there" : "gone";
}
"""


def test_nothing_is_left_for_the_next_program(executor):
    signature = "std::string f(const std::string& path)"
    before = set(glob.glob("/tmp/program-*") + glob.glob("/var/tmp/program-*"))
    tests = "def check(c):\n    path = c('')\n    assert c(path) == 'there'\n    assert not path, path\n"
    (report,) = executor.run([program(SELF, tests, signature)])
    assert report.passed == 1 and len(report.failures) == 1
    path = report.failures[0].rpartition("AssertionError: ")[2]
    assert path.endswith("/library.so") and path.startswith("/library/" if executor.level == 3 else "/tmp/")
    folder = os.path.dirname(path)
    tests = "def check(c):\n" + "".join(f"    assert c({name!r}) == 'gone'\n" for name in (path, folder))
    assert executor.run([program(SELF, tests, signature)])[0].verdict == "pass"
    python = "import os\ndef f(path):\n    return 'there' if os.path.exists(path) else 'gone'\n"
    assert executor.run([Program({"main": python}, "f", tests)])[0].verdict == "pass"
    assert not os.path.exists(folder)
    assert set(glob.glob("/tmp/program-*") + glob.glob("/var/tmp/program-*")) <= before


# Each step needs the one before it: three times the steps take three times as long.
STEPS = """
long f(int n) {{
    unsigned long x = n;
    for (long i = 0; i < {times} * (long)n; ++i) x = x * 6364136223846793005ul + 1;
    volatile unsigned long kept = x;
    return {result};
}}
"""
STEPS_TESTS = """
import random
def inputs(seed):
    return (random.Random(seed).randrange(30_000_000, 33_000_000),)
def expected(n):
    return n
def check(candidate):
    assert candidate(3) == 3
"""


@pytest.mark.slow
def test_measured_speed(executor):
    if executor.level < 2:
        pytest.skip("time is measured from level 2 on")
    three, one = (STEPS.format(times=times, result="n") for times in (3, 1))
    slow, fast, wrong = (
        program(text, STEPS_TESTS, "long f(int n)")
        for text in (three, one, STEPS.format(times=1, result="1"))
    )
    result = executor.measure(slow, fast, TimingPlan(min_pairs=7, max_pairs=7, seed=5))
    assert result.reason in ("max-pairs", "target-width") and result.significant
    assert 1.8 < result.speedup < 4.5  # three times the work, on machines whose cores share units
    assert result.low <= result.speedup <= result.high
    assert result.candidate_seconds < 0.5
    assert executor.measure(slow, wrong, TimingPlan(min_pairs=7, max_pairs=7)).reason == "wrong-answer"


@pytest.mark.slow
def test_a_source_is_compiled_once(executor, monkeypatch):
    runs = []
    run = cpp_compiler.Compiler._run
    monkeypatch.setattr(cpp_compiler.Compiler, "_run", lambda *given: runs.append(given[-1]) or run(*given))
    worker = Worker(LIMITS, executor.level)
    try:
        counts = []
        for number in range(3):
            assert worker.run(program(RIGHT, f"{TESTS}# {number}")).verdict == "pass"
            counts.append(runs.count("library.so"))
    finally:
        worker.close()
    assert counts == [counts[0]] * 3


# --- without a compiler, and with one that fails


@contextlib.contextmanager
def supervised(builder=None):
    """Ask a supervisor in this process for the result of a program, by its key."""
    ours, theirs = socket.socketpair()
    supervisor = Supervisor(theirs, 1, 1, LIMITS)
    supervisor.builder = builder or supervisor.builder

    def serve():
        with contextlib.suppress(EOFError, OSError):
            supervisor.serve()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        assert frames.receive_control(ours)[0] == {"error": ""}

        def ask(made):
            jobs = [[0, made.digest(), to_plain(made)]]
            frames.send_control(ours, {"batch": 0, "since": 0.0, "jobs": jobs})
            return frames.receive_control(ours)[0]["results"][0]

        yield ask
    finally:
        ours.shutdown(socket.SHUT_RDWR)
        thread.join(60)
        supervisor.close()
        ours.close()
        theirs.close()


def test_no_compiler_is_unsupported_and_not_remembered(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cpp_builder, "RETRY_SECONDS", 0.0)
    cpp_tools.find.cache_clear()
    with supervised() as ask:
        for _ in range(2):
            report = ask(program(RIGHT))["report"]
            assert report["verdict"] == "unsupported" and not report["cached"]
            assert report["failures"][0].startswith("no C++ compiler: there is no g++ on the PATH")
            assert (report["passed"], report["total"], report["cpu_seconds"]) == (0, 2, 0.0)
        monkeypatch.undo()
        cpp_tools.find.cache_clear()
        try:
            cpp_tools.find()
        except cpp_tools.NoCompiler:
            return
        assert ask(program(RIGHT))["report"]["verdict"] == "pass"
        assert ask(program(RIGHT))["report"]["cached"]


class Failing:
    """A builder that raises."""

    def __init__(self, error):
        self.error = error

    def build(self, text, signature):
        raise self.error


@pytest.mark.parametrize("limit", [False, True])
def test_a_compile_error_is_remembered_unless_a_limit_made_it(limit):
    with supervised(Failing(cpp_compiler.CompileError("y" * 5000, limit))) as ask:
        first, second = (ask(program(RIGHT))["report"] for _ in range(2))
    assert first["verdict"] == second["verdict"] == "load-error" and first["failures"] == ["y" * 2000]
    assert not first["cached"] and second["cached"] == (not limit)


def test_a_compiler_that_dies_twice_is_an_error_and_no_report():
    with supervised(Failing(WorkerDied("no memory"))) as ask:
        result = ask(program(RIGHT))
    assert result["report"] is None and result["restarts"] == 1
    kind, text = result["error"]
    assert kind == "ExecutorError" and "infra twice" in text and text.count("no memory") == 2


# --- what a program may say


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"language": "rust"}, r"Program\.language is 'rust'; allowed: python, c\+\+"),
        ({"language": None}, r"Program\.language is None"),
        ({"language": "python"}, r"Program\.signature is .*; it belongs to language 'c\+\+'"),
        ({"signature": ""}, r"C\+\+ signature ''"),
        ({"signature": None}, r"C\+\+ signature is None"),
        ({"signature": "int f(int* x)"}, r"C\+\+ signature .*'\*'"),
        ({"signature": "int g(int x)"}, r"signature declares 'g', and Program\.entry_point is 'f'"),
        ({"sources": {"a": RIGHT, "b": RIGHT}}, r"Program\.sources has 2 agents; .* 'c\+\+': 1"),
        ({"stdio": True}, r"Program\.stdio is True"),
    ],
)
def test_programs_that_are_refused(fields, words):
    given = {"sources": {"a": RIGHT}, "language": "c++", "signature": HEADER} | fields
    with pytest.raises(ValueError, match=words):
        Program(entry_point="f", tests=TESTS, **given)


def test_language_and_signature_are_part_of_what_is_remembered():
    keys = {program(RIGHT, signature=text).digest() for text in (HEADER, HEADER.replace("int", "long"))}
    assert len(keys | {Program({"main": RIGHT}, "f", TESTS).digest()}) == 3
