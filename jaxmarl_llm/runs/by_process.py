"""Seconds of every process of a run, which show a slow host: the others wait for it."""

import socket

from jaxmarl_llm.utils import distributed

LEAST_SECONDS, LEAST_SHARE = 1.0, 0.1  # least waiting that is reported: seconds, and share of an iteration
WAITING = "seconds/waiting"


def metrics(row: dict[str, float]) -> dict[str, float]:
    """``process<k>/..`` of all processes: seconds of an iteration's row, and of waiting for other processes.

    {} with one process. All processes must call it.
    """
    if not distributed.is_distributed():
        return {}
    own = {name: value for name, value in row.items() if name.startswith("seconds/") or name == "cpu_seconds"}
    of_all = distributed.gather(own | {WAITING: distributed.waited()})
    return {f"process{k}/{name}": value for k, row in enumerate(of_all) for name, value in row.items()}


class SlowHosts:
    """Names each process that the others wait for, once."""

    def __init__(self):
        self._hosts = distributed.gather(socket.gethostname())
        self._named: set[int] = set()

    def line(self, row: dict[str, float]) -> str | None:
        """A sentence if the row of `metrics` shows a slow process not named before; needs ``seconds``."""
        waiting = [row.get(f"process{k}/{WAITING}", 0.0) for k in range(len(self._hosts))]
        slow = min(range(len(waiting)), key=waiting.__getitem__)
        others = [seconds for k, seconds in enumerate(waiting) if k != slow]
        if not others or slow in self._named:
            return None
        extra = min(others) - waiting[slow]
        if extra < max(LEAST_SECONDS, LEAST_SHARE * row["seconds"]):
            return None
        self._named.add(slow)
        return (
            f"process {slow} on host {self._hosts[slow]} is slow: the others waited {extra:.1f} s "
            f"of {row['seconds']:.1f} s for it"
        )
