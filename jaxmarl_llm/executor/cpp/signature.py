"""The signature of a C++ function that tests may call: which types pass between Python and C++, and how."""

from __future__ import annotations

import dataclasses
import re

from ..errors import InputError

MAX_LENGTH = 2000  # characters of a signature's text
MAX_DEPTH = 6  # of types within types
MAX_PARAMETERS = 32

# {name in a signature: (its C++ spelling, code of `struct`, in standard sizes)}
SCALARS = {
    "bool": ("bool", "?"),
    "char": ("char", "c"),
    "int": ("int", "i"),
    "long": ("long", "q"),
    "long long": ("long long", "q"),
    "int32_t": ("std::int32_t", "i"),
    "int64_t": ("std::int64_t", "q"),
    "uint32_t": ("std::uint32_t", "I"),
    "uint64_t": ("std::uint64_t", "Q"),
    "size_t": ("std::size_t", "Q"),
    "float": ("float", "f"),
    "double": ("double", "d"),
}
_TEMPLATES = {"vector": 1, "pair": 2}  # how many types each takes
SUPPORTED = f"{', '.join(SCALARS)}, std::string, std::vector<T>, std::pair<A, B>"
_TOKEN = re.compile(r"\s*(?:([A-Za-z_]\w*)|(::|\S))")


@dataclasses.dataclass(frozen=True)
class Type:
    """A value's type. name: a key of SCALARS, "string", "vector" or "pair"; inner: the types it holds."""

    name: str
    inner: tuple[Type, ...] = ()

    @property
    def cpp(self) -> str:
        """As C++ text, with namespaces."""
        if self.name in SCALARS:
            return SCALARS[self.name][0]
        return f"std::{self.name}" + (f"<{', '.join(t.cpp for t in self.inner)}>" if self.inner else "")


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter. passing: "value", "const reference", or "reference", which the function may change."""

    type: Type
    passing: str
    name: str

    @property
    def cpp(self) -> str:
        """As C++ text, without the name."""
        prefix, suffix = {"value": ("", ""), "const reference": ("const ", "&"), "reference": ("", "&")}[
            self.passing
        ]
        return f"{prefix}{self.type.cpp}{suffix}"


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function: its name, the type it returns (None for void) and its parameters."""

    name: str
    result: Type | None
    parameters: tuple[Parameter, ...]

    @property
    def cpp(self) -> str:
        """The function's declaration with the name left out: `int (std::string, double)`."""
        returns = self.result.cpp if self.result else "void"
        return f"{returns} ({', '.join(p.cpp for p in self.parameters)})"

    def __str__(self) -> str:
        returns, rest = self.cpp.split(" (", 1)
        return f"{returns} {self.name}({rest}"


def parse(text: str) -> Signature:
    """Read a declaration such as `void relu(std::vector<double>& x, int n)`; `std::` may be left out.

    ValueError names what is not understood. Mutable references are to vectors only: Python has nothing else
    of these types that a call could change.
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise InputError(f"C++ signature is {text!r:.80}; allowed: text of at most {MAX_LENGTH} characters")
    return _Parser(text).signature()


class _Parser:
    def __init__(self, text):
        self.text, self.position = text, 0
        self.tokens = ["".join(match.groups("")) for match in _TOKEN.finditer(text)]

    def signature(self) -> Signature:
        result = None
        if not self.accept("void"):
            result, passing = self.type_and_passing()
            if passing != "value":
                self.fail("a function that returns a reference (allowed: a value)")
        name = self.identifier("the function's name")
        self.expect("(")
        parameters = ()
        if self.peek() == "void":
            self.next()
            self.expect(")")
        elif not self.accept(")"):
            parameters = self.parameters()
        self.accept(";")
        if self.peek():
            self.fail(f"{self.peek()!r} after the parameters")
        return Signature(name, result, parameters)

    def parameters(self):
        parameters = []
        while True:
            kind, passing = self.type_and_passing()
            if passing == "reference" and kind.name != "vector":
                self.fail(f"a mutable reference to {kind.cpp} (allowed: to std::vector)")
            named = self.peek() not in (",", ")")
            parameters.append(
                Parameter(kind, passing, self.identifier("a parameter's name") if named else "")
            )
            if len(parameters) > MAX_PARAMETERS:
                self.fail(f"more than {MAX_PARAMETERS} parameters")
            if self.accept(")"):
                return tuple(parameters)
            self.expect(",")

    def type_and_passing(self):
        """A type with its const and &, in either order of const and type."""
        constant = self.accept("const")
        kind = self.type(1)
        constant = self.accept("const") or constant
        if not self.accept("&"):
            return kind, "value"
        return kind, "const reference" if constant else "reference"

    def type(self, depth) -> Type:
        if depth > MAX_DEPTH:
            self.fail(f"types nested deeper than {MAX_DEPTH}")
        if self.accept("std"):
            self.expect("::")
        name = self.next()
        if name == "long" and self.accept("long"):
            name = "long long"
        if name in ("long", "long long"):
            self.accept("int")
        if name in SCALARS or name == "string":
            return Type(name)
        if name not in _TEMPLATES:
            self.fail(f"type {name!r} (allowed: {SUPPORTED})")
        self.expect("<")
        inner = [self.type(depth + 1)]
        while len(inner) < _TEMPLATES[name]:
            self.expect(",")
            inner.append(self.type(depth + 1))
        self.expect(">")
        return Type(name, tuple(inner))

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.position += 1
        return token

    def accept(self, token) -> bool:
        accepted = self.peek() == token
        self.position += accepted
        return accepted

    def expect(self, token):
        if not self.accept(token):
            self.fail(f"{self.peek() or 'its end'!r} where {token!r} is expected")

    def identifier(self, what) -> str:
        token = self.next()
        if not (token.isascii() and token.isidentifier()):
            self.fail(f"{token or 'its end'!r} where {what} is expected")
        return token

    def fail(self, what):
        raise InputError(f"C++ signature {self.text!r:.200}: not understood: {what}")
