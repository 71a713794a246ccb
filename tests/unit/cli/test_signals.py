"""The first signal stops a process within seconds, wherever it is; the second one at once."""

import signal
import subprocess
import sys
import textwrap

import pytest
from repository import ROOT

from jaxmarl_llm.cli.signals import INTERRUPTED, StopSignal

# Begins, says so, and works: `stuck()` is deep in a library that releases the lock of Python and looks at no signal.
START = """
    import hashlib, os, signal, sys, time
    from jaxmarl_llm.cli import signals
    from jaxmarl_llm.utils import stopping

    signals.GRACE = 0.5

    def stuck():
        hashlib.pbkdf2_hmac("sha512", b"x", b"x", 2**31 - 1)
"""


def ended(script: str, signals: int = 1, number=signal.SIGTERM) -> tuple[int, str, str]:
    """Exit code and output of a process that gets a signal at each line that it prints."""
    code = textwrap.dedent(START) + textwrap.dedent(script)
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)  # fmt: skip
    lines = []
    for _ in range(signals):
        lines.append(process.stdout.readline())
        process.send_signal(number)
    out, err = process.communicate()
    return process.returncode, "".join(lines) + out, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_work_that_asks_stops_by_itself(number):
    code, out, err = ended("""
        with signals.StopSignal("request") as stop:
            try:
                print("begun", flush=True)
                while True:
                    stopping.check()
                    time.sleep(0.01)
            except stopping.StopRequested:
                stop.take()
                print("saved", stop.requested)
        stopping.check()
    """, number=number)  # fmt: skip
    assert (code, out) == (0, "begun\nsaved True\n")
    assert err == "stopping (once more to stop at once)\n"


def test_work_that_is_stuck_is_rescued():
    code, out, err = ended("""
        with signals.StopSignal("request") as stop:
            stop.rescue = lambda: ("saved in time", 0)
            print("begun", flush=True)
            stuck()
    """)
    assert (code, out) == (0, "begun\nsaved in time\n") and "Traceback" not in err


def test_a_main_thread_that_saves_is_not_disturbed():
    code, out, _ = ended("""
        with signals.StopSignal("request") as stop:
            stop.rescue = lambda: ("rescued", 1)
            stop.take()
            print("begun", flush=True)
            time.sleep(1.5)  # longer than the grace
            print("saved")
    """)
    assert (code, out) == (0, "begun\nsaved\n")


def test_a_main_thread_that_ends_waits_for_the_thread_that_saves():
    """The interpreter would go down around it, which aborts the process where it is at work in JAX."""
    code, out, err = ended("""
        def rescue():
            import jax

            saving.set()
            for n in range(2, 40):  # each is a compilation
                jax.numpy.ones(n).sum()
            return "saved", 3

        import threading
        saving = threading.Event()
        with signals.StopSignal("request") as stop:
            stop.rescue = rescue
            print("begun", flush=True)
            saving.wait()
    """)
    assert (code, out) == (3, "begun\nsaved\n") and "FATAL" not in err


@pytest.mark.parametrize("first", ["request", "flag", "interrupt"])
def test_the_second_signal_ends_it_at_once(first):
    """Also while the main thread saves, or is stuck."""
    code, out, err = ended(f"""
        signals.GRACE = 1000
        with signals.StopSignal({first!r}) as stop:
            try:
                print("begun", flush=True)
                while not stop.requested:
                    time.sleep(0.01)
            except KeyboardInterrupt:
                pass
            print("again", flush=True)
            stuck()
    """, signals=2)  # fmt: skip
    assert (code, out) == (INTERRUPTED, "begun\nagain\n")
    assert err.splitlines()[-1] == "stopped at once" and "Traceback" not in err


@pytest.mark.parametrize("work", ["time.sleep(1000)", "stuck()"])
def test_a_command_ends_without_a_traceback(work):
    code, out, err = ended(f"""
        from jaxmarl_llm.cli import entry

        def main(argv):
            print("begun", flush=True)
            {work}

        sys.exit(entry.plainly(main)([]))
    """)
    assert code == INTERRUPTED and "stopped" in out + err and "Traceback" not in err


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with StopSignal():
        with StopSignal("request"):
            pass
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
