"""Scripts that read standard input do what they do under a plain `python` with a file as its standard input."""

import os
import subprocess
import sys

import pytest

from jaxmarl_llm.executor import Executor, Limits, Program


@pytest.fixture(scope="module")
def executor(level):
    with Executor(workers=1, limits=Limits(cpu_seconds=5), min_level=1, level=level) as running:
        yield running


DOWN = "def down(n):\n    return 0 if n == 0 else 1 + down(n - 1)\n"

LEAVING = {
    "exit": "print(input())\nexit()\nprint('no')\n",
    "quit with a status": "print(input())\nquit(0)\nprint('no')\n",
    "exit in a function": "def solve():\n    print('yes')\n    exit()\nsolve()\nprint('no')\n",
    "failing exit": "print(input())\nexit(1)\n",
    "sys.exit with a text": "import sys\nprint(1)\nsys.exit('bad')\n",
    "sys.exit(False)": "import sys\nprint(1)\nsys.exit(False)\n",
    "sys.exit(0.0)": "import sys\nprint(1)\nsys.exit(0.0)\n",
    "sys.exit(256)": "import sys\nprint(1)\nsys.exit(256)\n",
    "through finally": "import sys\ntry:\n    sys.exit()\nfinally:\n    print('end')\n",
    "an exception": "print(1)\nraise ValueError('x')\n",
    "atexit": "import atexit\natexit.register(print, 'last')\nprint('first')\n",
}
READING = {
    "input": "a, b = map(int, input().split())\nprint(a + b)\n",
    "input to the end": "try:\n    while True: print(input()[::-1])\nexcept EOFError:\n    print('end')\n",
    "input beyond the end": "while True: input()\n",
    "a prompt": "name = input('name? ')\nprint(name)\n",
    "readline": "import sys\ninput = sys.stdin.readline\nfor _ in range(4): print(repr(input()))\n",
    "lines": "import sys\nfor line in sys.stdin: print(line.rstrip('\\n').upper(), end=';')\n",
    "readlines": "from sys import stdin\nprint(stdin.readlines())\n",
    "read and split": "import sys\nprint(sys.stdin.read().split())\n",
    "bytes": "import sys\ndata = sys.stdin.buffer.read()\nsys.stdout.buffer.write(data[::-1])\n",
    "open(0)": "for line in open(0): print(line, end='')\n",
    "open(0) as bytes": "print(open(0, 'rb').read())\n",
    "/dev/stdin": "print(open('/dev/stdin').read().strip())\n",
    "/dev/stdin as a path": "import pathlib\nprint(pathlib.Path('/dev/stdin').read_text())\n",
    "fileinput": "import fileinput\nfor line in fileinput.input(): print(fileinput.lineno(), line.strip())\n",
    "os.read": "import io, os\nread = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline\nprint(read(), read())\n",
    "a wrapper of its own": "import io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer)\nprint(input())\n",
    "a closed stream": "import sys\nsys.stdin.close()\ntry: input()\nexcept ValueError: print('closed')\n",
}
WRITING = {
    "no newline": "import sys\nsys.stdout.write('a')\nprint('b', end='')\n",
    "text and bytes": "import os, sys\nprint('a')\nsys.stdout.flush()\nos.write(1, b'b\\n')\n"
    "sys.stdout.buffer.write(b'c\\n')\nprint('d')\n",
    "collected": "import atexit, io, sys\nsys.stdout = out = io.StringIO()\n"
    "@atexit.register\ndef write(): sys.__stdout__.write(out.getvalue())\nprint(input())\n",
    "a wrapper of its own": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint('x')\n",
    "detached": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\nprint('x')\n",
    "closed": "import sys\nprint('x')\nsys.stdout.close()\n",
    "a file that stays open": "out = open(1, 'w', closefd=False)\ndef f(): out.write('x')\nf()\n",
    "other characters": "print(input()[::-1] + 'äöü€😀')\n",
}
RECURSION = {
    "at the default limit": f"{DOWN}print(down(990))\n",
    "over the default limit": f"{DOWN}print(down(1000))\n",
    "at a limit of one's own": f"import sys\nsys.setrecursionlimit(5010)\n{DOWN}print(down(5000))\n",
    "deep": f"import sys\nsys.setrecursionlimit(10**6)\n{DOWN}print(down(100_000))\n",
    "the highest limit": "import sys\nsys.setrecursionlimit(2**31 - 1)\nprint(1)\n",
    "a limit that is too high": "import sys\nsys.setrecursionlimit(2**31)\nprint(1)\n",
    "generators": "import sys\nsys.setrecursionlimit(10**6)\n"
    "def g(n):\n    if n: yield from g(n - 1)\n    yield n\nprint(sum(g(3000)))\n",
    "a thread with a large stack": "import sys, threading\nsys.setrecursionlimit(10**7)\n"
    f"threading.stack_size(2**26)\n{DOWN}"
    "t = threading.Thread(target=lambda: print(down(50_000)))\nt.start()\nt.join()\nprint(t.is_alive())\n",
    "a large stack of C": "import functools, sys, threading\nsys.setrecursionlimit(10**6)\n"
    "threading.stack_size(2**26)\n@functools.lru_cache(None)\n"
    f"{DOWN}t = threading.Thread(target=lambda: print(down(20_000)))\nt.start()\nt.join()\n",
    "a limit for the stack": "import resource\n"
    "resource.setrlimit(resource.RLIMIT_STACK, (2**26, resource.RLIM_INFINITY))\nprint('ok')\n",
    "a class of threads": "import threading\nclass T(threading.Thread):\n"
    "    def run(self): print('ran')\nt = T(daemon=True)\nt.start()\nt.join(5)\nprint(t.is_alive())\n",
    "a thread that fails": "import threading\ndef f(): raise ValueError\n"
    "t = threading.Thread(target=f)\nt.start()\nt.join()\nprint('on')\n",
}
MODULE = {
    "arguments": "import sys\nprint(len(sys.argv), __name__)\n",
    "__main__": "import pickle, sys\nclass A: pass\n"
    "print(sys.modules['__main__'].A is A, type(pickle.loads(pickle.dumps(A()))) is A)\n",
    "builtins": "import builtins\nprint(hasattr(builtins, 'seen'))\nbuiltins.seen = 1\n"
    "builtins.input = None\n__builtins__.print('x')\n",
}
SCRIPTS = {
    f"{group}: {name}": source
    for group, scripts in (
        ("leaving", LEAVING),
        ("reading", READING),
        ("writing", WRITING),
        ("recursion", RECURSION),
        ("module", MODULE),
    )
    for name, source in scripts.items()
}
GIVEN = "1 2\r\nab\n\nlast"


