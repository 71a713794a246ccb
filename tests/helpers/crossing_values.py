"""Values that cross between processes: a prelude with classes of every kind, and expressions on it."""

IMPORTS = """
import array, collections, datetime, decimal, enum, fractions, ipaddress, pathlib, time, types, uuid
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import date, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

class Right(enum.Flag):
    READ = 1
    WRITE = 2

class Level(enum.IntEnum):
    LOW = 1

class Place(NamedTuple):
    x: int
    y: int = 0

@dataclass(frozen=True)
class Amount:
    value: Decimal
    unit: str = "g"

@dataclass
class Box:
    items: list = field(default_factory=list)
    count: int = 0

class TooSmall(ValueError):
    def __init__(self, number, least):
        super().__init__(number, least)
        self.number, self.least = number, least
"""
VALUES = [
    "date(2024, 2, 29)", "datetime.time(1, 2, 3, 4, fold=1)", "datetime.datetime(2024, 1, 2, 3, tzinfo=timezone.utc)",
    "datetime.datetime(2024, 1, 2, 3, 4, 5, 6)", "timedelta(days=-1, seconds=3)", "timezone(timedelta(hours=2), 'X')",
    "Decimal('1.50')", "Decimal('-Infinity')", "Fraction(1, 3)", "deque([1, 2], 3)", "Counter('aab')",
    "OrderedDict([('b', 1), ('a', 2)])", "defaultdict(list, {1: [2]})", "ChainMap({1: 2}, {3: 4})", "bytearray(b'ab')",
    "b'ab'", "3 + 4j", "range(1, 9, 3)", "frozenset({1, 2})", "slice(1, None, 2)", "...", "{1: 2}.keys()",
    "types.SimpleNamespace(a=1)", "array.array('i', [1, 2])", "time.gmtime(0)", "uuid.UUID(int=5)",
    "pathlib.PurePosixPath('a/b')", "ipaddress.IPv4Address('10.0.0.1')", "ipaddress.IPv6Network('2001:db8::/32')",
    "Colour.RED", "Right.READ | Right.WRITE", "Level.LOW", "Place(1, 2)", "Amount(Decimal('2'))", "Box([1], 2)",
    "int", "ValueError", "[Colour.BLUE, {Place(1): Amount(Decimal(1))}]", "deque([Counter('a')])",
]
