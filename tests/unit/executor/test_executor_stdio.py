"""Programs that read standard input and print, and programs that write files."""

import os

import pytest

from jaxmarl_llm.executor import Executor, Limits, Program


@pytest.fixture(scope="module")
def executor(level):
    with Executor(workers=1, limits=Limits(cpu_seconds=2), min_level=1, level=level) as running:
        yield running


TESTS = """
def check(candidate):
    assert candidate('1 2\\n') == '3\\n'
    assert candidate('5 -5\\n') == '0\\n'
"""


def script(executor, source, tests=TESTS, **sources):
    (report,) = executor.run([Program({**sources, "main": source}, "solve", tests, stdio=True)])
    return report


@pytest.mark.parametrize(
    "source",
    [
        "a, b = map(int, input().split())\nprint(a + b)\n",
        "import sys\nprint(sum(map(int, sys.stdin.read().split())))\n",
        "import sys\nsys.stdout.write(f'{sum(map(int, sys.stdin.readline().split()))}\\n')\nsys.exit()\n",
        "import sys\nsys.stdout.buffer.write(b'%d\\n' % sum(map(int, sys.stdin.buffer.read().split())))\n",
        "import os\nos.write(1, b'%d\\n' % sum(map(int, open(0).read().split())))\n",
        "n = 0\ndef main():\n    global n\n    n += sum(map(int, input().split()))\n    print(n)\n"
        "if __name__ == '__main__':\n    main()\n",
    ],
)
def test_scripts_in_every_style(executor, source):
    report = script(executor, source)
    assert report.verdict == "pass", report
    assert report.calls == {"solve": 2}


@pytest.mark.parametrize(
    "verdict, source",
    [
        ("fail", "print(3)\n"),
        ("error", "input(); input()\n"),
        ("error", "import sys; sys.exit(1)\n"),
        ("error", "1 / 0\n"),
        ("error", "import sys\nwhile True: sys.stdout.write('x' * 100000)\n"),
        ("load-error", "print(\n"),
        ("timeout-cpu", "while True: pass\n"),
        ("protocol", "import os\nprint(3)\nos._exit(0)\n"),
        (
            "fail",
            "import os\nos.write(1, b'3\\n')\nos.write(5, b'3\\n')\n",
        ),
    ],
)
def test_what_is_no_right_answer(executor, verdict, source):
    report = script(executor, source)
    assert report.verdict == verdict, report
    assert report.passed < report.total


def test_a_script_uses_its_partners_function(executor):
    report = script(
        executor, "print(add(*map(int, input().split())))\n", aux="def add(a, b):\n    return a + b\n"
    )
    assert report.verdict == "pass", report
    assert [(row.function, row.calls, row.used) for row in report.interactions] == [("add", 2, True)]


def files(executor, source, tests="def check(candidate):\n    assert candidate(1) == 2\n", **fields):
    return executor.run([Program({"main": source}, "f", tests, **fields)])[0]


WRITE = (
    "import os, tempfile\n"
    "def f(x):\n    assert os.listdir('.') == []\n    os.mkdir('d')\n"
    "    with open('d/a', 'w') as file:\n        file.write(str(x + 1))\n    os.rename('d/a', 'b')\n"
    "    with tempfile.TemporaryFile('w+') as file:\n        file.write('x')\n"
    "    return int(open('b').read())\n"
)


def test_a_folder_of_its_own_where_it_is_asked_for(executor):
    left = set(os.listdir("/tmp"))
    assert files(executor, WRITE, tmp=True).verdict == "pass"
    assert files(executor, WRITE + "# again", tmp=True).verdict == "pass"  # nothing of the first is left
    assert files(executor, WRITE).verdict != "pass"
    assert set(os.listdir("/tmp")) <= left


def test_the_folder_is_bounded_and_holds_files_only(executor):
    fill = (
        "def f(x):\n    for i in range(10**6):\n        with open(str(i), 'wb') as file:\n"
        "            file.write(b'x' * (4 << 20))\n"
    )
    report = files(executor, fill, tmp=True)
    assert report.verdict in ("error", "killed", "timeout-cpu"), report
    if executor.level > 1:
        link = "import os\ndef f(x):\n    os.symlink('/etc', 'e')\n    return 2\n"
        assert files(executor, link, tmp=True).verdict == "error"
        outside = "def f(x):\n    open('/tmp/other', 'w').close()\n    return 2\n"
        assert files(executor, outside, tmp=True).verdict == "error"


@pytest.mark.parametrize("field", ["stdio", "tmp"])
def test_fields_must_be_bool(field):
    with pytest.raises(ValueError, match=f"Program.{field} is 1"):
        Program({"main": ""}, "f", TESTS, **{field: 1})
