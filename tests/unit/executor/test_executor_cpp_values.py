"""C++ signatures, and the bytes in which values travel: what is accepted, what is refused and how."""

import random
import struct

import pytest

from jaxmarl_llm.executor.cpp.signature import parse
from jaxmarl_llm.executor.cpp.values import MAX_ITEMS, CppError, pack, unpack


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("int f()", "int f()"),
        ("void f(void);", "void f()"),
        (
            "std::vector<double> f(std::vector<double>& x, int n)",
            "std::vector<double> f(std::vector<double>&, int)",
        ),
        (
            "void relu(std :: vector < double >&x , size_t)",
            "void relu(std::vector<double>&, std::size_t)",
        ),
        (
            "pair<string,vector<vector<bool>>> g(const string &s, string const& t, const int k)",
            "std::pair<std::string, std::vector<std::vector<bool>>> "
            "g(const std::string&, const std::string&, int)",
        ),
        (
            "long long int h(long a, long long b, std::int64_t c)",
            "long long h(long, long long, std::int64_t)",
        ),
        (
            "float q(double, char, uint32_t, uint64_t, int32_t)",
            "float q(double, char, std::uint32_t, std::uint64_t, std::int32_t)",
        ),
    ],
)
def test_signatures_are_understood(text, canonical):
    assert str(parse(text)) == canonical
    assert parse(canonical) == parse(str(parse(canonical)))


@pytest.mark.parametrize(
    "text, named",
    [
        ("int f(int* x)", "'*'"),
        ("unsigned f(int x)", "'unsigned'"),
        ("int f(std::map<int, int> m)", "'map'"),
        ("int f(int x[])", "'['"),
        ("int f(int x = 3)", "'='"),
        ("int f(int x) const", "'const'"),
        ("int f(int, ...)", "'.'"),
        ("int& f(int x)", "returns a reference"),
        ("const int& f(int x)", "returns a reference"),
        ("void f(int& x)", "a mutable reference to int"),
        ("void f(std::string& x)", "a mutable reference to std::string"),
        ("void f(std::vector<int>&& x)", "'&'"),
        ("auto f(int x)", "'auto'"),
        ("int f(void x)", "'x'"),
        ("int f(std::vector<void> x)", "'void'"),
        ("int f(std::pair<int> x)", "'>'"),
        ("int a::f(int x)", "'::'"),
        ("int f(int x", "its end"),
        ("int f(int x,)", "')'"),
        ("int (int x)", "'('"),
        ("", "''"),
        ("int f(" + "std::vector<" * 7 + "int" + ">" * 7 + " x)", "nested deeper"),
        ("int f(" + ", ".join(["int"] * 33) + ")", "more than 32 parameters"),
        ("int f(int x) { system(1); }", "'{'"),
        ('int f(int x)\n#include "/etc/passwd"', "'#'"),
        ("int f(int \u00e9)", "'\u00e9'"),
        ("int f(" + " " * 2000 + ")", "at most 2000 characters"),
        (None, "None"),
    ],
)
def test_other_signatures_are_refused_by_name(text, named):
    with pytest.raises(ValueError, match="C\\+\\+ signature") as refused:
        parse(text)
    assert named in str(refused.value)


def test_layout_is_that_of_the_documentation():
    signature = parse(
        "void f(bool a, int b, double c, const std::string& d, std::vector<std::pair<char, float>>& e)"
    )
    expected = (
        b"\1"
        + struct.pack("=i", -2)
        + struct.pack("=d", 0.1)
        + struct.pack("=Q", 3)
        + "h\u00e9".encode()
        + struct.pack("=Q", 2)
        + b"x"
        + struct.pack("=f", 0.5)
        + b"y"
        + struct.pack("=f", float("inf"))
    )
    arguments = (True, -2, 0.1, "h\u00e9", [("x", 0.5), ["y", float("inf")]])
    assert pack(signature, arguments) == expected
    changed = expected[-18:]
    assert unpack(signature, b"\0" + changed) == (None, {4: [("x", 0.5), ("y", float("inf"))]})


