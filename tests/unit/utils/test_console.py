"""console.py: plain lines and tables to the letter; in a terminal, what is left on the screen."""

import io
import os
import re
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import pytest
from repository import ROOT

from jaxmarl_llm.utils.compile_times import COMPILED, TRACED, CompileTimes, of_process
from jaxmarl_llm.utils.console import (
    LateProgress,
    ProgressDisplay,
    format_number,
    format_table,
    markdown,
    table,
)
from jaxmarl_llm.utils.eta import Eta, format_seconds


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")


def test_plain_progress_is_one_line_per_step_with_eta():
    # Steps end at 60 s (with what is done once), 80 s and 90 s.
    times, out = iter([0.0, 60.0, 80.0, 90.0]), io.StringIO()
    with ProgressDisplay(12, stream=out, clock=lambda: next(times)) as progress:
        progress.update(1, {"return": 41.234, "tests": 0.0})
        progress.print("saved [checkpoint]")
        progress.update(2, {})
        progress.update(3, {"return": None})
    assert out.getvalue().splitlines() == [
        "step  1/12  return 41.2  tests 0.0  60.0 s/step  ETA 11:00",
        "saved [checkpoint]",
        "step  2/12  20.0 s/step  ETA 3:20",  # the first step no longer counts: 10 of 20 s
        "step  3/12  return n/a  15.0 s/step  ETA 2:15",  # mean of 20 and 10: 9 of 15 s
    ]


def compiling(now: list[float], *programs: tuple[float, float]) -> CompileTimes:
    """Events of programs that each take so long to trace and to compile, one after the other, from now on."""
    times = CompileTimes(lambda: now[0])
    for tracing, compiled in programs:
        now[0] += tracing
        times.record(TRACED, tracing)
        now[0] += compiled
        times.record(COMPILED, compiled)
    return times


def compile_during(times: CompileTimes, now: list[float], tracing: float, compiled: float) -> None:
    now[0] += tracing
    times.record(TRACED, tracing)
    now[0] += compiled
    times.record(COMPILED, compiled)


def test_compiling_is_named_and_is_no_part_of_the_eta():
    """Four problems of 2 s each; before the first and the third 60 and 10 s of compiling."""
    now, out = [100.0], io.StringIO()
    times = compiling(now, (1.0, 4.0))  # before the display: it does not count
    with ProgressDisplay(4, stream=out, label="problems", compiles=times) as progress:
        compile_during(times, now, 20.0, 40.0)
        now[0] += 2.0
        progress.update(1, {})
        now[0] += 2.0
        progress.update(2, {})
        compile_during(times, now, 1.0, 9.0)
        now[0] += 2.0
        progress.update(3, {"return": 50})
        compile_during(times, now, 0.05, 0.05)  # not worth a word
        now[0] += 2.0
        progress.update(4, {})
    assert times.seconds == pytest.approx(75.1)
    assert out.getvalue().splitlines() == [
        "problems 0/4  compiling …",  # once: lines of a log stay few
        "problems 1/4  compiling 60.0 s  2.00 s each  ETA 0:06",
        "problems 2/4  2.00 s each  ETA 0:04",
        "problems 3/4  return 50.0  compiling 10.0 s  2.00 s each  ETA 0:02",
        "problems 4/4  2.00 s each  ETA 0:00",
    ]


def test_of_two_displays_the_inner_one_names_compiling():
    now, out = [0.0], io.StringIO()
    times = CompileTimes(lambda: now[0])
    with ProgressDisplay(3, stream=out, compiles=times) as training:
        with ProgressDisplay(2, label="test problems", within=training, compiles=times) as inner:
            compile_during(times, now, 0.5, 2.5)
            now[0] += 1.0
            inner.update(1, {})
        compile_during(times, now, 0.5, 1.5)
        now[0] += 4.0
        training.update(1, {})
    assert out.getvalue().splitlines() == [
        "test problems 0/2  compiling …",
        "test problems 1/2  compiling 3.00 s  1.00 s each  ETA 0:01",
        "step 0/3  compiling …",
        "step 1/3  compiling 5.00 s  5.00 s/step  ETA 0:10",  # 1 s of the evaluation and 4 s
    ]


