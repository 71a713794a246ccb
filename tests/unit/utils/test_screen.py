"""The screen that several runs share: names before their lines, and output apart by thread."""

import contextlib
import io
import sys
import threading

from jaxmarl_llm.utils.console import ProgressDisplay
from jaxmarl_llm.utils.screen import OutputByThread, Screen


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_lines_begin_with_the_name_of_the_run_also_of_what_is_within():
    stream = io.StringIO()
    with Screen(stream) as screen:
        with ProgressDisplay(4, within=screen, name="seed 2", clock=lambda: 0.0) as display:
            display.print("validation")
            display.update(1, {"return": 2.0})
            with ProgressDisplay(3, within=display, label="test problems", clock=lambda: 0.0) as inner:
                inner.update(1, {})
        screen.print("all")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "seed 2  validation"
    assert lines[1].startswith("seed 2  step 1/4  return 2.00")
    assert lines[2].startswith("seed 2  test problems 1/3")
    assert lines[3:] == ["all"]


def test_a_terminal_has_a_bar_for_each(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with Screen(Terminal()) as screen:
        displays = [ProgressDisplay(4, within=screen, name=f"seed {n}") for n in (0, 1)]
        with displays[0], displays[1]:
            assert [task.description for task in screen.bar.tasks] == ["seed 0 step", "seed 1 step"]
            displays[1].update(3, {})
            assert [task.completed for task in screen.bar.tasks] == [0, 3]
        assert not screen.bar.tasks
        displays[0]._show_compiling(True)  # told by another thread, too late


def test_what_a_thread_prints_goes_to_its_own_stream():
    terminal, own = Terminal(), io.StringIO()
    output, seen = OutputByThread(terminal), {}

    def work():
        with output.to(own):
            print("in the thread")
            seen["terminal"] = sys.stdout.isatty()
        print("after it")

    with contextlib.redirect_stdout(output):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        print("here", flush=True)
        assert sys.stdout.isatty()
    assert own.getvalue() == "in the thread\n" and seen == {"terminal": False}
    assert terminal.getvalue() == "after it\nhere\n"