@pytest.mark.parametrize(
    "kind, value, error",
    [
        ("int", True, TypeError),
        ("int", 1.0, TypeError),
        ("int", 1 << 31, OverflowError),
        ("int", -(1 << 31) - 1, OverflowError),
        ("size_t", -1, OverflowError),
        ("size_t", 1 << 64, OverflowError),
        ("long long", 1 << 63, OverflowError),
        ("bool", 1, TypeError),
        ("double", "1", TypeError),
        ("double", True, TypeError),
        ("double", (1 << 53) + 1, OverflowError),
        ("float", 1e39, OverflowError),
        ("char", "ab", ValueError),
        ("char", "\u00e9", ValueError),
        ("char", b"a", TypeError),
        ("std::string", b"a", TypeError),
        ("std::string", "\ud800", ValueError),
        ("std::vector<int>", "ab", TypeError),
        ("std::vector<int>", [1, "2"], TypeError),
        ("std::vector<int>&", (1, 2), TypeError),
        ("std::pair<int, int>", (1, 2, 3), TypeError),
        ("std::pair<int, int>", None, TypeError),
        ("std::vector<std::vector<int>>", [[1], 2], TypeError),
    ],
)
def test_arguments_are_checked(kind, value, error):
    with pytest.raises(error, match="argument 2 \\(x\\) of f: ") as refused:
        pack(parse(f"int f(int n, {kind} x)"), (1, value))
    assert type(refused.value) is error


def test_argument_count_is_checked():
    with pytest.raises(TypeError, match="int f\\(int\\) takes 1 arguments, 2 were given"):
        pack(parse("int f(int)"), (1, 2))


@pytest.mark.parametrize(
    "result, reply",
    [
        ("int", b""),
        ("int", b"\0"),
        ("int", b"\0\1\0\0"),
        ("int", b"\0\1\0\0\0\0"),
        ("int", b"\7\1\0\0\0"),
        ("bool", b"\0\2"),
        ("char", b"\0\xe9"),
        ("std::string", b"\0" + struct.pack("=Q", 1) + b"\xff"),
        ("std::string", b"\0" + struct.pack("=Q", 2) + b"a"),
        ("std::string", b"\0" + struct.pack("=Q", (1 << 64) - 1)),
        ("std::vector<int>", b"\0" + struct.pack("=Q", 1 << 40)),
        ("std::vector<bool>", b"\0" + struct.pack("=Q", MAX_ITEMS) + bytes(MAX_ITEMS)),
        ("std::vector<std::vector<int>>", b"\0" + struct.pack("=QQ", 1, 1 << 40)),
        ("int", b"\1" + struct.pack("=Q", 5) + b"text"),
    ],
)
def test_malformed_replies_are_refused(result, reply):
    with pytest.raises(ValueError):
        unpack(parse(f"{result} f()"), reply)


@pytest.mark.parametrize(
    "code, kind", [(1, MemoryError), (2, IndexError), (3, OverflowError), (4, ValueError), (5, CppError)]
)
def test_exceptions_in_replies(code, kind):
    with pytest.raises(kind, match="^why\ufffd$"):
        unpack(parse("int f()"), bytes([code]) + struct.pack("=Q", 4) + b"why\xff")


def test_random_replies_give_a_value_or_an_error_and_nothing_else():
    """Random bytes, and a good reply with random changes."""
    rng = random.Random(0)
    signature = parse(
        "std::pair<std::string, std::vector<std::pair<bool, char>>> f(std::vector<std::vector<double>>& x)"
    )
    good = (
        b"\0" + struct.pack("=Q", 2) + b"ab" + struct.pack("=Q", 2) + b"\1x\0y"
        + struct.pack("=QQ", 1, 1) + struct.pack("=d", 1.5)
    )  # fmt: skip
    assert unpack(signature, good) == (("ab", [(True, "x"), (False, "y")]), {0: [[1.5]]})
    outcomes = set()
    for _ in range(10_000):
        reply = bytearray(good)
        if rng.random() < 0.3:
            reply = bytearray(rng.randbytes(rng.randrange(60)))
        for _ in range(rng.randrange(4)):
            if reply:
                reply[rng.randrange(len(reply))] = rng.choice((0, 1, 2, 120, 255))
        if rng.random() < 0.2:
            del reply[rng.randrange(len(reply) + 1) :]
        try:
            result, changed = unpack(signature, bytes(reply))
            assert type(result) is tuple and type(changed[0]) is list
            outcomes.add("value")
        except (MemoryError, IndexError, OverflowError, ValueError, CppError) as error:
            outcomes.add(type(error))
    assert {"value", ValueError} <= outcomes
