"""Candidates that want a speed-up without the work: caches, peeking, guessing, early and late work.

The task is a chain of squarings modulo m, for which nobody who does not know m's factors has a short cut; the
tests do. An attack that finds what it looks for raises, so that it shows as a wrong answer. One that finds
nothing does the work and a quarter of it again: without a gain it is slower, and noise cannot hide that.
"""

import dataclasses

import pytest

from jaxmarl_llm.executor import Executor, Limits, Program, TimingPlan, available_level
from jaxmarl_llm.executor.cpp import tools

PLAN = TimingPlan(min_pairs=7, max_pairs=21, target_width=0.1, min_seconds=0.005)
SHORT = dataclasses.replace(PLAN, max_pairs=7)  # where the answer is wrong, whatever the noise
TESTS = """
import random

PRIMES = [n for n in range(40_000, 40_300) if all(n % d for d in range(2, 202))]

def inputs(seed):
    rng = random.Random(seed)
    p, q = rng.sample(PRIMES, 2)
    return rng.randrange(2, 40_000), p * q, SIZE - rng.randrange(SIZE // 10 + 1)

def expected(x, m, n):
    # x ** (2 ** n), by Euler's theorem.
    p = next(p for p in PRIMES if m % p == 0)
    return pow(x, pow(2, n, (p - 1) * (m // p - 1)), m)
"""
# The arguments are one bit here: a table of all answers costs two calls' work.
TABLE_TESTS = """
def inputs(seed):
    return (seed % 2,)

def expected(x):
    return pow(x + 3, pow(2, SIZE, 40008 * 40012), 40009 * 40013)
"""
WORK = """
def work(x, m, n):
    for _ in range(n):
        x = x * x % m
    return x
"""
REFERENCE = WORK + "\ndef f(x, m, n):\n    return work(x, m, n)\n"
HONEST = "    work(x, m, n // 4)\n    return work(x, m, n)\n"


@pytest.fixture(scope="module")
def executor():
    level, reason = available_level()
    if level < 2:
        pytest.skip(reason)
    with Executor(workers=1, limits=Limits(cpu_seconds=5)) as running:
        yield running


def python(source, tests=TESTS, size=150_000, **fields):
    return Program({"main": source}, "f", f"SIZE = {size}\n{tests}", **fields)


def finds_nothing(executor, baseline, candidate):
    """The attack ran to its end on every timed input and was not rewarded."""
    actual = executor.measure(baseline, candidate, PLAN)
    assert actual.reason not in ("wrong-answer", "too-fast"), actual
    assert actual.credited <= 1.0, actual
    return actual


@pytest.mark.slow
def test_a_short_cut_would_be_seen(executor):
    """The other side of what follows: a tenth of the work, where the tests accept what comes of it, pays."""
    tests = f"""{TESTS}{WORK}
def accept(answer, x, m, n):
    return answer in (expected(x, m, n), work(x, m, n // 10))
"""
    tenth = WORK + "\ndef f(x, m, n):\n    return work(x, m, n // 10)\n"
    actual = executor.measure(python(REFERENCE, tests), python(tenth, tests), PLAN)
    assert actual.significant and actual.credited > 1.2, actual


# Where a call leaves a mark, and where the next one looks for it: {name: (leave, is it there)}.
PLACES = {
    "builtins": ("builtins.mark = 1", "hasattr(builtins, 'mark')"),
    "a built-in module": ("math.mark = 1", "hasattr(math, 'mark')"),
    "a preloaded class": ("collections.Counter.mark = 1", "hasattr(collections.Counter, 'mark')"),
    "sys.modules": ("sys.modules['mark'] = sys", "'mark' in sys.modules"),
    "the environment": ("os.environ['MARK'] = '1'", "'MARK' in os.environ"),
    "the random module": ("random.seed(5); random.mark = random.random()", "hasattr(random, 'mark')"),
    "a library's cache": (
        "re.compile('mark mark')",
        "any('mark mark' in map(str, key) for key in re._cache)",
    ),
    "/tmp": ("open('/tmp/jaxmarl-mark', 'w').write('1')", "os.path.exists('/tmp/jaxmarl-mark')"),
    "/dev/shm": ("open('/dev/shm/jaxmarl-mark', 'w').write('1')", "os.path.exists('/dev/shm/jaxmarl-mark')"),
    "the folder": ("open('mark', 'w').write('1')", "os.path.exists('mark')"),
}


