"""Direct calls between two agents' processes, bypassing the tests' side, for programs that make many calls.

A lane carries calls between two agents in both directions, with values and exceptions as on any channel,
but without objects: calls with objects go through the tests' side, as do the first calls.
"""

from __future__ import annotations

from .. import wire
from ..channel.conversation import Peer

CALLS, RETURNED, RAISED = range(3)  # places in the counts of one function


class Lane(Peer):
    """One end. What the other agent may do here: call the functions that this agent's source defines.

    made, served: {name of a function: [calls, returned, raised]} of the calls in either direction.
    """

    def __init__(self, fd: int, candidate):
        super().__init__(fd)
        self.candidate = candidate
        self.made: dict[str, list[int]] = {}
        self.served: dict[str, list[int]] = {}

    def attend(self) -> None:
        """Serve this process's other channels until there is a frame on this one."""
        self.candidate.attend_to(self)

    def send(self, frame) -> None:
        """Write a frame; the end of the other process shows when it is read from."""
        try:
            super().send(frame)
        except OSError:
            pass

    def read(self):
        """Read a frame. Where the other process has ended, nothing more is done here: the program ends."""
        try:
            return super().read()
        except (EOFError, OSError):
            self.candidate.await_end()

    @property
    def classes(self):
        """The prelude's."""
        return self.candidate.classes

    def exportable(self, value) -> bool:
        """False: objects are numbered on the tests' side only."""
        return False

    def _resolve(self, tag, number):
        raise wire.WireError("object on a lane")

    def raised(self, description, error):
        """As of the candidate."""
        return self.candidate.raised(description, error)

    def call(self, request: dict):
        """The reply to a call; None where its outcome is kept over there, for a question by the other way."""
        reply = self.ask(request)
        if "kept" in reply:
            return None
        _count(self.made, request["of"], reply)
        return reply

    def answer(self, request) -> dict:
        """Call the function, or keep an outcome with objects."""
        name, operation, args, kwargs = self.parse(request)
        if operation != "call" or name not in self.candidate.offered:
            raise wire.WireError("question about nothing")
        value = failure = None
        try:
            value = self.candidate.space.get(name)(*args, **kwargs)
        except wire.Unsupported as error:
            failure = {"unsupported": str(error)}
        except BaseException as error:  # SystemExit too: leaving is a failure like any other
            failure = self.failure(error)
        try:
            reply = failure or {"ok": self.encode(value)}
            reply = self.add_changes(reply, args, kwargs, request, strict=True)
        except wire.Unsupported:
            self.candidate.kept.append((value, failure, args, kwargs, request))
            return {"kept": True}
        _count(self.served, name, reply)
        return reply


def _count(counts: dict, name: str, reply: dict) -> None:
    outcomes = counts.get(name)
    if outcomes is None:
        outcomes = counts[name] = [0, 0, 0]
    outcomes[CALLS] += 1
    outcomes[RETURNED] += "ok" in reply
    outcomes[RAISED] += "raise" in reply
