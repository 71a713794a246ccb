"""Values as data: a closed set of types (see `values`) as tagged JSON. No pickle, no code.

Both ends of the candidate's channel use this module; the tester's end trusts no incoming message.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import values
from .frames import Unsupported, WireError

MAX_DEPTH = 60
MAX_ITEMS = 1_000_000
HANDLES = ("mine", "yours")  # objects of the sender, of the receiver
MADE = "made"  # the tag of a value that is built from parts
_MALFORMED = (
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    ImportError,
    RecursionError,
)
_SEQUENCES = {"l": list, "t": tuple, "s": set, "z": frozenset}
_MIN_INT, _MAX_INT = -(1 << 63), (1 << 63) - 1
_INTS, _TEXTS = {int}, {str}
_MANY = 16  # from this many items on, checking all together is faster than one by one
_UNTAGGED = {int, str, bool, type(None)}  # types that a message holds as they are


def encode(value, export=None, classes=None):
    """JSON form of a value that is plain or listed in `values`; other subclasses become their builtin base.

    For all other values `export(value)` gives [tag, number] with a tag of HANDLES; without it: Unsupported.
    classes: the prelude's, `values.Classes`.
    """
    if _stands_for_itself(value):
        return value
    return _Encoder(export, classes).walk(value, 0)


def encode_all(items: Sequence, export=None, classes=None) -> list:
    """`encode` of each item."""
    if _stand_for_themselves(items):
        return [*items]
    return [encode(item, export, classes) for item in items]


def _stands_for_itself(value) -> bool:
    kind = type(value)
    if kind is int:
        return _MIN_INT <= value <= _MAX_INT
    if kind is str:
        return value.isascii()
    return value is None or kind is bool


def _stand_for_themselves(items: Sequence) -> bool:
    """Whether all items do; fast if they have one type, since a call between agents may pass many."""
    kinds = {*map(type, items)}
    if not kinds <= _UNTAGGED:
        return False
    if kinds == _INTS:
        return _MIN_INT <= min(items) and max(items) <= _MAX_INT
    return "".join(items).isascii() if kinds == _TEXTS else all(map(_stands_for_itself, items))


def are_untagged(items: Sequence) -> bool:
    """Whether all items have types that a message holds unchanged, and that are immutable."""
    return {*map(type, items)} <= _UNTAGGED


class _Encoder:
    def __init__(self, export, classes):
        self.items, self.export, self.classes = 1, export, classes

    def walk(self, value, depth):
        """The form of a value that has been counted."""
        if value is None or value is True or value is False:
            return value
        kind = type(value)
        if kind not in values.PLAIN and (made := self.made(value, kind, depth)) is not None:
            return made
        # Base-class methods only: a subclass may lie in every method of its own.
        if issubclass(kind, str):
            return _encode_text(str.__str__(value))
        if issubclass(kind, int):
            plain = int.__pos__(value)
            return plain if _MIN_INT <= plain <= _MAX_INT else ["i", hex(plain)]
        if issubclass(kind, float):
            return ["f", float.hex(float.__pos__(value))]
        if issubclass(kind, dict):
            return ["d", [self.each(pair, depth + 1) for pair in dict.items(value)]]
        for tag, base in _SEQUENCES.items():
            if issubclass(kind, base):
                return [tag, self.each([*base.__iter__(value)], depth + 1)]
        return self.rare(value, kind)

    def each(self, items, depth):
        """The forms of all items."""
        self.count(len(items), depth)
        if len(items) > _MANY and _stand_for_themselves(items):
            return items
        return [item if _stands_for_itself(item) else self.walk(item, depth) for item in items]

    def count(self, items: int, depth: int) -> None:
        """Add items; Unsupported where they are too many, or there are any and they are too deep."""
        self.items += items
        if (depth > MAX_DEPTH and items) or self.items > MAX_ITEMS:
            raise Unsupported("value nested too deeply" if depth > MAX_DEPTH else "value with too many items")

    def made(self, value, kind, depth):
        """The form of a value that is built from parts; None if it is not."""
        packed = values.pack(value, kind, self.classes)
        if packed is None:
            return None
        name, parts = packed
        export, self.export = self.export, self.export if name in values.HOLDING else None
        try:
            return [MADE, name, self.each(parts, depth + 1)]
        except Unsupported:
            if export is None:
                raise
            return export(value)
        finally:
            self.export = export

    def rare(self, value, kind):
        if issubclass(kind, bytes):
            return ["b", bytes.hex(value)]
        if issubclass(kind, complex):
            plain = complex.__pos__(value)
            return ["c", plain.real.hex(), plain.imag.hex()]
        if kind is range:
            return ["r", hex(value.start), hex(value.stop), hex(value.step)]
        if self.export is None:
            raise Unsupported(f"value of type {type_name(value)}")
        return self.export(value)


def _encode_text(text: str):
    """Encode a text: JSON would join two adjacent halves of a surrogate pair."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return ["u", text.encode("utf-32-le", "surrogatepass").hex()]
    return text