def test_a_bar_says_that_it_compiles_while_it_does():
    now, out = [0.0], Terminal()
    times = CompileTimes(lambda: now[0])
    with ProgressDisplay(3, stream=out, compiles=times) as progress:
        seen = []
        for event, seconds in ((TRACED, 0.5), (COMPILED, 2.0)):
            now[0] += seconds
            times.record(event, seconds)
            seen.append(progress.bar.tasks[0].fields["timing"])
        now[0] += 3.0
        progress.update(1, {})
        times.record(TRACED, 0.01)  # of a program that is compiled before anybody reads it
        seen.append(progress.bar.tasks[0].fields["timing"])
    assert seen == ["compiling …", "ETA ?", "compiling 2.50 s  3.00 s/step  ETA 0:06"]


@pytest.mark.parametrize("events, seconds", [
    ([(10.0, 10.0)], 10.0),
    ([(5.0, 1.0), (10.0, 10.0)], 10.0),  # a program within another
    ([(5.0, 1.0), (7.0, 1.0), (10.0, 6.0)], 6.0),
    ([(5.0, 2.0), (6.0, 2.0)], 3.0),  # of two threads
    ([(5.0, 2.0), (9.0, 2.0)], 4.0),
])
def test_compiling_of_several_programs_counts_once(events, seconds):
    now = [0.0]
    times = CompileTimes(lambda: now[0])
    for end, duration in events:
        now[0] = end
        times.record(COMPILED, duration)
        times.record("/jax/something/else", 100.0)
    assert times.seconds == pytest.approx(seconds)
    assert times.clock() == pytest.approx(events[-1][0] - seconds)


def test_what_jax_reports_of_a_program():
    told = []
    times = of_process()
    assert of_process() is times
    before = times.seconds
    with times.watched(told.append):
        start = time.monotonic()
        jax.jit(lambda x: sum(jnp.sin(x + i) for i in range(300)))(jnp.arange(3.0))
    assert 0 < times.seconds - before <= time.monotonic() - start
    assert told in ([True, False], [])  # not where tracing is faster than `WORTH_NAMING`


def test_late_progress_shows_nothing_of_what_is_over_in_a_moment():
    now, out = [0.0], io.StringIO()
    progress = LateProgress("rows", out, lambda: now[0])
    for done in range(1, 5):
        now[0] += 0.4
        progress(done, 4)
    assert out.getvalue() == ""


def test_late_progress_knows_when_the_work_began():
    now, out = [0.0], io.StringIO()
    progress = LateProgress("rows", out, lambda: now[0])
    for done in (1, 2, 3, 4):
        now[0] += 1.5
        progress(done, 4)
    assert out.getvalue().splitlines() == [
        "rows 2/4  1.50 s each  ETA 0:03",
        "rows 3/4  1.50 s each  ETA 0:02",
        "rows 4/4  1.50 s each  ETA 0:00",
    ]


def test_the_total_may_become_known_later():
    times, out = iter([0.0, 60.0, 80.0]), io.StringIO()
    progress = ProgressDisplay(10_000, stream=out, clock=lambda: next(times))
    progress.update(1, {}, total=12)
    progress.update(2, {})
    assert out.getvalue().splitlines() == [
        "step  1/12  60.0 s/step  ETA 11:00",
        "step  2/12  20.0 s/step  ETA 3:20",
    ]


def test_resumed_run_counts_only_its_own_steps():
    times, out = iter([100.0, 110.0]), io.StringIO()
    with ProgressDisplay(8, done=5, stream=out, clock=lambda: next(times)) as progress:
        progress.update(6, {})
    assert out.getvalue() == "step 6/8  10.0 s/step  ETA 0:20\n"


