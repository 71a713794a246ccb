"""Values of types that JSON lacks: how each is split into parts for sending, and rebuilt from them.

There is a closed list of types from the standard library (and from numpy, if it is allowed), plus the classes
that a program's prelude defines on both sides. A message names an entry of the list. Each entry is built by
its own constructor from parts that are checked values themselves, so a message cannot name other code.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import enum
import functools
import importlib
import keyword
import sys
import types
from collections.abc import Callable, Sequence

PLAIN = frozenset((bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, range))
_TYPES = {kind.__name__: kind for kind in (*PLAIN, bytearray, type(None))} | {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException)
}
# Types by name: how a value is split, and how it is rebuilt from its type and its parts.
Entry = tuple[Callable, Callable]


def _call(kind, *parts):
    return kind(*parts)


def _as_text(*names: str) -> dict[str, Entry]:
    return dict.fromkeys(names, (lambda value: [str(value)], _call))


_STANDARD: dict[str, Entry] = {
    "builtins.bytearray": (lambda v: [bytes(v)], lambda kind, data: kind(_exact(data, bytes))),
    "builtins.slice": (lambda v: [v.start, v.stop, v.step], lambda kind, *ends: slice(*ends)),
    "builtins.ellipsis": (lambda v: [], lambda kind: ...),
    "builtins.mappingproxy": (lambda v: [dict(v)], lambda kind, data: types.MappingProxyType(_exact(data, dict))),
    "builtins.dict_keys": (lambda v: [list(v)], lambda kind, keys: dict.fromkeys(_exact(keys, list)).keys()),
    "builtins.dict_values": (lambda v: [list(v)], lambda kind, items: dict(enumerate(_exact(items, list))).values()),
    "builtins.dict_items": (lambda v: [list(v)], lambda kind, pairs: dict(_exact(pairs, list)).items()),
    "datetime.date": (lambda v: [v.year, v.month, v.day], _call),
    "datetime.time": (
        lambda v: [v.hour, v.minute, v.second, v.microsecond, v.tzinfo, v.fold],
        lambda kind, *parts: kind(*parts[:-1], fold=parts[-1]),
    ),
    "datetime.datetime": (
        lambda v: [v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.tzinfo, v.fold],
        lambda kind, *parts: kind(*parts[:-1], fold=parts[-1]),
    ),
    "datetime.timedelta": (lambda v: [v.days, v.seconds, v.microseconds], _call),
    "datetime.timezone": (lambda v: list(v.__getinitargs__()), _call),
    "fractions.Fraction": (lambda v: [v.numerator, v.denominator], _call),
    "collections.deque": (lambda v: [list(v), v.maxlen], lambda kind, items, most: kind(_exact(items, list), most)),
    "collections.Counter": (lambda v: [dict(v)], lambda kind, counts: kind(_exact(counts, dict))),
    "collections.OrderedDict": (lambda v: [dict(v)], lambda kind, items: kind(_exact(items, dict))),
    "collections.defaultdict": (
        lambda v: [v.default_factory, dict(v)],
        lambda kind, factory, items: kind(factory, _exact(items, dict)),
    ),
    "collections.ChainMap": (
        lambda v: [_exact(part, dict) for part in v.maps],
        lambda kind, *maps: kind(*(_exact(part, dict) for part in maps)),
    ),
    "types.SimpleNamespace": (lambda v: [dict(vars(v))], lambda kind, names: kind(**_exact(names, dict))),
    "array.array": (lambda v: [v.typecode, v.tolist()], _call),
    "time.struct_time": (lambda v: [list(v)], lambda kind, items: kind(_exact(items, list))),
    "uuid.UUID": (lambda v: [v.int], lambda kind, number: kind(int=number)),
    **_as_text("decimal.Decimal", "pathlib.PurePosixPath", "pathlib.PosixPath"),
    **_as_text("ipaddress.IPv4Address", "ipaddress.IPv6Address"),
    **_as_text("ipaddress.IPv4Network", "ipaddress.IPv6Network"),
    "numpy.ndarray": (
        lambda v: [v.dtype.str, list(v.shape), v.tobytes()],
        lambda kind, dtype, shape, data: _array(dtype, data).reshape(_exact(shape, list)).copy(),
    ),
    "numpy.generic": (lambda v: [v.dtype.str, v.tobytes()], lambda kind, dtype, data: _array(dtype, data)[0]),
}  # fmt: skip
# The parts of these may be objects that stay in their process.
_CONTAINERS = frozenset(
    name for name in _STANDARD if name.startswith(("collections.", "types.", "builtins.dict_"))
)
HOLDING = _CONTAINERS | {"named", "dataclass", "prelude tuple"}
_names: dict[type, str] = {}  # cache of names of _STANDARD's types: agents may send many values


def _exact(part, kind: type):
    if type(part) is not kind:
        raise TypeError(f"{kind.__name__} expected")
    return part


def _array(dtype, data):
    """A flat array of numbers, times or text; object arrays cannot be sent."""
    numpy = importlib.import_module("numpy")
    kind = numpy.dtype(_exact(dtype, str))
    if kind.kind not in "biufcmMSU":
        raise TypeError(f"an array of {kind}")
    return numpy.frombuffer(_exact(data, bytes), kind)


class Classes:
    """The enums, dataclasses, named tuples and exceptions that a prelude has just defined in ``space``.

    If a source repeats a class with the same name and form, as answers often do, it counts as the same class.
    """

    def __init__(self, space: dict):
        self._space = space
        home = space.get("__name__")
        self._kinds = {
            name: kind
            for name, kind in space.items()
            if isinstance(kind, type) and kind.__module__ == home and form(kind) is not None
        }

    def name_of(self, kind: type) -> str | None:
        """The name under which a class is known on both sides; None for any other class."""
        name = type.__dict__["__name__"].__get__(kind)
        known = self._kinds.get(name)
        return name if known is not None and kind in (known, self.named(name)) else None

    def named(self, name: str) -> type:
        """The class of that name on this side; KeyError if the prelude has none."""
        known, current = self._kinds[name], self._space.get(name)
        return current if isinstance(current, type) and form(current) == form(known) else known


_NO_CLASSES = Classes({})


def form(kind: type) -> tuple | None:
    """What must be equal in two classes so that instances of one can become instances of the other."""
    if issubclass(kind, enum.Enum):
        return ("enum", tuple(kind.__members__))
    if dataclasses.is_dataclass(kind):
        return ("dataclass", tuple(field.name for field in dataclasses.fields(kind)))
    if issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
        return ("tuple", kind._fields)
    return ("exception",) if issubclass(kind, Exception) else None


def pack(value, kind: type, classes: Classes | None = None) -> tuple[str, list] | None:
    """(name, parts) of a value whose type is not in PLAIN; None if it cannot be sent as a value."""
    name = _names.get(kind)
    if name is not None:
        return _pack_standard(value, name)
    classes = classes or _NO_CLASSES
    if kind is type:
        known = _TYPES.get(value.__name__) is value
        return ("type", [value.__name__]) if known else None
    if issubclass(kind, Exception):
        return _pack_exception(value, kind, classes)
    name = classes.name_of(kind)
    if name is not None:
        return _pack_instance(value, kind, name)
    fields = getattr(kind, "_fields", None)
    if issubclass(kind, tuple) and isinstance(fields, tuple):
        return "named", [kind.__name__, list(fields), list(tuple.__iter__(value))]
    name = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"
    if name.startswith("numpy.") and issubclass(kind, sys.modules["numpy"].generic):
        name, kind = "numpy.generic", sys.modules["numpy"].generic
    if name not in _STANDARD or not (name.startswith("builtins.") or _standard_kind(name) is kind):
        return None
    _names[kind] = name
    return _pack_standard(value, name)


def _pack_standard(value, name: str) -> tuple[str, list] | None:
    try:
        return name, _STANDARD[name][0](value)
    except Exception:  # its parts are unusual for its type, such as a ChainMap of lists
        return None


def unpack(name: str, parts: Sequence, classes: Classes | None = None):
    """The value with this name and parts; an Exception for anything that `pack` does not make."""
    classes = classes or _NO_CLASSES
    if name in _MADE:
        return _MADE[name](classes, *parts)
    make = _STANDARD[name][1]
    return make(
        None if name.startswith("builtins.") and name != "builtins.bytearray" else _standard_kind(name),
        *parts,
    )


@functools.cache
def _standard_kind(name: str) -> type:
    module, _, kind = name.partition(".")
    return getattr(importlib.import_module(module), kind)


def _pack_instance(value, kind: type, name: str) -> tuple[str, list] | None:
    what, names = form(kind)
    if what == "enum":
        return ("member", [name, value.name]) if value.name in names else ("flag", [name, value.value])
    if what == "tuple":
        return "prelude tuple", [name, list(tuple.__iter__(value))]
    return "dataclass", [name, {field: getattr(value, field) for field in names}]


def _pack_exception(error, kind: type, classes: Classes) -> tuple[str, list]:
    """As the nearest class that both sides know; keeps its message if that class would change it."""
    for known in kind.__mro__:
        name = classes.name_of(known)
        if name is not None:
            return "prelude exception", [name, tuple(error.args), dict(vars(error))]
        if getattr(builtins, known.__name__, None) is known:
            break
    arguments = tuple(error.args)
    if known is not kind and str(known(*arguments)) != str(error):
        arguments = (str(error),)
    return "exception", [known.__name__, arguments]


def _make_named(classes: Classes, name, fields, items):
    names = [name, *_exact(fields, list)]
    if any(type(n) is not str or not n.isidentifier() or keyword.iskeyword(n) for n in names):
        raise ValueError("a name that is none")
    return collections.namedtuple(name, fields)._make(_exact(items, list))


def _make_prelude_tuple(classes: Classes, name, items):
    return classes.named(name)._make(_exact(items, list))


def _make_dataclass(classes: Classes, name, fields):
    kind = classes.named(name)
    if form(kind) != ("dataclass", tuple(_exact(fields, dict))):
        raise TypeError(f"no {name}")
    value = kind.__new__(kind)
    for field, part in fields.items():
        object.__setattr__(value, field, part)
    return value


def _make_exception(classes: Classes, name, arguments):
    kind = _TYPES[name]
    if not issubclass(kind, Exception):
        raise TypeError(f"{name} is no Exception")
    return kind(*_exact(arguments, tuple))


def _make_prelude_exception(classes: Classes, name, arguments, attributes):
    kind = classes.named(name)
    if form(kind) != ("exception",):
        raise TypeError(f"{name} is no exception")
    error = kind.__new__(kind, *_exact(arguments, tuple))
    error.__dict__.update(_exact(attributes, dict))
    return error


_MADE: dict[str, Callable] = {
    "type": lambda classes, name: _TYPES[name],
    "named": _make_named,
    "prelude tuple": _make_prelude_tuple,
    "dataclass": _make_dataclass,
    "member": lambda classes, name, member: classes.named(name)[member],
    "flag": lambda classes, name, number: classes.named(name)(number),
    "exception": _make_exception,
    "prelude exception": _make_prelude_exception,
}
