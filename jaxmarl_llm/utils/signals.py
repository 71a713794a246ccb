"""How a command is stopped from outside: within seconds, with everything saved, and a second time at once."""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable

from jaxmarl_llm.utils import stopping

HANGUP = getattr(signal, "SIGHUP", None)  # of a terminal that is closed; Windows has none
SIGNALS = tuple(filter(None, (signal.SIGTERM, signal.SIGINT, HANGUP)))
GRACE = 6.0  # seconds until the main thread is no longer waited for
INTERRUPTED = 130  # exit code of what was interrupted


class StopSignal:
    """Makes the first SIGTERM, Ctrl-C or SIGHUP a request to stop; a second one ends the process at once.

    SIGHUP comes when the terminal is closed or an ssh connection ends. Where it is ignored (nohup) it stays so.

    The main thread may be in a program that compiles or runs, where no Python code is executed. So a second
    thread receives the signals too. If the main thread has not reached a point where it stops by itself
    within `GRACE` seconds (`take`), the second thread calls ``rescue`` and ends the process.

    Args:
      first: effect of the first signal. ``request``: `stopping.check` raises from then on. ``flag``: only
        `requested` is set, and the code that reads it stops when it can; several processes of one training
        need this, since all must stop after the same iteration. ``interrupt``: KeyboardInterrupt in the main
        thread.
      second: ``exit``, or ``interrupt`` for a main thread that waits for other processes.

    Attributes:
      requested: whether a signal has come.
      rescue: saves the present state; returns the last line and the exit code. Called in another thread.
    """

    def __init__(self, first: str = "flag", second: str = "exit"):
        self.requested = False
        self.rescue: Callable[[], tuple[str, int]] = lambda: ("stopped", INTERRUPTED)
        self._first, self._second = first, second
        self._taken = threading.RLock()  # by one of the two threads, as often as it likes
        self._handled = 0
        self._before: dict = {}

    def take(self) -> None:
        """The main thread saves and ends by itself; if the other thread does so already, wait for its end."""
        if not self._taken.acquire(blocking=False):
            threading.Event().wait()

    def rescued(self) -> tuple[str, int] | None:
        """The result of ``rescue``; None if the main thread saves and ends by itself."""
        return self.rescue() if self._taken.acquire(blocking=False) else None

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main one may handle signals
        stopping.withdraw()
        self._received, self._sent = os.pipe()
        os.set_blocking(self._sent, False)
        ignored = {HANGUP} if HANGUP and signal.getsignal(HANGUP) is signal.SIG_IGN else set()
        self._before = {
            number: signal.signal(number, self._handle) for number in SIGNALS if number not in ignored
        }
        self._terminals = [fd for fd in (1, 2) if os.isatty(fd)]
        self._fd_before = signal.set_wakeup_fd(self._sent, warn_on_full_buffer=False)
        self._thread = threading.Thread(
            target=self._watch, args=(self._received,), daemon=True, name="signals"
        )
        self._thread.start()
        return self

    def __exit__(self, *exception) -> None:
        self.take()  # the interpreter must not go down around a thread that saves: JAX aborts the process then
        if not self._before:
            return
        signal.set_wakeup_fd(self._fd_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._sent)  # ends the thread
        self._thread.join()
        stopping.withdraw()

    def _handle(self, number, frame) -> None:
        """In the main thread, as soon as it runs Python code."""
        del frame
        if number == HANGUP:  # here too, before this thread prints again
            self._leave_terminal()
        self.requested = True
        self._handled += 1
        if self._handled <= 2 and "interrupt" == (self._first, self._second)[self._handled - 1]:
            raise KeyboardInterrupt

    def _watch(self, received: int) -> None:
        try:
            while not (came := self._next(received)):
                if came is None:
                    return
            self.requested = True
            _write(2, "stopping (once more to stop at once)")
            if self._first == "request":
                stopping.request()
            while select.select([received], [], [], None if self._first == "flag" else GRACE)[0]:
                again = self._next(received)
                if again is None:
                    return
                if again and self._second == "exit":
                    _write(2, "stopped at once")
                    os._exit(INTERRUPTED)
            if rescued := self.rescued():
                text, code = rescued
                _write(1, text)
                os._exit(code)
            if self._next(received):
                os._exit(INTERRUPTED)
        finally:
            os.close(received)

    def _next(self, received: int) -> bool | None:
        """Wait for a signal: whether it is one of `SIGNALS`; None if no more will come."""
        number = os.read(received, 1)  # not more: two may have come at once
        if number and number[0] == HANGUP:
            self._leave_terminal()
        return number[0] in SIGNALS if number else None

    def _leave_terminal(self) -> None:
        """Let nothing fail that is printed from now on: what is printed to a closed terminal would raise."""
        with open(os.devnull, "wb") as nowhere:
            for fd in self._terminals:
                os.dup2(nowhere.fileno(), fd)


def _write(fd: int, line: str) -> None:
    """Not print: the main thread may be in the middle of one. Who reads it may be gone already."""
    with contextlib.suppress(OSError):
        os.write(fd, f"{line}\n".encode())