def test_steps_of_an_earlier_process_say_nothing_of_the_pace():
    times, out = iter([0.0, 1.0, 21.0]), io.StringIO()
    with ProgressDisplay(8, stream=out, clock=lambda: next(times)) as progress:
        progress.update(4, {}, repeated=True)
        progress.update(6, {})
    assert out.getvalue().splitlines() == ["step 4/8  ? s/step  ETA ?", "step 6/8  10.0 s/step  ETA 0:20"]


def test_eta_of_several_steps_at_once():
    times = iter([0.0, 80.0, 84.0])
    eta = Eta(clock=lambda: next(times))
    assert eta.remaining(3) is None
    eta.tick(4)
    assert eta.remaining(3) == 60.0 and eta.remaining(0) == 0.0  # 80 s / 4 steps * 3
    eta.tick(2)
    assert eta.remaining(3) == 6.0  # 4 s / 2 steps * 3


def test_eta_of_batches_that_end_in_pairs():
    """The second of two batches that overlap ends right after the first: the pace is that of both together."""
    times = iter([0.0, 80.0, 80.0, 165.0])
    eta = Eta(clock=lambda: next(times), in_pairs=True)
    eta.tick(4)
    assert eta.remaining(2) == 40.0
    eta.tick(4)
    assert eta.remaining(2) == 20.0  # 80 s / 8 steps * 2
    eta.tick(2)
    assert eta.seconds_per_step == 16.5


def test_an_evaluation_within_a_training_has_lines_of_its_own():
    times, out = iter([0.0, 100.0, 104.0]), io.StringIO()
    with ProgressDisplay(9, stream=out) as training:
        inner = ProgressDisplay(6, label="test problems", within=training, clock=lambda: next(times))
        with inner:
            inner.update(2, {})
            inner.update(4, {})
    assert out.getvalue().splitlines() == [
        "test problems 2/6  50.0 s each  ETA 3:20",
        "test problems 4/6  2.00 s each  ETA 0:04",
    ]


def test_an_evaluation_within_a_training_has_a_bar_of_its_own():
    out = Terminal()
    with ProgressDisplay(9, stream=out) as training:
        with ProgressDisplay(6, label="test problems", within=training) as inner:
            inner.update(4, {})
            training.bar.refresh()
        training.update(1, {})
        assert [task.description for task in training.bar.tasks] == ["step"]  # the other one is gone
    assert "test problems" in out.getvalue() and "4/6" in out.getvalue()


def test_notes_about_a_long_step_are_few_lines():
    now, out = [0.0], io.StringIO()
    with ProgressDisplay(9, stream=out, label="problems", clock=lambda: now[0]) as progress:
        for second in (1.0, 12.0, 30.9, 31.0, 40.0):
            now[0] = second
            progress.note(f"turn {second:.0f}")
        progress.update(5, {})
        now[0] = 70.0
        progress.note("turn 2")
    assert out.getvalue().splitlines() == [
        "problems 0/9  turn 1",
        "problems 0/9  turn 31",  # 30 seconds after the line before
        "problems 5/9  8.00 s each  ETA 0:32",
        "problems 5/9  turn 2",
    ]


def test_a_note_stands_in_the_bar_until_the_step_is_done():
    out = Terminal()
    with ProgressDisplay(9, stream=out) as progress:
        progress.note("turn 2")
        progress.note("turn 3")
        assert [task.fields["numbers"] for task in progress.bar.tasks] == ["turn 3"]
        progress.update(5, {})
        assert [task.fields["numbers"] for task in progress.bar.tasks] == [""]
    progress.note("too late")  # of a thread that is behind


def test_terminal_shows_a_bar_with_the_numbers():
    out = Terminal()
    with ProgressDisplay(4, stream=out) as progress:
        progress.update(4, {"return": 41.2})
        progress.print("saved [checkpoint]")
    last = out.getvalue()
    assert "\x1b[" in last  # it draws
    assert all(part in last for part in ("4/4", "return 41.2", "ETA 0:00", "saved [checkpoint]"))


