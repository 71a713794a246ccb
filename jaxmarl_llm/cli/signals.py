"""How a run is stopped from outside: after its iteration, with everything saved."""

import os
import signal


class StopSignal:
    """Makes the first SIGTERM or Ctrl-C a request to stop after the iteration; a second one interrupts."""

    def __init__(self):
        self.requested = False
        self._before = {}

    def _handle(self, number, frame):
        del frame
        if self.requested:
            signal.signal(number, signal.SIG_DFL)
            raise KeyboardInterrupt
        self.requested = True
        # Not print: the signal may have come in the middle of one.
        os.write(2, b"stopping after this iteration (once more to stop at once)\n")

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
