"""Seeded random plain values, and damage to their encodings and frames."""

import builtins
import json
import math
import struct
import sys

from jaxmarl_llm.executor import frames, wire

PLAIN = (type(None), bool, int, float, complex, str, bytes, range, list, tuple, set, frozenset, dict)

EXCEPTIONS = [
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)
]
ODD_INTS = [0, 1, -1, (1 << 63) - 1, 1 << 63, -(1 << 63), -(1 << 63) - 1, 10**5000, -(7**3000)]
ODD_FLOATS = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 0.1]


def text(rng) -> str:
    """Any code points, halves of surrogate pairs among them, which JSON would join."""
    kinds = [(32, 127), (0, 0x3000), (0xD800, 0xE000), (0, 0x110000)]
    return "".join(chr(rng.randrange(*rng.choice(kinds))) for _ in range(rng.randrange(9)))


def scalar(rng):
    """A plain value that holds no others."""
    real = rng.choice(
        [rng.choice(ODD_FLOATS), rng.gauss(0, 1e3), rng.random() * 10.0 ** rng.randrange(-300, 300)]
    )
    return rng.choice(
        [
            None,
            rng.random() < 0.5,
            rng.choice(ODD_INTS),
            rng.getrandbits(rng.randrange(1, 200)) * rng.choice([1, -1]),
            real,
            complex(real, rng.choice(ODD_FLOATS)),
            text(rng),
            rng.randbytes(rng.randrange(9)),
            range(*(rng.choice([-(10**30), -3, 5, 10**30]) for _ in range(2)), rng.choice([-7, 1, 10**20])),
        ]
    )


def value(rng, depth: int = 4, hashable: bool = False):
    """A plain value of any type, nested at most so deep."""
    if depth == 0 or rng.random() < 0.3:
        return scalar(rng)
    kind = rng.choice([tuple, frozenset] if hashable else [list, tuple, set, frozenset, dict])
    count = rng.randrange(5)
    if kind is dict:
        return {value(rng, depth - 1, True): value(rng, depth - 1) for _ in range(count)}
    return kind([value(rng, depth - 1, hashable or kind in (set, frozenset)) for _ in range(count)])


def shape(thing):
    """What two values have in common only if they are the same: exact types, signs of zero, order."""
    kind = type(thing)
    if kind is float:
        return ("float", "nan" if math.isnan(thing) else struct.pack("d", thing))
    if kind is complex:
        return ("complex", shape(thing.real), shape(thing.imag))
    if kind is dict:
        return ("dict", [(shape(k), shape(v)) for k, v in thing.items()])
    if kind in (set, frozenset):
        return (kind.__name__, sorted((shape(item) for item in thing), key=repr))
    if kind in (list, tuple):
        return (kind.__name__, [shape(item) for item in thing])
    return (kind.__name__, hex(thing) if kind is int else thing)


def weight(thing) -> int:
    """Bytes of memory of a plain value; AssertionError where a part of it is of another type."""
    assert type(thing) in PLAIN, type(thing)
    size = sys.getsizeof(thing)
    if type(thing) is dict:
        return size + sum(weight(k) + weight(v) for k, v in thing.items())
    if type(thing) in (list, tuple, set, frozenset):
        return size + sum(weight(item) for item in thing)
    return size


# Tags, texts and values that the parsers look at, in places where they may not be expected.
JUNK = [
    *("", "i", "f", "b", "c", "r", "l", "t", "s", "z", "d", "ok", "raise", "changed", "nan", "zz", "\ud800"),
    *(
        "0x",
        "-0x1p9999999999",
        "0x" + "f" * 300,
        "9" * 5000,
        "1e999",
        "0",
        "-1",
        "MemoryError",
        "StopIteration",
    ),
    *(
        None,
        True,
        False,
        0,
        -1,
        1 << 62,
        1 << 64,
        1.5,
        [],
        {},
        [[]],
        ["l", []],
        ["d", [[["l", []], 1]]],
        ["f", None],
    ),
    *(
        ["f", "0x1p99999"],
        ["i", "9" * 9],
        ["r", "0x0", "0x1", "0x0"],
        ["i", 3],
        ["s", [["l", []]]],
        {"ok": 1},
        ["ok"],
        [["i", "0x1"]],
        ["t", 7],
    ),
]


def mutated(data, rng):
    """JSON data with one place changed."""
    if type(data) not in (list, dict) or not data or rng.random() < 0.15:
        other = wire.encode(value(rng, depth=1))
        junk = rng.choice([item for item in JUNK if type(item) is str] if type(data) is str else JUNK)
        return rng.choice([other, other, junk, junk, [data], {"ok": data}, [data, data]])
    if type(data) is dict:
        key = rng.choice(list(data))
        rest = {k: v for k, v in data.items() if k != key}
        return rng.choice(
            [
                rest,
                {**rest, rng.choice(["ok", "raise", "x", "0"]): data[key]},
                {**data, key: mutated(data[key], rng)},
            ]
        )
    place = rng.randrange(len(data))
    change = rng.choice(["inside", "inside", "inside", "drop", "double", "swap", "insert"])
    if change == "inside":
        return [*data[:place], mutated(data[place], rng), *data[place + 1 :]]
    if change == "drop":
        return data[:place] + data[place + 1 :]
    if change == "double":
        return data[: place + 1] + data[place:]
    if change == "swap":
        return data[::-1]
    return [*data[:place], rng.choice(JUNK), *data[place:]]


def frame(message) -> bytes:
    """A well-formed frame."""
    body = json.dumps(message).encode()
    return struct.pack(">I", len(body)) + body


def damaged(good: bytes, rng) -> bytes:
    """A frame with flipped bits, cut, with another length, with bytes too many, or no frame at all."""
    place = rng.randrange(len(good))
    way = rng.randrange(6)
    if way == 0:
        flipped = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            flipped[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    if way == 1:
        return good[:place]
    if way == 2:
        return (
            struct.pack(
                ">I", rng.choice([0, 1, len(good), frames.MAX_FRAME, frames.MAX_FRAME + 1, (1 << 32) - 1])
            )
            + good[4:]
        )
    if way == 3:
        return good[:place] + rng.randbytes(rng.randrange(1, 9)) + good[place:]
    if way == 4:
        body = rng.choice(
            [
                b"[" * 5_000,
                b'{"":' * 2_000,
                b"9" * 6_000,
                b'"\xff"',
                b"\0",
                b"[1e999]",
                b"NaN",
                b"{} {}",
                b"",
            ]
        )
        return struct.pack(">I", len(body)) + body
    return rng.randbytes(rng.randrange(1, 60))
