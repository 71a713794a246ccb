"""A candidate's channel, seen from the tests: calls go out, values, handles or exceptions come back.

Whatever arrives is checked: anything but a well-formed reply ends the link.
"""

from __future__ import annotations

import builtins
import contextlib
import functools

from .. import frames, wire
from . import passing
from .conversation import Peer
from .handles import Handle

TESTS = "tests"  # the module name that the tests run under


class Gone(BaseException):
    """A candidate cannot be called any more. No Exception, so that tests do not catch it by chance."""

    def __init__(self, status: str, text: str, agent: str):
        super().__init__(text)
        self.status, self.agent = status, agent


class CandidateError(Exception):
    """The candidate raised something that is not a builtin Exception (its own class, SystemExit, ...)."""


class UnsupportedValue(Exception):
    """The candidate returned or should have received a value that cannot be sent or judged."""


class Link(Peer):
    """The tests' end of one agent's channel.

    An agent may use what the tests handed to it: call functions, pull from iterators, and read and change
    public attributes of objects whose class the tests define. It may also call the functions of its
    `partners` ({name: link}); those calls go through `Agents.between`.
    """

    def __init__(self, fd: int, agent: str, agents):
        super().__init__(fd)
        self.agent, self.agents, self.partners = agent, agents, {}
        self.body = b""  # of the frame that was read last

    def load(self, message) -> dict:
        """Send the agent's source ("do": "load") or names of others ("meet"); {name: what it is} of what it
        defines, else Gone("load-error").
        """
        reply = self.ask(message)
        if type(reply) is not dict:
            raise self.gone("protocol", "reply of no known kind")
        if type(reply.get("ready")) is dict:
            return reply["ready"]
        base, name, text, where = self.checked(lambda: wire.texts(reply.get("raise"), 4))
        status = "memory" if base == "MemoryError" else "load-error"
        raise self.gone(status, f"{where}: {name}: {text}"[:300])

    def use(self, number, operation, args, kwargs, trace=None):
        """As `Peer.use`, with whatever the candidate does wrong turned into Gone or UnsupportedValue.

        `trace` gets the request and the reply as they are sent.
        """
        self.agents.check_alive()
        try:
            request = self.request(number, operation, args, kwargs)
        except wire.Unsupported as error:
            self.refuse(f"argument: {error}")
        if trace is not None:
            request["observe"] = trace.observe
        reply = self.ask(request)
        if trace is not None:
            trace.request, trace.reply = request, reply
        return self.checked(lambda: self.result(reply, operation, args, kwargs))

    def ask(self, request):
        """As `Peer.ask`; UnsupportedValue where the question is too large."""
        try:
            return super().ask(request)
        except wire.Unsupported as error:
            self.refuse(f"argument: {error}")

    def await_answer(self):
        """As `Peer.await_answer`; Gone where the process ends or sends something else than replies."""
        try:
            return super().await_answer()
        except (EOFError, OSError):
            raise self._ended() from None
        except wire.WireError as error:
            raise self.gone("protocol", str(error)) from None

    def serve(self) -> None:
        """As `Peer.serve`; Gone where the process has ended or sends something else than questions."""
        try:
            super().serve()
        except (EOFError, OSError):
            raise self._ended() from None
        except wire.WireError as error:
            raise self.gone("protocol", str(error)) from None

    def attend(self) -> None:
        """Serve the other agents until this one has sent something."""
        self.agents.attend_to(self)

    def read(self):
        """Read a frame."""
        self.body = frames.read_body(self.fd, self._ahead)
        return frames.parse(self.body)

    def send(self, frame) -> None:
        """Write a frame."""
        # A failed write is no end yet: what the candidate sent before it left is read first, so that the
        # verdict does not depend on who was quicker.
        with contextlib.suppress(OSError):
            super().send(frame)

    def checked(self, step):
        """What a step gives; Gone where it meets data that is malformed."""
        try:
            return step()
        except wire.WireError as error:
            raise self.gone("protocol", str(error)) from None

    def _ended(self) -> Gone:
        return self.gone("gone", "the candidate's process ended before the tests did")

    def gone(self, status: str, text: str) -> Gone:
        """Note and return the exception that ends all calls."""
        self.agents.gone = Gone(status, text, self.agent)
        return self.agents.gone

    # What the agent may do here.

    def answer(self, request) -> dict:
        """Reply to a question: the call of a partner's function, or the use of an object of the tests."""
        name = request.get("of")
        if type(name) is not str:
            return super().answer(request)
        callee = self.partners.get(name)
        if callee is None or request.get("do") != "call":
            raise wire.WireError("question about nothing")
        if type(request.get("args")) is not list or type(request.get("kwargs", {})) is not dict:
            raise wire.WireError("malformed question")
        pass_on = functools.partial(passing.pass_on, request, self, callee, name)
        return self.agents.between(self, callee, name, request, pass_on)

    def send_answer(self, reply) -> None:
        """Write the reply to a question, one of a partner's as it came."""
        if type(reply) is not passing.Relayed:
            super().send_answer(reply)
            return
        with contextlib.suppress(OSError):
            frames.write_body(self.fd, reply.body)

    def exportable(self, value) -> bool:
        """Whether an agent may hold an object of the tests, or of another agent."""
        return isinstance(value, Handle) or callable(value) or _is_iterator(value) or _is_own(value)

    def allows(self, target, operation, args) -> bool:
        """Calls and pulling; attributes only of instances of the tests' classes, and no private ones.

        Attributes of anything else (a function's globals, a generator's frame) lead to the expected values.
        """
        if isinstance(target, Handle):
            return True  # its owner decides
        if operation == "call":
            return callable(target)
        if operation in ("iter", "next") and _is_iterator(target):
            return True
        if not _is_own(target):
            return False
        public = bool(args) and type(args[0]) is str and not args[0].startswith("_")
        return public if operation in ("get", "set") else True

    def do(self, target, operation, args, kwargs):
        """The operation; on an object of another agent it is passed on."""
        if isinstance(target, Handle):
            return target._peer.use(target._number, operation, args, kwargs)
        return super().do(target, operation, args, kwargs)

    # Failures.

    @property
    def classes(self):
        """The prelude's."""
        return self.agents.classes

    def raised(self, description, error) -> Exception:
        """The exception itself, else the builtin one of that name with that message, else CandidateError.

        A StopIteration ends a map() or a loop of the tests quietly, so that all(map(candidate, xs)) would
        pass: `Agents.handled` sees whether the tests caught it.
        """
        base, name, text = description
        kind = "memory" if base == "MemoryError" else "error"
        error = self.agents.remember(error or _exception(base, name, text), kind)
        if isinstance(error, (StopIteration, StopAsyncIteration)):
            self.agents.unhandled = error
        return error

    def failure(self, error):
        """As `Peer.failure`; an exception that an agent gets is not the tests' to catch."""
        self.agents.handled(error)
        return super().failure(error)

    def refuse(self, what: str):
        """Raise UnsupportedValue."""
        raise self.agents.remember(UnsupportedValue(what), "unsupported")

    unsupported = refuse


def _is_iterator(value) -> bool:
    return hasattr(type(value), "__next__")


def _is_own(value) -> bool:
    return type(value).__module__ == TESTS


def _exception(base, name, text) -> Exception:
    kind = getattr(builtins, base, None)
    hidden = (Exception, StopIteration, StopAsyncIteration)
    if isinstance(kind, type) and issubclass(kind, Exception) and kind not in hidden:
        try:
            return kind(text)
        except TypeError:  # UnicodeDecodeError and ExceptionGroup want more than a message
            pass
    return CandidateError(f"{name}: {text}" if text else name)
