"""Inside the candidate's process: load the sources, then answer calls until the channel closes.

Nothing here is trusted: the text that runs next to it can rewrite all of it, and so change the data it sends.
"""

from __future__ import annotations

import builtins
import os
import random
import sys
import types

from . import wire

_MUTABLE = (list, dict, set)


def serve(fd: int) -> None:
    """Handle one load message and then calls; never returns."""
    try:
        entry, reply = _load(wire.read_frame(fd))
        wire.write_frame(fd, reply)
        while entry is not None:
            reply = _answer(entry, wire.read_frame(fd))
            try:
                wire.write_frame(fd, reply)
            except wire.Unsupported as error:
                wire.write_frame(fd, {"unsupported": str(error)})
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)


def _load(message):
    """Run prelude and sources in a fresh module; (entry point or None, reply)."""
    module = types.ModuleType("candidate")
    sys.modules["candidate"] = module  # dataclasses and typing look their module up
    random.seed(0)
    name = message["entry_point"]
    where = "prelude"
    try:
        exec(compile(message["prelude"], "<prelude>", "exec", dont_inherit=True), module.__dict__)
        module.__dict__.pop(name, None)
        for agent, text in message["sources"]:
            where = agent
            exec(compile(text, f"<{agent}>", "exec", dont_inherit=True), module.__dict__)
        entry = module.__dict__.get(name)
        if not callable(entry):
            raise NameError(f"no function {name!r} is defined")
    except BaseException as error:  # SystemExit too: leaving at import is a failure to load
        return None, {"raise": [*_describe(error), where]}
    return entry, {"ready": True}


def _answer(entry, message):
    """Call the entry point; the result, or the exception, and arguments that were changed in place."""
    reply = {}
    args = [wire.decode(item) for item in message["args"]]
    kwargs = {name: wire.decode(item) for name, item in message["kwargs"].items()}
    try:
        result = entry(*args, **kwargs)
        try:
            reply["ok"] = wire.encode(result)
        except wire.Unsupported as error:
            reply["unsupported"] = str(error)
    except BaseException as error:
        reply["raise"] = _describe(error)
    changed = _changed(args, message["args"])
    if changed:
        reply["changed"] = changed
    return reply


def _changed(args, sent):
    """{position: new content} of list, dict and set arguments that no longer are what was sent."""
    changed = {}
    for position, (value, before) in enumerate(zip(args, sent, strict=True)):
        if type(value) in _MUTABLE:
            try:
                after = wire.encode(value)
            except wire.Unsupported:
                continue
            if after != before:
                changed[str(position)] = after
    return changed


def _describe(error):
    """[name of the closest builtin exception type, own type name, message] of an exception."""
    kind = type(error)
    base = next(c.__name__ for c in kind.__mro__ if getattr(builtins, c.__name__, None) is c)
    try:
        text = str(error)[:500]
    except BaseException:
        text = ""
    return [base, kind.__name__, text]