def type_name(value) -> str:
    """Name of a value's type, from the type itself."""
    return type.__dict__["__name__"].__get__(type(value))


def decode(data, resolve=None, classes=None):
    """The inverse of `encode`; WireError for anything that `encode` does not make.

    `resolve(tag, number)` gives the value of a handle. classes: the prelude's, `values.Classes`.
    """
    if type(data) in _UNTAGGED:
        return data
    try:
        return _Decoder(resolve, classes).walk(data, 0)
    except _MALFORMED as error:
        raise WireError(f"malformed value: {type(error).__name__}") from None


def decode_all(data: list, resolve=None, classes=None) -> list:
    """`decode` of each item."""
    if are_untagged(data):
        return data
    return [decode(item, resolve, classes) for item in data]


class _Decoder:
    def __init__(self, resolve, classes):
        self.items, self.resolve, self.classes = 1, resolve, classes

    def walk(self, data, depth):
        """The value of a tagged form that has been counted."""
        if type(data) is not list or not data or type(data[0]) is not str:
            raise WireError("value without a tag")
        tag, *rest = data
        if tag in _SEQUENCES:
            (items,) = rest
            return _SEQUENCES[tag](self.each(items, depth + 1))
        if tag == "d":
            (pairs,) = rest
            # A pair of the wrong length raises an error.
            return dict(self.each(pair, depth + 1) for pair in _exact_list(pairs))
        if tag == MADE:
            name, parts = rest
            return values.unpack(name, self.each(parts, depth + 1), self.classes)
        if tag in HANDLES and self.resolve is not None:
            (number,) = rest
            return self.resolve(tag, number)
        return _decode_scalar(tag, rest)

    def each(self, items, depth) -> list:
        """The values of all items of a list."""
        self.count(len(_exact_list(items)), depth)
        return [item if type(item) in _UNTAGGED else self.walk(item, depth) for item in items]

    def count(self, items: int, depth: int) -> None:
        """Add items; WireError where they are too many, or there are any and they are too deep."""
        self.items += items
        if (depth > MAX_DEPTH and items) or self.items > MAX_ITEMS:
            raise WireError("value too deep or too large")


def _exact_list(data):
    if type(data) is not list:
        raise WireError("list expected")
    return data


def _decode_scalar(tag, texts):
    if tag == "i":
        (text,) = texts
        return int(text, 16)
    if tag == "f":
        (text,) = texts
        return float.fromhex(text)
    if tag == "u":
        (text,) = texts
        return bytes.fromhex(text).decode("utf-32-le", "surrogatepass")
    if tag == "b":
        (text,) = texts
        return bytes.fromhex(text)
    if tag == "c":
        real, imag = texts
        return complex(float.fromhex(real), float.fromhex(imag))
    if tag == "r":
        start, stop, step = texts
        return range(int(start, 16), int(stop, 16), int(step, 16))
    raise WireError(f"unknown tag {tag!r:.20}")


def texts(value, count: int) -> list[str]:
    """The value, checked to be a list of ``count`` texts."""
    if type(value) is not list or len(value) != count or any(type(text) is not str for text in value):
        raise WireError("reply of no known kind")
    return value