def under_plain_python(source, folder):
    (folder / "solution.py").write_text(source, encoding="utf-8")
    (folder / "given").write_bytes(GIVEN.encode())
    command = [sys.executable, str(folder / "solution.py")]
    with open(folder / "given", "rb") as given:
        done = subprocess.run(
            command, stdin=given, capture_output=True, env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
        )
    return done.returncode, done.stdout.decode()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_as_under_plain_python(executor, name, tmp_path):
    source = SCRIPTS[name]
    status, printed = under_plain_python(source, tmp_path)
    # Twice: nothing of the first run is left for the second.
    once = f"    assert candidate({GIVEN!r}) == {printed!r}, candidate({GIVEN!r})\n"
    tests = f"def check(candidate):\n{once}    again = candidate({GIVEN!r})\n    assert again == {printed!r}, again\n"
    (report,) = executor.run([Program({"main": source}, "solve", tests, stdio=True)])
    assert report.verdict == ("pass" if status == 0 else "error"), (report, status, printed)


def test_what_is_named_as_different(executor):
    tests = "def check(candidate):\n    assert candidate('') == '1\\n'\n"
    left = "import os\nprint(1, flush=True)\nos._exit(0)\n"
    pool = "from concurrent.futures import ThreadPoolExecutor\n"
    pool += "with ThreadPoolExecutor() as pool: print(*pool.map(int, '1'))\n"
    reports = executor.run([Program({"main": s}, "solve", tests, stdio=True) for s in (left, pool)])
    assert reports[0].verdict == "protocol"
    if executor.level > 1:  # root may start threads at level 1
        assert reports[1].verdict == "error"
