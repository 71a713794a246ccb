"""Inside a candidate's process: load one agent's source, then answer calls until the channel closes.

Nothing here is trusted: the text that runs next to it can rewrite all of it, and so change the data it sends.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import random
import select
import sys
import types
from collections.abc import Mapping

from .. import values, wire
from ..channel.conversation import OBSERVED, Peer, describe
from ..cpp.library import load
from . import script
from .lane import Lane


def serve(fd: int, library: tuple[str, str] | None = None, lanes: Mapping[int, int] | None = None) -> None:
    """Answer questions until the channel closes; never returns.

    library: path and signature of a compiled candidate, which is loaded in place of the source that is sent.
    lanes: {position of another agent among the sources: descriptor of the lane to its process}.
    """
    try:
        _Candidate(fd, library, lanes or {}).listen()
    except (EOFError, OSError, wire.WireError):
        pass
    finally:
        os._exit(0)


class _Candidate(Peer):
    """The candidate's end of the channel."""

    caught = BaseException  # SystemExit too: leaving is a failure like any other

    def __init__(self, fd: int, library, lanes: Mapping[int, int]):
        super().__init__(fd)
        self.library, self.space = library, {}
        self.run = None  # a script's runner
        self.offered: set[str] = set()  # names of functions that others may call
        self.lanes = {position: Lane(lane, self) for position, lane in lanes.items()}
        self.channels = {channel.fd: channel for channel in (self, *self.lanes.values())}
        self.kept: list[tuple] = []  # outcomes of calls on a lane that go over the tests' side
        self._observed = OBSERVED  # calls of others that still go over the tests' side
        self._no_lane: set[str] = set()  # functions whose results did
        if self.lanes:
            self._poller = select.poll()
            for channel in self.channels:
                self._poller.register(channel, select.POLLIN)

    def listen(self):
        """Answer one question after the other."""
        while True:
            self.send_answer(self.answer(self.receive()["ask"]))

    def answer(self, request) -> dict:
        """Reply to one question: load, or use a function by name or an object by number."""
        if request["do"] == "meet":
            self._meet(request["known"])
            return {"ready": {}}
        if request["do"] == "load":
            return self._load(request)
        if request["do"] == "calls":
            return {"ready": {str(p): [lane.made, lane.served] for p, lane in self.lanes.items()}}
        self._observed = max(self._observed, request.get("observe", 0))
        if "kept" in request:
            value, failure, args, kwargs, request = self.kept.pop()
            if failure:
                return self.add_changes(failure, args, kwargs, request)
            return self.perform(lambda *_, **__: value, "call", args, kwargs, request)
        name = request["of"]
        if type(name) is not str:
            return super().answer(request)
        _, operation, args, kwargs = self.parse(request)
        target = self.run or self.space.get(name)
        return self.perform(target, operation, args, kwargs, request)

    def _load(self, message) -> dict:
        """Run prelude and source in a fresh module; return what it defines, or how it failed."""
        if self.library:
            return self._load_library(message)
        module = types.ModuleType("candidate")
        sys.modules["candidate"] = module  # dataclasses and typing look their module up
        self.space = module.__dict__
        random.seed(0)
        where = "prelude"
        try:
            exec(compile(message["prelude"], "<prelude>", "exec", dont_inherit=True), self.space)
            self.classes = values.Classes(self.space)
            self.space.pop(message["entry_point"], None)
            self._meet(message["known"])
            before = dict(self.space)
            where = message["agent"]
            code = compile(message["text"], f"<{where}>", "exec", dont_inherit=True)
            if message["script"]:
                self.run = script.runner(code, before)
                return {"ready": {}}
            exec(code, self.space)
            shared = message["shared"]
            definitions = self._definitions(before, {message["entry_point"], *(shared or ())})
            functions = {name for name, export in definitions.items() if export == ["call"]}
            self.offered = functions if shared is None else functions.intersection(shared)
            return {"ready": definitions}
        except BaseException as error:  # SystemExit too: leaving at import is a failure to load
            return {"raise": [*describe(error), where]}

    def _load_library(self, message) -> dict:
        """Load the compiled candidate; its static constructors run here."""
        name = message["entry_point"]
        try:
            self.space = {name: load(*self.library)}
            return {"ready": {name: ["call"]}}
        except BaseException as error:
            return {"raise": [*describe(error), message["agent"]]}

    def _definitions(self, before, called) -> dict:
        """{name: export} of what the source made: other agents' modules get the same names.

        called: names of functions that count as the source's own wherever they come from, as in
        `from math import gcd`.
        """
        exports = {}
        for name, value in self.space.items():
            if type(name) is str and not name.startswith("__") and before.get(name, self) is not value:
                own = name in called and callable(value)
                export = ["call"] if own else self._definition(name, value)
                if export:
                    exports[name] = export
        return exports

    def _definition(self, name, value):
        if type(value) is types.ModuleType:
            return ["import", value.__name__, ""]
        home = getattr(value, "__module__", None)
        if type(home) is str and home.split(".")[0] in sys.stdlib_module_names:
            for attribute in (name, getattr(value, "__qualname__", name)):
                if getattr(sys.modules.get(home), attribute, self) is value:
                    return ["import", home, attribute]
        if callable(value):
            return ["call"]
        try:
            return ["value", wire.encode(value)]
        except wire.Unsupported:
            return None

    def _meet(self, known) -> None:
        """Bind names that other agents define."""
        for name, export in known.items():
            if export[0] == "value":
                self.space[name] = wire.decode(export[1])
            elif export[0] == "call":
                self.space[name] = self._stub(name, export[1])
            else:
                with contextlib.suppress(ImportError, AttributeError):
                    module = importlib.import_module(export[1])
                    self.space[name] = getattr(module, export[2]) if export[2] else module

    def _stub(self, name, position: int):
        def stub(*args, **kwargs):
            return self._call(name, lane, args, kwargs)

        lane = self.lanes.get(position)
        stub.__name__ = stub.__qualname__ = name
        return stub

    def _call(self, name: str, lane: Lane | None, args, kwargs):
        """Call another agent's function: on the lane where there are many calls, and no objects in them."""
        if lane is None or self._observed > 0 or name in self._no_lane:
            self._observed -= 1
            return self.use(name, "call", args, kwargs)
        try:
            request = lane.request(name, "call", args, kwargs)
        except wire.Unsupported:
            return self.use(name, "call", args, kwargs)
        reply = lane.call(request)
        if reply is not None:
            return lane.result(reply, "call", args, kwargs)
        self._no_lane.add(name)
        return self.result(self.ask(request | {"kept": True}), "call", args, kwargs)

    def attend(self) -> None:
        """Serve the lanes until the tests' side has sent something."""
        self.attend_to(self)

    def attend_to(self, channel: Peer) -> None:
        """Serve all other channels until there is something on this one."""
        while self.lanes:
            events = self._poller.poll()
            if len(events) == 1 and events[0][0] == channel.fd:
                return
            ready = [fd for fd, _ in events if fd != channel.fd]
            self.channels[ready[0]].serve()

    def await_end(self) -> None:
        """Answer the tests' side only, until it ends this process, as another agent's process has ended."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.serve()
        os._exit(0)

    # Rules for objects: a candidate lets the others do everything, and treats theirs like its own.

    def allows(self, target, operation, args) -> bool:
        """True: every operation on every object."""
        return True

    def exportable(self, value) -> bool:
        """True: every object."""
        return True

    def truth(self, handle) -> bool:
        """The answer of the object's owner."""
        return bool(self.use(handle._number, "bool", (), {}))

    def equal(self, handle, other) -> bool:
        """The answer of the object's owner."""
        return handle is other or bool(self.use(handle._number, "same", (other,), {}))

    def hash(self, handle) -> int:
        """A hash by identity."""
        return object.__hash__(handle)

    def raised(self, description, error):
        """The exception itself, else the builtin one of that name; Exception for what cannot be made so."""
        if error is not None:
            return error
        base, name, text = description
        kind = getattr(builtins, base, None)
        try:
            if issubclass(kind, Exception):
                return kind(text)
        except TypeError:
            pass
        return Exception(f"{name}: {text}")

    def refuse(self, what):
        """Raise TypeError."""
        raise TypeError(what)
