"""python -m jaxmarl_llm.executor."""

import json
import subprocess
import sys

import pytest
from repository import ROOT

from jaxmarl_llm.executor.probing import probe

TESTS = "def check(candidate):\n    assert candidate(1) == 2\n"


def command(*arguments, text=None):
    """The finished process of the command line."""
    line = [sys.executable, "-m", "jaxmarl_llm.executor", *map(str, arguments)]
    return subprocess.run(line, cwd=ROOT, input=text, capture_output=True, text=True)


def row(body, **fields):
    """A line of input: a function f(x) with one statement."""
    sources = {"main": f"def f(x):\n    {body}\n"}
    return json.dumps({"sources": sources, "entry_point": "f", "tests": TESTS} | fields)


def test_a_report_per_line_in_order(tmp_path):
    path = tmp_path / "programs.jsonl"
    path.write_text("\n".join([row("return x + 1", id="good"), "", row("return 0"), row("return 1 / 0")]))
    done = command(path, "--workers=1", "--min-level=1", "--level=1")
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    # Without an id, the number of the line stands for it.
    assert [(r["id"], r["verdict"]) for r in reports] == [("good", "pass"), (3, "fail"), (4, "error")]
    assert (reports[0]["passed"], reports[0]["total"], reports[0]["level"]) == (1, 1, 1)
    assert "3 programs at level 1" in done.stderr and "pass 1" in done.stderr


def test_standard_input_and_limits():
    done = command("--cpu-seconds=0.2", text=row("while True: pass"))
    assert json.loads(done.stdout)["verdict"] == "timeout-cpu"


def test_what_the_machine_offers():
    done = command("--level-here")
    assert done.returncode == 0 and done.stdout.startswith("level ")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.slow
def test_table_of_attacks():
    done = command("--level-here", "--table")
    assert done.returncode == 0, done.stderr
    level, head, *rows = done.stdout.splitlines()
    assert level.startswith("level ") and head.startswith("a program can ") and "level 1" in head
    assert [line[:40].rstrip() for line in rows] == list(probe.ATTACKS)
    columns = [line[40:].split() for line in rows]
    assert {len(outcomes) for outcomes in columns} == {head.count("level ")}
    assert columns[probe.ATTACKS.index("read /etc/passwd")][0] == "done"
    assert command("--table").stdout.splitlines()[0] == head


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "line 1: "),
        (row("return x") + "\n[1]", "line 2: not an object"),
        (row("return x", test="x"), r"line 1: unknown fields ['test']; allowed: id, sources"),
        (row("return x", entry_point="f()"), "line 1: Program.entry_point is 'f()'"),
        (json.dumps({"entry_point": "f", "tests": TESTS}), "line 1: "),
        (row("return x", shared="f"), "line 1: Program.shared is 'f'; allowed: a "),
    ],
)
def test_bad_input_is_named(text, message):
    done = command(text=text)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr and "Traceback" not in done.stderr


def test_bad_tests_cost_no_other_line_its_report():
    bad = {"parse": "def check(candidate)", "none": "x = 1", "fail": f"import nothere\n{TESTS}"}
    lines = [row("return x + 1", id="first"), *(row("return x + 1", id=n, tests=t) for n, t in bad.items())]
    done = command("--workers=1", text="\n".join([*lines, row("return x", id="last")]))
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 2 and "Traceback" not in done.stderr and "bad tests 3" in done.stderr
    assert [row["id"] for row in rows] == ["first", *bad, "last"]
    assert rows[0]["verdict"] == "pass" and rows[-1]["verdict"] == "fail"
    assert [set(row) for row in rows[1:4]] == [{"id", "error"}] * 3
    said = ("do not parse", "do not define check(candidate)", "No module named 'nothere'")
    for found, says in zip(rows[1:4], said, strict=True):
        assert says in found["error"] and "tests of 'f'" in found["error"]


def test_a_list_of_shared_names():
    """Both agents have a `help`, which is not shared: each uses its own."""
    sources = {"aux": "def help(x):\n    return 1\ndef aux(x):\n    return x + help(x)\n"}
    sources["main"] = "def help(x):\n    return 0\ndef f(x):\n    return aux(x) + help(x)\n"
    done = command("--workers=1", text=row("", sources=sources, shared=["aux", "f"]))
    assert json.loads(done.stdout)["verdict"] == "pass", done.stderr


def test_bad_arguments_are_named(tmp_path):
    for arguments, message in (
        (("--level=9",), "level is 9"),
        (("--level=1",), "level is 1, below min_level 2; to accept it, set min_level=1"),
        (("--min-level=0",), "min_level is 0; allowed: 1, 2, 3"),
        (("--cpu-seconds=-1",), "cpu_seconds is -1"),
        ((tmp_path / "none",), "No such file"),
    ):
        done = command(*arguments, text=row("return x"))
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
