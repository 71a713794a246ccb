"""console.py: plain lines and tables to the letter; in a terminal, what is left on the screen."""

import io

import pytest

from jaxmarl_llm.console import Eta, ProgressDisplay, format_number, format_seconds, format_table, table


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")


def test_plain_progress_is_one_line_per_step_with_eta():
    # Steps end at 60 s (with the compilation), 80 s and 90 s.
    times, out = iter([0.0, 60.0, 80.0, 90.0]), io.StringIO()
    with ProgressDisplay(12, stream=out, clock=lambda: next(times)) as progress:
        progress.update(1, {"return": 41.234, "tests": 0.0})
        progress.print("saved [checkpoint]")
        progress.update(2, {})
        progress.update(3, {"return": None})
    assert out.getvalue().splitlines() == [
        "step  1/12  return 41.2  tests 0.0  60.0 s/step  ETA 11:00",  # 11 steps of 60 s
        "saved [checkpoint]",
        "step  2/12  20.0 s/step  ETA 3:20",  # the first step no longer counts: 10 of 20 s
        "step  3/12  return n/a  15.0 s/step  ETA 2:15",  # mean of 20 and 10: 9 of 15 s
    ]


def test_resumed_run_counts_only_its_own_steps():
    times, out = iter([100.0, 110.0]), io.StringIO()
    with ProgressDisplay(8, done=5, stream=out, clock=lambda: next(times)) as progress:
        progress.update(6, {})
    assert out.getvalue() == "step 6/8  10.0 s/step  ETA 0:20\n"


def test_eta_of_several_steps_at_once():
    times = iter([0.0, 8.0])
    eta = Eta(clock=lambda: next(times))
    assert eta.remaining(3) is None
    eta.tick(4)
    assert eta.remaining(3) == 6.0  # 8 s / 4 steps * 3


def test_terminal_shows_a_bar_with_the_numbers():
    out = Terminal()
    with ProgressDisplay(4, stream=out) as progress:
        progress.update(4, {"return": 41.2})
        progress.print("saved [checkpoint]")
    last = out.getvalue()
    assert "\x1b[" in last  # it draws
    assert all(part in last for part in ("4/4", "return 41.2", "ETA 0:00", "saved [checkpoint]"))


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
