"""Changes of arguments in place, made again in the caller's process."""

from __future__ import annotations

from .. import wire

MUTABLE = (list, dict, set)


def merge(value, content) -> None:
    """Give a container the content of another one of its kind, keeping the containers within it."""
    kind = next((kind for kind in (list, dict, set, tuple) if isinstance(value, kind)), None)
    if type(content) is not kind or kind is None:
        raise wire.WireError("argument changed its type")
    if kind is tuple:
        if len(value) != len(content):
            raise wire.WireError("argument changed its length")
        for old, new in zip(value, content, strict=True):
            if isinstance(old, (*MUTABLE, tuple)):
                merge(old, new)
    elif kind is list:
        value[:] = [_kept(value[i], new) if i < len(value) else new for i, new in enumerate(content)]
    elif kind is dict:
        kept = {key: _kept(value[key], new) if key in value else new for key, new in content.items()}
        dict.clear(value)
        dict.update(value, kept)
    else:
        set.clear(value)
        set.update(value, content)


def _kept(old, new):
    """`old` with the content of `new` where both are containers of one kind, else `new`."""
    if type(old) in MUTABLE and type(old) is type(new):
        merge(old, new)
        return old
    return new
