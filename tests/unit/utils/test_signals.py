"""The first signal stops a process within seconds, wherever it is; the second one at once."""

import signal
import subprocess
import sys
import textwrap

import pytest
from repository import ROOT

from jaxmarl_llm.utils.signals import INTERRUPTED, StopSignal

# Begins, says so, and works: `stuck()` is deep in a library that releases the lock of Python and looks at no signal.
START = """
    import hashlib, os, signal, sys, time
    from jaxmarl_llm.utils import signals
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
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


@pytest.mark.slow
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


def test_a_hangup_that_is_ignored_stays_so():
    """As nohup starts a command: it goes on, and SIGTERM still stops it."""
    code, out, _ = ended("""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with signals.StopSignal("request") as stop:
            print("begun", flush=True)
            time.sleep(0.5)
            print(stop.requested, flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
            while not stop.requested:
                time.sleep(0.01)
        print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)
    """, number=signal.SIGHUP)  # fmt: skip
    assert (code, out) == (0, "begun\nFalse\nTrue\n")


# Runs the script in a terminal, which it closes after the first line.
IN_TERMINAL = """
    import os, pty, sys

    child, terminal = pty.fork()
    if not child:
        os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
    shown = b""
    while b"begun" not in shown:
        shown += os.read(terminal, 1000)
    os.close(terminal)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
SAVES = """
    def saves(how):
        print("saving")  # to a terminal that is no longer there
        open(PATH, "w").write(how)
        return "saved", 0

    with signals.StopSignal("request") as stop:
        stop.rescue = lambda: saves("rescued")
        print("begun", flush=True)
"""


@pytest.mark.parametrize("work, how", [("stuck()", "rescued"), ("", "stopped")])
def test_a_closed_terminal_stops_a_command_that_prints(tmp_path, work, how):
    asks = """
        try:
            while True:
                print("step", flush=True)
                stopping.check()
                time.sleep(0.01)
        except stopping.StopRequested:
            stop.take()
            saves("stopped")
    """
    lines = textwrap.dedent(START) + f"PATH = {str(tmp_path / 'saved')!r}\n" + textwrap.dedent(SAVES)
    script = lines + textwrap.indent(work or textwrap.dedent(asks), "    ")
    command = [sys.executable, "-c", textwrap.dedent(IN_TERMINAL), script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n" and (tmp_path / "saved").read_text() == how


@pytest.mark.slow
def test_a_command_that_compiles_ends_without_a_crash():
    """JAX compiles in a thread of its own, which goes on after Ctrl-C and must not outlive what it uses."""
    code, out, err = ended("""
        import threading

        import jax
        import jax.numpy as jnp
        from jaxmarl_llm.cli import entry

        jax.config.update("jax_enable_compilation_cache", False)

        def long(x):
            for n in range(800):
                x = jnp.sin(x @ x) + n
            return x

        def main():
            lowered = jax.jit(long).lower(jnp.ones((64, 64)))
            threading.Timer(0.5, print, ["begun"], dict(flush=True)).start()
            lowered.compile()
            print("compiled", flush=True)

        entry.run_script(main)
    """)  # fmt: skip
    assert (code, out) == (INTERRUPTED, "begun\n")
    assert err.splitlines() == ["stopping (once more to stop at once)", "stopped"]
