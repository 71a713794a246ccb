"""Forging a verdict by values: objects and subclasses that lie, iterators, what does not travel."""

from .record import attack, sheet

TESTS = {
    "TRUE": "def check(candidate):\n    assert candidate(1)\n    assert candidate(5)\n",
    "INT": "def check(candidate):\n    assert isinstance(candidate(1), int) and candidate(1) == 2\n",
    "LIST": "def check(candidate):\n    assert candidate(1) == [2]\n    assert candidate(5) == [6]\n",
    "NESTED": "def check(candidate):\n    assert candidate(1) == ([{'a': 2}],)\n",
    "KEYS": "def check(candidate):\n    assert candidate(1) == {2: 1}\n",
    "SET": "def check(candidate):\n    assert candidate(1) == {2}\n",
    "IN": "def check(candidate):\n    assert candidate(1) in (2, 3)\n",
    "ANY": "def check(candidate):\n    assert any(candidate(x) == x + 1 for x in (1, 5))\n",
    "PULLED": "def check(candidate):\n    assert list(candidate(1)) == [2]\n",
    "NAMED": "def check(candidate):\n    assert candidate(1) == (2,)\n",
    "TEXTS": "def check(candidate):\n    assert candidate(1) == {'b': 1}\n",
}

# Every method that a comparison, an assert or a container could ask.
_METHODS = """
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
    def __hash__(self): return 2
    def __len__(self): return 2
    def __iter__(self): return iter([2])
    def __contains__(self, item): return True
    def __getitem__(self, index): return 2
    def __int__(self): return 2
    def __index__(self): return 2
    def __float__(self): return 2.0
    def __repr__(self): return '2'
    def __str__(self): return '2'
    def __sub__(self, other): return 0
    def __rsub__(self, other): return 0
    def __reduce__(self): return int, (2,)
    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __class__ = property(lambda self: int)
"""

_OBJECTS = sheet(
    "object",
    r"""
equals-everything | unsupported | an object that equals everything
    def f(x):
        return A()

is-true | unsupported | an object that is true | tests TRUE
    def f(x):
        return A()

# The tests ask for the type before they compare.
is-an-int | fail unsupported | an object that claims another class | tests INT
    def f(x):
        return A()

equal-in-list | unsupported | one inside a list | tests LIST
    def f(x):
        return [A()]

equal-in-tuple | unsupported | one deep inside | tests NESTED
    def f(x):
        return ([{'a': A()}],)

# What stands for an object may not be hashed, which the tester may call malformed.
equal-as-key | protocol unsupported | one as a key | tests KEYS
    def f(x):
        return {A(): 1}

equal-in-set | protocol unsupported | one in a set | tests SET
    def f(x):
        return {A()}

metaclass | unsupported | a class that equals everything
    class M(type):
        def __eq__(self, other): return True
        def __ne__(self, other): return False
        __hash__ = type.__hash__
    class A(metaclass=M): pass
    def f(x):
        return A

generator | unsupported | values computed while the tests look
    def f(x):
        yield x + 1

coroutine | unsupported | a value that is not there yet
    async def f(x):
        return x + 1

lazy-map | unsupported | a lazy iterator | tests LIST
    def f(x):
        return map(int, [x + 1])

function | unsupported | a function as the answer
    def f(x):
        return f

module | unsupported | a module as the answer
    def f(x):
        return __import__('sys')

not-implemented | unsupported | the value that makes == ask the other side
    def f(x):
        return NotImplemented

fraction | unsupported | a number of the library that equals everything
    import fractions
    class B(fractions.Fraction):
        def __eq__(self, other): return True
    def f(x):
        return B(0)

decimal | fail | a number of the library that is another one
    import decimal
    def f(x):
        return decimal.Decimal(x) + decimal.Decimal('1.0001')

not-a-number | fail | a number that has no order
    import decimal
    def f(x):
        return decimal.Decimal('NaN')

deque | fail | a container that is no number
    import collections
    def f(x):
        return collections.deque([x + 1])

patched-type | fail error unsupported | a class of the library that is patched to equal everything
    import fractions
    def f(x):
        fractions.Fraction.__eq__ = lambda self, other: True
        return fractions.Fraction(0)

disguised | fail error unsupported protocol | a class that claims to be the library's
    import fractions
    class Fraction:
        __eq__ = lambda self, other: True
        numerator, denominator = 2, 0
    Fraction.__module__, Fraction.__qualname__ = 'fractions', 'Fraction'
    def f(x):
        fractions.Fraction = Fraction
        return Fraction()

yields-liars | unsupported | an iterator of objects that equal everything | tests PULLED
    def f(x):
        yield A()

self-containing | unsupported | a list inside itself
    def f(x):
        a = []
        a.append(a)
        return a

deep | unsupported | a value nested too deeply
    def f(x):
        a = []
        for _ in range(500): a = [a]
        return a

too-long | unsupported | a text that does not fit
    def f(x):
        return 'a' * (9 << 20)

too-big-int | unsupported | an integer that does not fit
    def f(x):
        return 1 << (40 << 20)

equal-among | unsupported | one that is asked by other values | tests IN
    def f(x):
        return A()

equal-to-any | unsupported | one that has to be right once | tests ANY
    def f(x):
        return A()

# The first limit that is met; today it is refused at once.
endless-generator | unsupported timeout-cpu timeout-wall memory | an iterator without an end | tests PULLED
    def f(x):
        while True: yield 0

# Today it is refused at once; pulled, it never answers.
hanging-generator | unsupported timeout-cpu | an iterator whose items do not come | tests PULLED
    def f(x):
        while True: pass
        yield

# Today it is refused at once; pulled, its exception is the candidate's.
raising-generator | unsupported error | an iterator that ends by an exit | tests PULLED
    def f(x):
        yield 2
        raise SystemExit(0)
""",
    before=f"class A:{_METHODS}",
    named=TESTS,
)

