"""Values between Python and a compiled C++ function, as bytes.

One layout for both directions, in the machine's byte order: numbers in C's sizes, a bool or char as one byte;
a string or vector as a count of 8 bytes and its content; a pair as its two parts. Strings are UTF-8.

A reply begins with one byte: 0, then the result and the vectors passed by mutable reference; or a key of
RAISED, then the text of a C++ exception. Replies are made next to foreign code: nothing in them is trusted.
"""

from __future__ import annotations

import struct

from .signature import SCALARS, Signature, Type

MAX_BYTES = 64 << 20  # of all arguments, and of a reply
MAX_ITEMS = 1_000_000  # of all vectors of a reply, each vector counted as one more
_EXACT_IN_DOUBLE = 1 << 53  # integers up to this size are floats without loss
_COUNT = struct.Struct("=Q")


class CppError(RuntimeError):
    """The function threw something that has no counterpart among Python's exceptions; the text names it."""


RAISED = {1: MemoryError, 2: IndexError, 3: OverflowError, 4: ValueError, 5: CppError}


def pack(signature: Signature, arguments: tuple) -> bytes:
    """The arguments as bytes.

    TypeError for a wrong count or type, OverflowError for a number out of range, ValueError for text or sizes
    that do not pass; each names the argument.
    """
    parameters = signature.parameters
    if len(arguments) != len(parameters):
        raise TypeError(f"{signature} takes {len(parameters)} arguments, {len(arguments)} were given")
    out = bytearray()
    for index, (parameter, value) in enumerate(zip(parameters, arguments, strict=True)):
        try:
            if parameter.passing == "reference":
                _expect(value, (list,), parameter.type)
            _write(out, parameter.type, value)
        except (TypeError, OverflowError, ValueError) as error:
            name = f" ({parameter.name})" if parameter.name else ""
            raise type(error)(f"argument {index + 1}{name} of {signature.name}: {error}") from None
    return bytes(out)


def unpack(signature: Signature, reply: bytes) -> tuple[object, dict[int, list]]:
    """The result (None for void), and {position: new content} of vectors passed by mutable reference.

    Raises what the function raised; ValueError where the bytes are no reply of this signature.
    """
    reader = _Reader(reply)
    code = reader.take(1)[0]
    if code in RAISED:
        text = reader.string(errors="replace")[:500]
        reader.finish()
        raise RAISED[code](text)
    if code:
        raise ValueError(f"malformed reply: unknown code {code}")
    result = reader.value(signature.result) if signature.result else None
    changed = {
        position: reader.value(parameter.type)
        for position, parameter in enumerate(signature.parameters)
        if parameter.passing == "reference"
    }
    reader.finish()
    return result, changed


def _write(out: bytearray, kind: Type, value) -> None:
    if kind.name == "string":
        _expect(value, (str,), kind)
        try:
            data = value.encode()
        except UnicodeEncodeError:
            raise ValueError("text that is not valid Unicode") from None
        out += _COUNT.pack(len(data)) + data
    elif kind.name == "pair":
        _expect(value, (tuple, list), kind)
        if len(value) != 2:
            raise TypeError(f"two values are expected for {kind.cpp}, not {len(value)}")
        for inner, item in zip(kind.inner, value, strict=True):
            _write(out, inner, item)
    elif kind.name == "vector":
        _expect(value, (list, tuple), kind)
        out += _COUNT.pack(len(value))
        (inner,) = kind.inner
        if inner.name in SCALARS:
            out += _scalars(inner, value)
        else:
            for item in value:
                _write(out, inner, item)
    else:
        out += _scalars(kind, (value,))
    if len(out) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")


def _scalars(kind: Type, values) -> bytes:
    """Values of one scalar type, one after the other."""
    code = SCALARS[kind.name][1]
    if code == "c":
        for value in values:
            _expect(value, (str,), kind)
            if len(value) != 1 or not value.isascii():
                raise ValueError(f"one ASCII character is expected, not {value!r:.20}")
        return "".join(values).encode()
    if code in "fd":
        for value in values:
            _expect(value, (float, int), kind)
            if type(value) is int and abs(value) > _EXACT_IN_DOUBLE:
                raise OverflowError(f"{value!r:.40} as {kind.cpp}: not exact")
    elif code == "?":
        for value in values:
            _expect(value, (bool,), kind)
    else:
        low, high = _range(code)
        for value in values:
            _expect(value, (int,), kind)
            if not low <= value <= high:
                raise OverflowError(f"{value!r:.40} is out of range for {kind.cpp}: {low} to {high}")
    return struct.pack(f"={len(values)}{code}", *values)  # OverflowError where a float is out of C's range


def _range(code: str) -> tuple[int, int]:
    """Smallest and largest integer of a code of `struct`."""
    bits = 8 * struct.calcsize("=" + code)
    return (0, (1 << bits) - 1) if code.isupper() else (-1 << bits - 1, (1 << bits - 1) - 1)


def _expect(value, kinds, kind: Type) -> None:
    if type(value) not in kinds:  # exactly: a bool is no number here
        raise TypeError(f"{kinds[0].__name__} is expected for {kind.cpp}, not {type(value).__name__}")


class _Reader:
    """Reads a reply from its beginning; ValueError for anything malformed."""

    def __init__(self, data: bytes):
        if len(data) > MAX_BYTES:
            raise ValueError(f"malformed reply: more than {MAX_BYTES} bytes")
        self.data, self.position, self.items = data, 0, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.position:
            raise ValueError("malformed reply: too short")
        self.position += size
        return self.data[self.position - size : self.position]

    def finish(self) -> None:
        if self.position != len(self.data):
            raise ValueError("malformed reply: too long")

    def count(self) -> int:
        return _COUNT.unpack(self.take(_COUNT.size))[0]

    def string(self, errors="strict") -> str:
        return self.take(self.count()).decode(errors=errors)  # UnicodeDecodeError is a ValueError

    def value(self, kind: Type):
        if kind.name == "string":
            return self.string()
        if kind.name == "pair":
            return tuple(self.value(inner) for inner in kind.inner)
        if kind.name != "vector":
            return self.scalars(kind, 1)[0]
        count, (inner,) = self.count(), kind.inner
        self.items += count + 1
        if self.items > MAX_ITEMS:
            raise ValueError(f"more than {MAX_ITEMS} items")
        if inner.name in SCALARS:
            return self.scalars(inner, count)
        return [self.value(inner) for _ in range(count)]

    def scalars(self, kind: Type, count: int) -> list:
        code = SCALARS[kind.name][1]
        data = self.take(count * struct.calcsize("=" + code))
        if code == "c":
            return list(data.decode("ascii"))
        if code == "?" and data.strip(b"\0\1"):
            raise ValueError("malformed reply: a bool other than 0 and 1")
        return list(struct.unpack(f"={count}{code}", data))
