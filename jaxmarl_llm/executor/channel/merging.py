"""Changes of arguments in place, made again in the caller's process."""

from __future__ import annotations

import collections
import dataclasses

from .. import wire

_KINDS = (list, collections.OrderedDict, dict, set, bytearray, collections.deque, tuple)
_EXACT = {*_KINDS, collections.Counter, collections.defaultdict}


def is_mutable(value) -> bool:
    """Whether an argument may come back changed: containers, and dataclasses of the prelude."""
    return type(value) in _EXACT or isinstance(value, tuple) or _is_record(value)


def _is_record(value) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def merge(value, content) -> None:
    """Give a container the content of another one of its kind, keeping the containers within it."""
    if _is_record(value) and type(content) is type(value):
        for field in dataclasses.fields(value):
            object.__setattr__(
                value, field.name, _kept(getattr(value, field.name), getattr(content, field.name))
            )
        return
    kind = next((kind for kind in _KINDS if isinstance(value, kind)), None)
    if kind is None or not isinstance(content, kind):
        raise wire.WireError("argument changed its type")
    if kind is tuple:
        if len(value) != len(content):
            raise wire.WireError("argument changed its length")
        for old, new in zip(value, content, strict=True):
            if is_mutable(old):
                merge(old, new)
    elif kind is list:
        value[:] = [_kept(value[i], new) if i < len(value) else new for i, new in enumerate(content)]
    elif kind is bytearray:
        value[:] = content
    elif kind is collections.deque:
        value.clear()
        value.extend(content)
    elif kind is set:
        set.clear(value)
        set.update(value, content)
    else:
        kept = {key: _kept(value[key], new) if key in value else new for key, new in content.items()}
        kind.clear(value)  # of a defaultdict or a Counter too: a subclass may do more than that
        kind.update(value, kept)


def _kept(old, new):
    """`old` with the content of `new` where both are containers of one kind, else `new`."""
    if type(old) is type(new) and is_mutable(old) and not isinstance(old, tuple):
        merge(old, new)
        return old
    return new