_LYING = tuple(
    attack(
        f"lying-{base}{suffix}",
        "fail",
        f"a {base} that claims to be what is wanted{suffix.replace('-', ' ')}",
        f"class A({base}):{_METHODS}def f(x):\n    return {pattern.format(value)}\n",
        **fields,
    )
    for suffix, pattern, fields in (("", "{}", {}), ("-in-list", "[{}]", {"tests": TESTS["LIST"]}))
    for base, value in (
        ("int", "A(0)"),
        ("float", "A(0)"),
        ("complex", "A(0)"),
        ("str", "A('')"),
        ("bytes", "A(b'')"),
        ("list", "A([0, 0])"),
        ("tuple", "A((0, 0))"),
        ("set", "A({0})"),
        ("frozenset", "A({0})"),
        ("dict", "A({0: 0})"),
    )
)

_OTHERS = sheet(
    "lying",
    r"""
keys | fail | keys of a dict that lie | tests TEXTS
    class A(str):METHODS
    def f(x):
        return {A('a'): 1}

enum | fail | a member of an enum that lies
    import enum
    class A(enum.IntEnum):
        a = 0
        def __eq__(self, other): return True
        __hash__ = int.__hash__
    def f(x):
        return A.a

named-tuple | fail | a named tuple that lies | tests NAMED
    import collections
    class A(collections.namedtuple('B', 'a')):METHODS
    def f(x):
        return A(0)

meta-int | fail | an integer whose class lies as well
    class M(type):
        __mro__ = property(lambda c: (int, object))
        def __eq__(self, other): return True
        def __instancecheck__(self, other): return True
        __subclasscheck__ = __instancecheck__
        __hash__ = type.__hash__
    class A(int, metaclass=M):
        def __eq__(self, other): return True
    def f(x):
        return A(0)
""".replace("METHODS", _METHODS.replace("\n", "\n    ").rstrip()),
    named=TESTS,
)

ATTACKS = (*_OBJECTS, *_LYING, *_OTHERS)