def marking():
    """A candidate that looks in all places when it is loaded and leaves its marks when it is called."""
    looks = "\n".join(f"look({name!r}, lambda: {there})" for name, (_, there) in PLACES.items())
    leaves = "\n".join(f"    leave({leave!r})" for leave, _ in PLACES.values())
    return f"""
import builtins, collections, math, os, random, re, sys
{WORK}
LEFT_BEHIND = []

def look(name, there):
    try:
        if there():
            LEFT_BEHIND.append(name)
    except Exception:
        pass

def leave(statement):
    try:
        exec(statement)
    except Exception:
        pass

{looks}

def f(x, m, n):
    if LEFT_BEHIND:
        raise RuntimeError(f"left by an earlier call: {{LEFT_BEHIND}}")
{leaves}
{HONEST}"""


def test_no_call_finds_what_an_earlier_one_left(executor):
    finds_nothing(executor, python(REFERENCE, tmp=True), python(marking(), tmp=True))


def test_marks_are_seen_within_one_process(executor):
    """They do hold: a second look of the same process finds all that need no file."""
    looks = "".join(f"    look({name!r}, lambda: {there})\n" for name, (_, there) in PLACES.items())
    source = (
        f"{marking().replace('def f(', 'def call(')}\ndef f():\n    call(2, 7, 0)\n{looks}    return LEFT_BEHIND\n"
    )
    kept = PLACES.keys() - {"/tmp", "/dev/shm", "the folder"}
    tests = f"def check(candidate):\n    found = candidate()\n    assert set(found) >= {kept}, found\n"
    (report,) = executor.run([Program({"main": source}, "f", tests)])
    assert report.verdict == "pass", report


# A call that remembers its answers for the next one, in three ways.
CACHES = f"""
import functools
{WORK}
KNOWN = {{}}

@functools.cache
def honest(x, m, n, known={{}}):
    if (x, m, n) in known:
        return known[x, m, n]
{HONEST}
def f(x, m, n):
    if (x, m, n) not in KNOWN:
        KNOWN[x, m, n] = honest(x, m, n)
    return KNOWN[x, m, n]
"""
# Each looks for what would tell the answer, and raises where it finds it.
PEEKS = {
    "frames": """
import sys

def find_NAME(x, m):
    frame = sys._getframe()
    while frame:
        for space in (frame.f_globals, frame.f_locals):
            for name in ("expected", "inputs", "SIZE", "PRIMES"):
                if name in space:
                    raise RuntimeError(f"{name} in a frame")
        frame = frame.f_back
""",
    "objects": """
import gc

def find_NAME(x, m):
    for thing in gc.get_objects():
        if isinstance(thing, dict) and ("expected" in thing or "PRIMES" in thing or "baseline" in thing):
            raise RuntimeError("a namespace of the tests")
        if getattr(thing, "__name__", "") == "expected":
            raise RuntimeError("a function of the tests")
""",
    "files": """
import os

def find_NAME(x, m):
    for folder in ("/proc/self/cwd", "/proc/self/fd", "/proc", "/tmp", "/work", os.sep):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            for path in (f"{folder}/{name}", f"{folder}/{name}/environ", f"{folder}/{name}/cmdline"):
                if name.isdigit() and folder == "/proc/self/fd":
                    continue
                try:
                    with open(path, "rb") as file:
                        data = file.read(1 << 16)
                except OSError:
                    continue
                if b"def expected" in data or b"baseline" in data:
                    raise RuntimeError(path)
""",
    "memory": """
def find_NAME(x, m):
    marks = [b"n[ = SEMIRP", b"m ,x(detcepxe fed"]  # backwards, so as not to find itself
    for pid in ("self", "1"):
        try:
            with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
                for line in maps:
                    low, high = (int(word, 16) for word in line.split()[0].split("-"))
                    memory.seek(low)
                    data = memory.read(high - low)[::-1]
                    if any(mark in data for mark in marks):
                        raise RuntimeError("the tests' text in memory")
        except (OSError, OverflowError, ValueError):
            pass
""",
    "seeds": """
import random

GUESSED = [n for n in range(40_000, 40_300) if all(n % d for d in range(2, 202))]

def find_NAME(x, m):
    for seed in range(300):
        rng = random.Random(seed)
        p, q = rng.sample(GUESSED, 2)
        if (rng.randrange(2, 40_000), p * q) == (x, m):
            raise RuntimeError(f"seed {seed}")
""",
}


