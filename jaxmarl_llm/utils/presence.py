"""Heartbeats of the processes of a run: files in its folder that show which process has died.

The runtime ends all processes when one is gone, and names only the silent task; here it has a number, a host
and a process id. Nothing is sent: each process rewrites its own small file and reads the others'.
"""

import json
import os
import pathlib
import socket
import threading
import time
from collections.abc import Callable

FOLDER = "processes"  # in a run folder
INTERVAL = 2.0  # seconds between two signs of life
SILENCE = 15.0  # seconds without one until a process is named
RUNNING, ENDED = "runs", "ended"


class Presence:
    """One process's signs of life, and a watch over the others', for the time of a ``with`` block.

    Args:
      folder: of the run, which all processes see.
      process, processes: number of this process, and how many there are.
      complain: called with a sentence about a process that failed, or that is silent; once about each, until it
        gives a sign again. What was in the folder before this process began is no sign until it changes.
      interval, silence: as `INTERVAL` and `SILENCE`.
    """

    def __init__(
        self,
        folder,
        process: int,
        processes: int,
        complain: Callable[[str], None],
        interval: float = INTERVAL,
        silence: float = SILENCE,
    ):
        self._folder = pathlib.Path(folder) / FOLDER
        self._process, self._others = process, [k for k in range(processes) if k != process]
        self._complain, self._interval, self._silence = complain, interval, silence
        self._beats, self._state = 0, RUNNING
        self._latest: dict[int, dict] = {}  # by process, as last read
        self._left: dict[
            int, dict
        ] = {}  # by process, what one that did not end has left, of an earlier start
        self._changed = dict.fromkeys(self._others, time.monotonic())  # by this process's clock
        self._named: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Presence":
        self._folder.mkdir(parents=True, exist_ok=True)
        signs = {k: self._sign(k) for k in self._others}
        self._left = {k: sign for k, sign in signs.items() if sign and sign["state"] != ENDED}
        self._write()
        self._thread.start()
        return self

    def __exit__(self, kind, error, traceback) -> None:
        self._stop.set()
        self._thread.join()
        self._state = (
            ENDED if error is None else f"failed: {type(error).__name__}: {error}".partition("\n")[0]
        )
        self._write()

    def lost(self) -> list[str]:
        """Sentences about the others that failed, or that give no sign of life any more; takes some intervals."""
        self._read()  # the last sign of one that is gone is not one of life
        since = time.monotonic()
        while time.monotonic() < since + 4 * self._interval:
            time.sleep(self._interval / 4)
            self._read()
        silent = [k for k in self._others if self._changed[k] < since and self._state_of(k) == RUNNING]
        failed = [k for k in self._others if self._state_of(k).startswith("failed")]
        return [self._sentence(k) for k in sorted({*silent, *failed})]

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            self._write()
            self._read()
            for k in self._others:
                is_silent = time.monotonic() - self._changed[k] > self._silence and k in self._latest
                if k not in self._named and self._state_of(k) != ENDED:
                    if is_silent or self._state_of(k).startswith("failed"):
                        self._named.add(k)
                        self._complain(self._sentence(k))

    def _sentence(self, k: int) -> str:
        sign = self._latest.get(k)
        if sign is None:
            return f"process {k} has given no sign of life"
        who = f"process {k} on host {sign['host']} (pid {sign['pid']})"
        if sign["state"].startswith("failed"):
            return f"{who} {sign['state']}"
        seconds = time.monotonic() - self._changed[k]
        return f"{who} has given no sign of life for {seconds:.0f} s: it was killed, or its host is gone or hangs"

    def _state_of(self, k: int) -> str:
        return self._latest.get(k, {"state": RUNNING})["state"]

    def _write(self) -> None:
        self._beats += 1
        sign = dict(host=socket.gethostname(), pid=os.getpid(), beats=self._beats, state=self._state)
        try:  # in place: another file of the same name may take a network's file system a minute to show
            (self._folder / f"{self._process}.json").write_text(json.dumps(sign), encoding="utf-8")
        except OSError:
            return  # a full disk is an error where it matters, not here

    def _read(self) -> None:
        for k in self._others:
            sign = self._sign(k)
            if sign not in (None, self._latest.get(k), self._left.get(k)):
                self._latest[k], self._changed[k] = sign, time.monotonic()
                if sign["state"] == RUNNING:
                    self._named.discard(k)

    def _sign(self, k: int) -> dict | None:
        """What another process's file holds; None: it is not there yet, or half written."""
        try:
            return json.loads((self._folder / f"{k}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
