"""Objects that live in another process, as they are seen from here."""

from __future__ import annotations

from .. import wire


class Handle:
    """An object of the other side: calls, public attributes, items and iteration are questions to that side.

    Its answers are values or handles again. It has no hash, truth or order, and equals nothing: an object
    that decides what it is equal to would judge itself. `Peer.refuse` decides how such a use fails.
    """

    __slots__ = ("_number", "_peer")

    def __init__(self, peer, number: int):
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def _ask(self, operation, *args, **kwargs):
        return self._peer.use(self._number, operation, args, kwargs)

    def __call__(self, *args, **kwargs):
        return self._ask("call", *args, **kwargs)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ask("get", name)

    def __setattr__(self, name, value):
        self._ask("set", name, value)

    def __iter__(self):
        return Pull(self._ask("iter"))

    def __next__(self):
        return _next(self)

    def __len__(self):
        size = self._ask("len")
        if type(size) is not int or not 0 <= size <= wire.MAX_ITEMS:
            self._peer.refuse("an object whose length is no number, or too large")
        return size

    def __getitem__(self, key):
        return self._ask("item", key)

    def __setitem__(self, key, value):
        self._ask("setitem", key, value)

    def __str__(self):
        return _text(self._ask("str"))

    def __repr__(self):
        return _text(self._ask("repr"))

    def __bool__(self):
        return self._peer.truth(self)

    def __eq__(self, other):
        return self._peer.equal(self, other)

    def __hash__(self):
        return self._peer.hash(self)

    def _refused(self, *_):
        self._peer.refuse("an object in a comparison or in arithmetic")

    __lt__ = __le__ = __gt__ = __ge__ = _refused
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refused


class Pull:
    """Iterates over an object of the other side, one question per item."""

    def __init__(self, handle):
        self.handle = handle

    def __iter__(self):
        return self

    def __next__(self):
        return _next(self.handle)


def _next(handle):
    if not isinstance(handle, Handle):
        raise TypeError("iter() returned something that is no iterator")
    item = handle._ask("next")
    if type(item) is not tuple or len(item) > 1:
        raise TypeError("malformed item")
    if not item:
        raise StopIteration
    return item[0]


def _text(value) -> str:
    return value if type(value) is str else "?"


def _setitem(target, key, value):
    target[key] = value


def _item(iterator):
    return (next(iterator),)


# What a handle asks for, as the owner of the object does it.
OPERATIONS = {
    "call": lambda target, *args, **kwargs: target(*args, **kwargs),
    "get": getattr,
    "set": setattr,
    "iter": iter,
    "next": _item,
    "len": len,
    "item": lambda target, key: target[key],
    "setitem": _setitem,
    "str": str,
    "repr": repr,
    "bool": bool,
    "same": lambda target, other: bool(target == other),
}
