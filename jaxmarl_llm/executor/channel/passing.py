"""Calls between agents through the tests' side: passed on unchanged if they name no object."""

from __future__ import annotations

import contextlib

from .. import frames, wire


class Relayed(dict):
    """A reply with the encoded form of the frame that it came in."""

    __slots__ = ("body",)

    def __init__(self, reply: dict, body: bytes):
        super().__init__(reply)
        self.body = body


def pass_on(request: dict, caller, callee, name: str) -> dict:
    """The reply of a callee (a `Link`) to a caller's question, to call the function of that name.

    Values and exceptions go through as they came, for there may be many calls. Objects have other numbers in
    each channel: what names any is read here and written anew.
    """
    passed = None
    if _names_no_object([*request["args"], *request.get("kwargs", {}).values()], caller.classes):
        passed = _relay(callee, caller.body)
        if callee.checked(lambda: _can_pass(callee, passed)):
            return passed
    _, _, args, kwargs = caller.parse(request)

    def function(*args, **kwargs):
        if passed is None:
            return callee.use(name, "call", args, kwargs)
        return callee.checked(lambda: callee.result(passed, "call", args, kwargs))

    return caller.perform(function, "call", args, kwargs, request)


def _relay(callee, body: bytes) -> Relayed:
    """Send a question as it came from another agent; the reply."""
    callee.agents.check_alive()
    with contextlib.suppress(OSError):
        frames.write_body(callee.fd, body)
    reply = callee.await_answer()
    if type(reply) is not dict:
        raise callee.gone("protocol", "reply is not a message")
    return Relayed(reply, callee.body)


def _can_pass(callee, reply: dict) -> bool:
    """Whether a reply means the same to another agent; WireError where it is malformed."""
    changed = reply.get("changed", {})
    if type(changed) is not dict:
        raise wire.WireError("malformed arguments")
    values = [*changed.values()]
    if "ok" in reply:
        values.append(reply["ok"])
    elif "unsupported" in reply:
        wire.texts([reply["unsupported"]], 1)
    else:
        callee.exception(reply)
    return _names_no_object(values, callee.classes)


def _names_no_object(data: list, classes) -> bool:
    """Whether encoded values name no object; WireError where they are malformed."""
    try:
        wire.decode_all(data, _refuse_object, classes)
    except _NamesObject:
        return False
    return True


class _NamesObject(Exception):
    """Raised in place of reading data that names an object."""


def _refuse_object(tag, number):
    raise _NamesObject