def test_a_cache_has_nothing_to_remember(executor):
    finds_nothing(executor, python(REFERENCE), python(CACHES))


def test_there_is_nothing_to_read(executor):
    finders = "".join(text.replace("NAME", name) for name, text in PEEKS.items())
    calls = "".join(f"    find_{name}(x, m)\n" for name in PEEKS)
    finds_nothing(executor, python(REFERENCE), python(f"{WORK}{finders}\ndef f(x, m, n):\n{calls}{HONEST}"))


def test_no_thread_works_for_free(executor):
    """It is refused; where it were not, its time would be the process's."""
    source = f"""
import threading
{WORK}
def f(x, m, n):
    answers = []
    work(x, m, n // 4)
    thread = threading.Thread(target=lambda: answers.append(work(x, m, n)))
    try:
        thread.start()
    except RuntimeError:
        return work(x, m, n)
    thread.join()
    return answers[0]
"""
    finds_nothing(executor, python(REFERENCE), python(source))


def test_switching_the_collector_off_earns_nothing(executor):
    """Many small lists: with the collector on, most of the time goes into looking through them."""
    tests = "def inputs(seed):\n    return (150_000 + seed % 7,)\n\ndef expected(n):\n    return n\n"
    slow = "def f(n):\n    kept = [[i] for i in range(n)]\n    return len(kept)\n"
    off = f"import gc\ngc.disable()\n{slow}"
    finds_nothing(executor, python(slow, tests), python(off, tests))


def test_the_collector_is_off_in_timed_runs_only(executor):
    tests = "def inputs(seed):\n    return (seed,)\n\ndef expected(seed):\n    return False\n"
    source = "import gc\n\ndef f(seed):\n    sum(range(500_000))\n    return gc.isenabled()\n"
    assert executor.measure(python(source, tests), python(source, tests), SHORT).reason != "wrong-answer"
    (report,) = executor.run([python(source, "def check(candidate):\n    assert candidate(0) is True\n")])
    assert report.verdict == "pass", report


