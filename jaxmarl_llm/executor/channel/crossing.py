"""How values cross a channel: as data if possible, otherwise as objects with a number."""

from __future__ import annotations

from .. import wire
from .handles import Handle

MAX_OBJECTS = 100_000  # that one side holds for the other


class Crossing:
    """One end's objects that the other side may name, and handles of the other side's."""

    classes = None  # the prelude's, `values.Classes`

    def __init__(self):
        self._objects: list = []  # of this side, that the other one may name
        self._numbers: dict[int, int] = {}  # id() of such an object: its place
        self._handles: dict[int, Handle] = {}

    def exportable(self, value) -> bool:
        """Whether the other side may hold this object."""
        raise NotImplementedError

    def encode(self, value):
        """`wire.encode` with handles."""
        return wire.encode(value, self._export, self.classes)

    def encode_all(self, items) -> list:
        """`encode` of each item."""
        return wire.encode_all(items, self._export, self.classes)

    def decode(self, data):
        """`wire.decode` with handles."""
        return wire.decode(data, self._resolve, self.classes)

    def decode_all(self, data: list) -> list:
        """`decode` of each item."""
        return wire.decode_all(data, self._resolve, self.classes)

    def object(self, number):
        """The object of this side with a number; WireError where there is none."""
        if type(number) is not int or not 0 <= number < len(self._objects):
            raise wire.WireError("question about nothing")
        return self._objects[number]

    def _export(self, value):
        if isinstance(value, Handle) and value._peer is self:
            return ["yours", value._number]
        number = self._numbers.get(id(value))
        if number is None:
            if not self.exportable(value):
                raise wire.Unsupported(f"value of type {wire.type_name(value)}")
            if len(self._objects) >= MAX_OBJECTS:
                raise wire.Unsupported("too many objects")
            number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)  # kept alive, so that its id() stays its own
        return ["mine", number]

    def _resolve(self, tag, number):
        if type(number) is not int or not 0 <= number < MAX_OBJECTS:
            raise wire.WireError("malformed handle")
        if tag == "mine":
            if number not in self._handles:
                self._handles[number] = Handle(self, number)
            return self._handles[number]
        if number >= len(self._objects):
            raise wire.WireError("handle of nothing")
        return self._objects[number]
