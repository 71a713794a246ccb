"""Runs in separate threads hand in calls; one thread executes them, and joins calls that agree into one."""

import threading
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol


class Call(Protocol):
    """What a run wants to have computed."""

    def likeness(self) -> Hashable | None:
        """A key shared by calls that can be made together with it; None: nothing waits for it."""

    def make(self) -> Any:
        """Make it alone; its result."""

    def make_all(self, others: Sequence["Call"]) -> list:
        """Make calls of one likeness, of which this is the first, as one; their results."""


class _Waiting:
    """A call that a run waits for, and its result."""

    def __init__(self, seat: int, call: Call):
        self.seat, self.call, self.likeness = seat, call, call.likeness()
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


class Meeting:
    """Calls of several runs.

    A call waits until every active run has handed in one that agrees with it; then they are made as one. If
    every run waits and no calls agree, they are made one after the other, so that no run waits forever.

    Args:
      seats: names of the runs.
    """

    def __init__(self, seats: Iterable[int]):
        self._going_on = set(seats)
        self._waiting: list[_Waiting] = []
        self._changed = threading.Condition()

    def call(self, seat: int, call: Call) -> Any:
        """The result of a call of a run, from one of its threads; raises what making it raised."""
        waiting = _Waiting(seat, call)
        with self._changed:
            self._waiting.append(waiting)
            self._changed.notify_all()
        waiting.done.wait()
        if waiting.error is not None:
            raise waiting.error
        return waiting.result

    def leave(self, seat: int) -> None:
        """The run has ended: no call waits for it any more."""
        with self._changed:
            self._going_on.discard(seat)
            self._changed.notify_all()

    def serve(self) -> None:
        """Make all calls, in this thread, until every run has left."""
        while groups := self._next():
            for group in groups:
                _make(group)

    def _next(self) -> list[list[_Waiting]]:
        """The calls to make now, grouped by those made as one; waits for them. [] at the end."""
        with self._changed:
            while True:
                groups = self._ready()
                if groups or not self._going_on:
                    break
                self._changed.wait()
            for waiting in (waiting for group in groups for waiting in group):
                self._waiting.remove(waiting)
            return groups

    def _ready(self) -> list[list[_Waiting]]:
        alike: dict[Hashable, dict[int, _Waiting]] = {}
        for waiting in self._waiting:
            if waiting.likeness is None:
                return [[waiting]]
            alike.setdefault(waiting.likeness, {}).setdefault(waiting.seat, waiting)
        for by_seat in alike.values():
            if by_seat.keys() >= self._going_on:
                return [list(by_seat.values())]
        if {waiting.seat for waiting in self._waiting} >= self._going_on:
            return [[waiting] for waiting in self._waiting]
        return []


def _make(group: list[_Waiting]) -> None:
    """Make a group of calls as one, in the order of their runs; the waiting runs then continue."""
    group = sorted(group, key=lambda waiting: waiting.seat)
    first, calls = group[0].call, [waiting.call for waiting in group]
    try:
        results = first.make_all(calls) if len(calls) > 1 else [first.make()]
    except BaseException as error:  # noqa: BLE001 - raised where the calls come from
        for waiting in group:
            waiting.error = error
    else:
        for waiting, result in zip(group, results, strict=True):
            waiting.result = result
    for waiting in group:
        waiting.done.set()
