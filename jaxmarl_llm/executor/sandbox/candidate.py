"""Inside a candidate's process: load one agent's source, then answer calls until the channel closes.

Nothing here is trusted: the text that runs next to it can rewrite all of it, and so change the data it sends.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import random
import sys
import types

from .. import wire
from ..channel.conversation import Peer, describe
from ..cpp.library import load
from . import script


def serve(fd: int, library: tuple[str, str] | None = None) -> None:
    """Answer questions until the channel closes; never returns.

    library: path and signature of a compiled candidate, which is loaded in place of the source that is sent.
    """
    try:
        _Candidate(fd, library).listen()
    except (EOFError, OSError, wire.WireError):
        pass
    finally:
        os._exit(0)


class _Candidate(Peer):
    """The candidate's end of the channel."""

    caught = BaseException  # SystemExit too: leaving is a failure like any other

    def __init__(self, fd: int, library):
        super().__init__(fd)
        self.library, self.space = library, {}
        self.run = None  # a script's runner

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
            self.space.pop(message["entry_point"], None)
            self._meet(message["known"])
            before = dict(self.space)
            where = message["agent"]
            code = compile(message["text"], f"<{where}>", "exec", dont_inherit=True)
            if message["script"]:
                self.run = script.runner(code, before)
                return {"ready": {}}
            exec(code, self.space)
            return {"ready": self._definitions(before)}
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

    def _definitions(self, before) -> dict:
        """{name: export} of what the source made: other agents' modules get the same names."""
        exports = {}
        for name, value in self.space.items():
            if type(name) is str and not name.startswith("__") and before.get(name, self) is not value:
                export = self._definition(name, value)
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
                self.space[name] = self._stub(name)
            else:
                with contextlib.suppress(ImportError, AttributeError):
                    module = importlib.import_module(export[1])
                    self.space[name] = getattr(module, export[2]) if export[2] else module

    def _stub(self, name):
        def stub(*args, **kwargs):
            return self.use(name, "call", args, kwargs)

        stub.__name__ = stub.__qualname__ = name
        return stub

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

    def raised(self, description):
        """The builtin exception of that name; Exception for what cannot be made so."""
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
