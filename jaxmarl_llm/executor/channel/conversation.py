"""Both ends of a channel: questions, and answers to questions that arrive in between.

A frame is {"ask": request} or {"answer": reply}. The side that asked waits, and while it waits the other
side may ask a question itself (the main function calls the helper of another agent, or a function that the
tests passed as an argument). So only one side runs at any time, and no numbers are needed to match answers to
questions.

Values cross as data (`wire`). Other objects stay in their process; the other side holds a `Handle`, and each
use of it is a question. The object's owner decides which uses it allows (`Peer.allows`).
"""

from __future__ import annotations

import builtins
import json

from .. import frames, wire
from .crossing import Crossing
from .handles import OPERATIONS
from .merging import is_mutable, merge

MAX_MESSAGE = 500  # characters of an exception's message
MAX_ERROR = 1 << 14  # characters of an exception with its arguments
MAX_NESTING = 30  # questions within questions of one channel: each is some ten Python frames on either side
OBSERVED = 1000  # first calls by one agent of others' functions, which all go over the tests' side


class Peer(Crossing):
    """One end. Subclasses decide which questions are allowed and how failures show."""

    caught = Exception  # what an object of ours may raise as an answer; anything else ends this side

    def __init__(self, fd: int):
        super().__init__()
        self.fd = fd
        self.nesting = 0
        self._ahead = bytearray()  # read beyond the last frame

    # What subclasses decide.

    def allows(self, target, operation: str, args) -> bool:
        """Whether the other side may do this with an object of ours."""
        raise NotImplementedError

    def raised(self, description, error):
        """The exception to raise here for one of over there: `error` with its arguments, or as described."""
        raise NotImplementedError

    def refuse(self, what: str):
        """Raise, as `what` cannot be done with a handle."""
        raise NotImplementedError

    def unsupported(self, what: str):
        """Raise, as the other side has something that cannot be sent."""
        raise wire.Unsupported(what)

    def truth(self, handle) -> bool:
        """bool(handle)."""
        self.refuse("an object in place of True or False")

    def equal(self, handle, other) -> bool:
        """handle == other."""
        self.refuse("an object in a comparison")

    def hash(self, handle) -> int:
        """hash(handle)."""
        self.refuse("an object as a key or in a set")

    # Asking.

    def use(self, number: int, operation: str, args, kwargs):
        """Do something with an object of the other side; its result, or its exception raised."""
        return self.result(self.ask(self.request(number, operation, args, kwargs)), operation, args, kwargs)

    def request(self, target, operation: str, args, kwargs) -> dict:
        """A question about an object (its number) or a function (its name)."""
        request = {"do": operation, "of": target, "args": self.encode_all(args)}
        if kwargs:
            request["kwargs"] = {name: self.encode(item) for name, item in kwargs.items()}
        return request

    def result(self, reply, operation: str, args, kwargs):
        """The value or exception of a reply; changes of list, dict and set arguments are made in place."""
        if not isinstance(reply, dict):
            raise wire.WireError("reply is not a message")
        if "changed" in reply:
            self._copy_back(args, kwargs, reply["changed"])
        if "ok" in reply:
            return self.decode(reply["ok"])
        if "end" in reply and operation == "next":
            return ()
        if "unsupported" in reply:
            self.unsupported(*wire.texts([reply["unsupported"]], 1))
        raise self.raised(*self.exception(reply))

    def exception(self, reply) -> tuple:
        """What a reply says of an exception: its description, and itself or None."""
        error = wire.decode(reply["error"], None, self.classes) if "error" in reply else None
        if error is not None and not isinstance(error, Exception):
            raise wire.WireError("raised what is no exception")
        return wire.texts(reply.get("raise"), 3), error

    def ask(self, request):
        """Send a question and return the reply, answering the other side's questions in between."""
        self.send({"ask": request})
        return self.await_answer()

    def await_answer(self):
        """The reply to the question that was sent last."""
        while True:
            frame = self.receive()
            if type(frame) is dict and len(frame) == 1 and "answer" in frame:
                return frame["answer"]
            self._serve(frame)

    def serve(self) -> None:
        """Answer the question that has come, from a side that nothing is awaited of."""
        self._serve(self.read())

    def _serve(self, frame) -> None:
        if type(frame) is not dict or len(frame) != 1 or type(frame.get("ask")) is not dict:
            raise wire.WireError("reply is not a message")
        self.send_answer(self._nested(frame["ask"]))

    def send_answer(self, reply) -> None:
        """Write the reply to a question; that it is unsupported where it is too large."""
        try:
            self.send({"answer": reply})
        except wire.Unsupported as error:
            self.send({"answer": {"unsupported": str(error)}})

    def send(self, frame) -> None:
        """Write a frame."""
        frames.write_frame(self.fd, frame)

    def receive(self):
        """Wait for a frame and read it."""
        if not self._ahead:
            self.attend()
        return self.read()

    def attend(self) -> None:
        """Serve other channels until there is a frame on this one; nothing here, where there is only one."""

    def read(self):
        """Read a frame."""
        return frames.parse(frames.read_body(self.fd, self._ahead))

    def _nested(self, request):
        if self.nesting >= MAX_NESTING:
            return {"raise": ["RecursionError", "RecursionError", "calls between processes too deep"]}
        self.nesting += 1
        try:
            return self.answer(request)
        finally:
            self.nesting -= 1

    # Answering.

    def answer(self, request) -> dict:
        """Reply to one question about an object of ours."""
        target, operation, args, kwargs = self.parse(request)
        return self.perform(self.object(target), operation, args, kwargs, request)

    def parse(self, request) -> tuple:
        """(target, operation, args, kwargs) of a well-formed request."""
        args, kwargs = request.get("args"), request.get("kwargs", {})
        operation = request.get("do")
        if type(args) is not list or type(kwargs) is not dict or type(operation) is not str:
            raise wire.WireError("malformed question")
        return (
            request.get("of"),
            operation,
            self.decode_all(args),
            {name: self.decode(item) for name, item in kwargs.items()} if kwargs else kwargs,
        )

    def perform(self, target, operation, args, kwargs, request) -> dict:
        """Do it; the result, or the exception, and arguments that were changed in place."""
        reply = {}
        try:
            if not self.allows(target, operation, args):
                raise TypeError(f"{operation} is not possible on an object of another process")
            reply["ok"] = self.encode(self.do(target, operation, args, kwargs))
        except wire.Unsupported as error:
            reply["unsupported"] = str(error)
        except StopIteration as error:
            reply.update({"end": True} if operation == "next" else self.failure(error))
        except self.caught as error:
            reply.update(self.failure(error))
        return self.add_changes(reply, args, kwargs, request)

    def failure(self, error: BaseException) -> dict:
        """A reply's part for an exception; with its arguments where these travel."""
        reply: dict = {"raise": describe(error)}
        try:
            encoded = wire.encode(error, None, self.classes)
            if len(json.dumps(encoded)) <= MAX_ERROR:
                reply["error"] = encoded
        except BaseException:  # it may be hostile, or hold what does not travel
            pass
        return reply

    def do(self, target, operation, args, kwargs):
        """The operation itself."""
        return OPERATIONS[operation](target, *args, **kwargs)

    def add_changes(self, reply, args, kwargs, request, strict: bool = False) -> dict:
        """The reply with {position or name: new content} of arguments that no longer are what was sent.

        What cannot be sent is left out; `strict`: raises wire.Unsupported.
        """
        if wire.are_untagged(args) and not kwargs or not any(map(is_mutable, (*args, *kwargs.values()))):
            return reply
        changed = {}
        places = [(str(i), value, request["args"][i]) for i, value in enumerate(args)]
        if kwargs:
            places += [(name, value, request["kwargs"][name]) for name, value in kwargs.items()]
        for key, value, before in places:
            if is_mutable(value):
                try:
                    after = self.encode(value)
                except wire.Unsupported:
                    if strict:
                        raise
                    continue
                if after != before:
                    changed[key] = after
        return reply | {"changed": changed} if changed else reply

    def _copy_back(self, args, kwargs, changed) -> None:
        if type(changed) is not dict:
            raise wire.WireError("malformed arguments")
        for key, data in changed.items():
            if key in kwargs:
                value = kwargs[key]
            elif key.isdecimal() and int(key) < len(args):
                value = args[int(key)]
            else:
                raise wire.WireError("changed an argument that does not exist")
            merge(value, self.decode(data))


def describe(error: BaseException) -> list[str]:
    """[name of the closest builtin exception type, own type name, message] of an exception."""
    kind = type(error)
    base = next(c.__name__ for c in kind.__mro__ if getattr(builtins, c.__name__, None) is c)
    return [base, kind.__name__, says(error)]


def says(error: BaseException) -> str:
    """The beginning of str(error) where that works: it may be hostile, or ask a process that is gone."""
    try:
        return str(error)[:MAX_MESSAGE]
    except BaseException:
        return ""
