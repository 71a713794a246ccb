"""Parameters of a tool from a JSON schema: their types, and what agents read of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxmarl_llm.tasks.tools.toolbox import TYPES

_KINDS = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
# What the function documentation of BFCL has besides.
_KINDS |= {"float": float, "tuple": list, "dict": dict}
_WORDS = {"null": "nothing"} | {name: TYPES[kind] for name, kind in _KINDS.items() if kind in TYPES}
_DEEPEST = 3  # levels of a schema that agents read
_LONGEST = 300  # characters of a description
_MOST = 20  # values of an enumeration, or fields of an object, that agents read


class Parameters(NamedTuple):
    """What a schema says of the arguments of a call, by name; ``details`` is what agents read."""

    types: dict[str, type]
    optional: tuple[str, ...]
    details: dict[str, str]


def parameters(schema: Mapping[str, Any]) -> Parameters:
    """The parameters that the ``properties`` of a schema describe.

    A type is one of `toolbox.KINDS`: ``object``, any value, where several are allowed or none is given.
    """
    given = schema.get("properties")
    properties = given if isinstance(given, Mapping) else {}
    required = schema.get("required") or ()
    resolved = {name: _resolved(own, schema) for name, own in properties.items()}
    return Parameters(
        {name: _type(own) for name, own in resolved.items()},
        tuple(name for name in properties if name not in required),
        {name: _detail(own, schema) for name, own in resolved.items()},
    )


def summary(text: str | None) -> str:
    """The first paragraph of a description, on one line and cut."""
    line = " ".join((text or "").strip().split("\n\n")[0].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _type(schema: Any) -> type:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return _KINDS.get(kind, object) if isinstance(kind, str) else object


def _resolved(schema: Any, root: Mapping) -> Any:
    """What a schema refers to inside of the whole one; itself if it refers to nothing there."""
    reference = schema.get("$ref") if isinstance(schema, Mapping) else None
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    at: Any = root
    for part in reference[2:].split("/"):
        at = at.get(part) if isinstance(at, Mapping) else None
    return schema if at is None else at


def _detail(schema: Any, root: Mapping) -> str:
    """The form of a parameter, and what its description says."""
    about = summary(schema.get("description")) if isinstance(schema, Mapping) else ""
    words = _words(schema, root, _DEEPEST)
    return f"{words} ({about.rstrip('.')})" if about else words


def _words(schema: Any, root: Mapping, depth: int) -> str:
    """A form in words, such as ``[number, ..]`` or ``{x: number, y: number}``."""
    schema = _resolved(schema, root)
    if not isinstance(schema, Mapping) or depth == 0:
        return "value"
    if "const" in schema or isinstance(schema.get("enum"), list):
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        return " or ".join(json.dumps(one, ensure_ascii=False) for one in values[:_MOST])
    kind = schema.get("type")
    if isinstance(kind, str) and _KINDS.get(kind) is list:
        return f"[{_words(schema.get('items'), root, depth - 1)}, ..]"
    if isinstance(kind, str) and _KINDS.get(kind) is dict:
        return _fields(schema, root, depth)
    choices = dict.fromkeys(_choices(schema, root, depth))
    return " or ".join(choices) or "value"


def _fields(schema: Mapping, root: Mapping, depth: int) -> str:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return "JSON object"
    shown = [f"{name}: {_words(own, root, depth - 1)}" for name, own in list(properties.items())[:_MOST]]
    return f"{{{', '.join(shown)}}}"


def _choices(schema: Mapping, root: Mapping, depth: int) -> Iterator[str]:
    """The words of each of several types."""
    kind = schema.get("type")
    for name in kind if isinstance(kind, list) else [kind]:
        if isinstance(name, str):
            yield _WORDS.get(name) or {"array": "list", "object": "JSON object"}.get(name, "value")
    for word in ("anyOf", "oneOf"):
        for own in schema.get(word) or ():
            yield _words(own, root, depth - 1)