ALARMING = """
import logging
from jaxmarl_llm.cli import entry
from jaxmarl_llm.utils import console

def main(argv):
    with console.ProgressDisplay(4) as progress:
        progress.update(1, {"return": 41.2})
        logging.getLogger("jaxmarl_llm.executor").warning("verdicts [rose] %s", "twice")
        progress.update(2, {"return": 42.5})

entry.run(main)
"""


def screen(text: str) -> list[str]:
    """The lines that a terminal is left with; it knows what a bar uses: return, up, erase the line."""
    lines, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[[0-?]*[a-zA-Z]|[\r\n]|[^\x1b\r\n]+", text):
        if piece == "\r":
            column = 0
        elif piece == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif piece == "\x1b[1A":
            row -= 1
        elif not piece.startswith("\x1b"):
            lines[row] = lines[row][:column].ljust(column) + piece + lines[row][column + len(piece) :]
            column += len(piece)
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize("to_file", [False, True])
def test_warning_leaves_the_bar_whole(tmp_path, to_file):
    """What a command logs stands above the bar, or in the file that stderr goes to."""
    ours, theirs = pytest.importorskip("pty").openpty()
    with open(tmp_path / "stderr", "w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", ALARMING], cwd=ROOT, stdin=theirs, stdout=theirs,
            stderr=file if to_file else theirs,
        )  # fmt: skip
    os.close(theirs)
    output = b""
    try:
        while part := os.read(ours, 4096):
            output += part
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    assert process.wait() == 0, output
    *above, bar = [line for line in screen(output.decode()) if line]
    assert "2/4" in bar and "return 42.5" in bar and "return 41.2" not in "".join(above)
    if to_file:
        above = (tmp_path / "stderr").read_text().splitlines()
    (warning,) = above
    assert re.match(r"W\d{4} .*\] verdicts \[rose\] twice$", warning), above


def test_bad_totals_are_refused():
    with pytest.raises(ValueError, match="total=0, done=0"):
        ProgressDisplay(0)
    with pytest.raises(ValueError, match="total=3, done=4"):
        ProgressDisplay(3, done=4)


def test_plain_table_aligns_words_left_and_numbers_right():
    rows = [["return", 4, 41.25], ["syntax", 12, None]]
    assert format_table(rows, ["part", "n", "after"]).splitlines() == [
        "part     n  after",
        "------  --  -----",
        "return   4   41.2",
        "syntax  12    n/a",
    ]


def test_table_plain_and_in_a_terminal():
    plain, drawn = io.StringIO(), Terminal()
    for stream in (plain, drawn):
        table([["[b]main", 3]], ["agent", "count"], title="closing", stream=stream)
    assert plain.getvalue() == "closing\nagent    count\n-------  -----\n[b]main      3\n"
    assert all(part in drawn.getvalue() for part in ("closing", "[b]main", "3", "\u2501"))


def test_dumb_terminal_gets_plain_text(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    table([], ["a", "b"], stream=out)
    assert out.getvalue() == "a  b\n-  -\n"


def test_row_of_wrong_length_is_refused():
    with pytest.raises(ValueError, match="2 cells but there are 1 headers"):
        format_table([[1, 2]], ["a"])


def test_formats():
    numbers = [0, 0.01234, 1.234, 41.26, 1234.4, -0.5, float("nan")]
    assert [format_number(x) for x in numbers] == ["0.0", "0.0123", "1.23", "41.3", "1234", "-0.50", "nan"]
    assert [format_seconds(x) for x in (0, 59.6, 75, 3700, None)] == ["0:00", "1:00", "1:15", "1:01:40", "?"]


def test_a_table_in_markdown():
    rows = [["a|b", "1"], ["", "2"]]
    assert markdown(rows, ["name", "n"]) == "| name | n |\n| --- | --- |\n| a\\|b | 1 |\n|  | 2 |\n"
    assert markdown(rows[1:], ["x", "y"], "# Title").startswith("# Title\n\n| x | y |\n")