WRONG = {
    "right for small sizes only": """
def f(x, m, n):
    return work(x, m, n) if n < 1000 else 0
""",
    "an answer from loading": """
ANSWER = work(2, 40009 * 40013, 1000)

def f(x, m, n):
    return ANSWER
""",
    "a number that computes when it is compared": """
class Late(int):
    def __eq__(self, other):
        return work(*self.given) == other

def f(x, m, n):
    late = Late(0)
    late.given = x, m, n
    return late
""",
    "a generator": """
def f(x, m, n):
    yield work(x, m, n)
""",
    "a function": """
def f(x, m, n):
    return lambda: work(x, m, n)
""",
    "larger and smaller than all": """
class All:
    __eq__ = __ge__ = __le__ = lambda *_: True

def f(x, m, n):
    return All()
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_answer_yet_is_wrong(executor, name):
    actual = executor.measure(python(REFERENCE), python(WORK + WRONG[name]), SHORT)
    assert (actual.reason, actual.credited) == ("wrong-answer", 0.0), actual


def test_an_answer_that_computes_when_it_is_read_costs_as_much(executor):
    """Tests that read numbers out of objects call the candidate again, and its time counts."""
    tests = TESTS + "\ndef accept(answer, *given):\n    return int(answer) == expected(*given)\n"
    late = f"""
{WORK}
class Late:
    def __init__(self, *given):
        self.given = given

    def __int__(self):
        work(*self.given)
        return work(*self.given)

def f(x, m, n):
    return Late(x, m, n)
"""
    actual = executor.measure(python(REFERENCE, tests), python(late, tests), PLAN)
    assert actual.credited <= 1.0, actual


def test_a_table_made_while_loading_is_paid_for(executor):
    header = WORK + "M = 40009 * 40013\n\n"
    slow = header + "def f(x):\n    return work(x + 3, M, 150_000)\n"
    table = f"""{header}
import atexit
atexit.register(work, 3, M, 1000)
TABLE = [work(x + 3, M, 150_000) for x in (0, 1)]

def f(x):
    return TABLE[x]
"""
    finds_nothing(executor, python(slow, TABLE_TESTS), python(table, TABLE_TESTS))


# --- C++

CPP_SIZE = 1_200_000
SIGNATURE = "long long f(long long x, long long m, int n)"
CPP_WORK = """
#include <cstdint>
static long long work(std::uint64_t x, std::uint64_t m, int n) {
    for (int i = 0; i < n; ++i) x = x * x % m;
    return x;
}
"""
CPP_REFERENCE = CPP_WORK + SIGNATURE + " { return work(x, m, n); }\n"


@pytest.fixture(scope="module")
def compiler():
    try:
        tools.find()
    except tools.NoCompiler as error:
        pytest.skip(str(error))


def cpp(source, tests=TESTS, size=CPP_SIZE, signature=SIGNATURE):
    return Program({"main": source}, "f", f"SIZE = {size}\n{tests}", language="c++", signature=signature)


# What an earlier call left; the tests' text in memory; a process whose time nobody counts.
CPP_ATTACK = """
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <unistd.h>
static int calls = 0;

static void marks() {
    if (calls++ || std::getenv("JAXMARL_MARK")) throw std::runtime_error("a mark in memory");
    setenv("JAXMARL_MARK", "1", 1);
    for (const char *path : {"/tmp/jaxmarl-cpp-mark", "/dev/shm/jaxmarl-cpp-mark", "jaxmarl-cpp-mark"}) {
        if (access(path, F_OK) == 0) throw std::runtime_error(path);
        const int file = open(path, O_WRONLY | O_CREAT, 0600);
        if (file >= 0) close(file);
    }
}

static void look() {
    std::FILE *maps = std::fopen("/proc/self/maps", "r");
    const std::string mark = "n[ = SEMIRP";  // backwards, so as not to find itself
    char line[512];
    while (maps && std::fgets(line, sizeof line, maps)) {
        char *low, *high, mode;
        if (std::sscanf(line, "%p-%p %c", (void **)&low, (void **)&high, &mode) != 3 || mode != 'r') continue;
        if (std::strstr(line, "[v")) continue;  // not all of the kernel's pages can be read
        if (std::search(low, high, mark.rbegin(), mark.rend()) != high) throw std::runtime_error(line);
    }
}

long long f(long long x, long long m, int n) {
    marks();
    look();
    if (fork() >= 0) throw std::runtime_error("a second process");
    volatile long long kept = work(x, m, n / 4);
    (void)kept;
    return work(x, m, n);
}
"""


@pytest.mark.slow
def test_cpp_finds_nothing(executor, compiler):
    finds_nothing(executor, cpp(CPP_REFERENCE), cpp(CPP_WORK + CPP_ATTACK))


def test_cpp_loading_is_paid_for(executor, compiler):
    signature, m = "long long f(int x)", "40009LL * 40013"
    slow = f"{CPP_WORK}{signature} {{ return work(x + 3, {m}, {CPP_SIZE}); }}\n"
    table = f"""{CPP_WORK}
static long long table[2];
__attribute__((constructor)) static void fill() {{
    for (int x = 0; x < 2; ++x) table[x] = work(x + 3, {m}, {CPP_SIZE});
}}
{signature} {{ return table[x]; }}
"""
    programs = [cpp(text, TABLE_TESTS, CPP_SIZE, signature) for text in (slow, table)]
    finds_nothing(executor, *programs)


def test_cpp_compiling_is_not_counted(executor, compiler):
    """A source over which the compiler sits for longer than all timed calls together take."""
    heavy = "template <int N> struct T { static long long g() { return T<N - 1>::g() ^ N; } };\n"
    heavy += "template <> struct T<0> { static long long g() { return 0; } };\n"
    heavy += "long long (*volatile kept)() = &T<800>::g;\n"
    candidate = cpp("#include <algorithm>\n#include <map>\n#include <regex>\n" + heavy + CPP_REFERENCE)
    (report,) = executor.run([cpp(candidate.sources["main"], TESTS + CHECK)])
    assert report.verdict == "pass" and report.cpu_seconds < report.wall_seconds / 4, report


CHECK = """
def check(candidate):
    assert candidate(3, 40009 * 40013, 10) == expected(3, 40009 * 40013, 10)
"""
