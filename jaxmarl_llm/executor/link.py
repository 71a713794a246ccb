"""The candidate's channel, seen from the tests: calls go out, plain data or builtin exceptions come back.

Whatever arrives is checked: anything but a well-formed reply ends the link.
"""

from __future__ import annotations

import builtins
import contextlib

from . import wire


class Gone(BaseException):
    """The candidate cannot be called any more. No Exception, so that tests do not catch it by chance."""

    def __init__(self, status: str, text: str):
        super().__init__(text)
        self.status = status


class CandidateError(Exception):
    """The candidate raised something that is not a builtin Exception (its own class, SystemExit, ...)."""


class UnsupportedValue(Exception):
    """The candidate returned, or was to be given, something that is not plain data."""


class Link:
    """The candidate's channel, seen from the tests."""

    def __init__(self, fd: int):
        self.fd, self.calls, self.last, self.gone = fd, 0, (None, ""), None

    def kind_of(self, error: Exception) -> str:
        """Verdict for an exception in check(): the candidate's own, or a wrong answer."""
        raised, kind = self.last
        return kind if error is raised else "fail"

    def load(self, job) -> None:
        """Send the sources; Gone("load-error") where they do not give the entry point."""
        try:
            reply = self._exchange({name: job[name] for name in ("sources", "prelude", "entry_point")})
        except wire.Unsupported:
            raise Gone("load-error", f"sources larger than {wire.MAX_FRAME} bytes") from None
        if reply == {"ready": True}:
            return
        base, name, text, where = _texts(reply.get("raise"), 4)
        raise Gone("memory" if base == "MemoryError" else "load-error", f"{where}: {name}: {text}"[:300])

    def check_alive(self) -> None:
        """Raise the Gone of an earlier call again, which a bare `except` in the tests may have caught."""
        if self.gone:
            raise self.gone

    def call(self, args, kwargs):
        """candidate(*args, **kwargs): the value, or the exception under its builtin type."""
        self.check_alive()
        self.calls += 1
        try:
            return self._call(args, kwargs)
        except Gone as gone:
            self.gone = gone
            raise

    def _call(self, args, kwargs):
        try:
            message = {"args": [wire.encode(item) for item in args]}
            message["kwargs"] = {name: wire.encode(item) for name, item in kwargs.items()}
            reply = self._exchange(message)
        except wire.Unsupported as error:
            raise self._remember(UnsupportedValue(f"argument: {error}"), "unsupported") from None
        try:
            _copy_back(args, reply.get("changed", {}))
            if "ok" in reply:
                return wire.decode(reply["ok"])
        except wire.WireError as error:
            raise Gone("protocol", str(error)) from None
        if "unsupported" in reply:
            raise self._remember(UnsupportedValue(*_texts([reply["unsupported"]], 1)), "unsupported")
        base, name, text = _texts(reply.get("raise"), 3)
        raise self._remember(_exception(base, name, text), "memory" if base == "MemoryError" else "error")

    def _remember(self, error, kind):
        self.last = (error, kind)
        return error

    def _exchange(self, message):
        # A failed write is no end yet: what the candidate sent before it left is read first, so that the
        # verdict does not depend on who was quicker.
        try:
            with contextlib.suppress(OSError):
                wire.write_frame(self.fd, message)
            reply = wire.read_frame(self.fd)
        except (EOFError, OSError):
            raise Gone("gone", "the candidate's process ended before the tests did") from None
        except wire.WireError as error:
            raise Gone("protocol", str(error)) from None
        if type(reply) is not dict:
            raise Gone("protocol", "reply is not a message")
        return reply


def _texts(value, count) -> list[str]:
    if type(value) is not list or len(value) != count or any(type(text) is not str for text in value):
        raise Gone("protocol", "reply of no known kind")
    return value


def _exception(base, name, text) -> Exception:
    """The builtin Exception of that name with that message, else CandidateError."""
    kind = getattr(builtins, base, None)
    # StopIteration would end a map() or a loop of the tests quietly: all(map(candidate, xs)) would pass.
    hidden = (Exception, StopIteration, StopAsyncIteration)
    if isinstance(kind, type) and issubclass(kind, Exception) and kind not in hidden:
        try:
            return kind(text)
        except TypeError:  # UnicodeDecodeError and ExceptionGroup want more than a message
            pass
    return CandidateError(f"{name}: {text}" if text else name)


def _copy_back(args, changed) -> None:
    """Give list, dict and set arguments the content that the candidate's call left in them."""
    if type(changed) is not dict:
        raise wire.WireError("malformed arguments")
    for position, value in enumerate(args):
        data = changed.get(str(position))
        base = next((kind for kind in (list, dict, set) if isinstance(value, kind)), None)
        if data is None or base is None:
            continue
        content = wire.decode(data)
        if type(content) is not base:
            raise wire.WireError("argument changed its type")
        base.clear(value)
        (base.extend if base is list else base.update)(value, content)
