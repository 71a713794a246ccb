"""Parameters of a tool from a JSON schema: their types, and their descriptions for agents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxmarl_llm.tasks.tools.toolbox import TYPES

_KINDS = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
# Additional types in BFCL's function documentation.
_KINDS |= {"float": float, "tuple": list, "dict": dict}
_WORDS = {"null": "nothing"} | {name: TYPES[kind] for name, kind in _KINDS.items() if kind in TYPES}
_DEEPEST = 3  # levels of a schema that agents read
_LONGEST = 300  # characters of a description
_MOST = 20  # values of an enumeration, or fields of an object, that agents read
_LINKS = 8  # references and combinations inside each other that are followed
_ANY = "any other name: value"


class Parameters(NamedTuple):
    """A schema's information on arguments by name; ``details`` is what agents read."""

    types: dict[str, type]
    optional: tuple[str, ...]
    details: dict[str, str]


class _Object(NamedTuple):
    """An object's schema with all that it refers to and combines; ``rest``: what agents read of others."""

    properties: dict[str, Any]
    required: frozenset[str]
    rest: tuple[str, ...]


def parameters(schema: Mapping[str, Any]) -> Parameters:
    """The parameters that a schema describes: its ``properties`` and those of what it refers to or combines.

    A type is one of `toolbox.KINDS`: ``object``, any value, if several types or none are given.
    """
    whole = _object(schema, schema, _LINKS)
    named = dict.fromkeys(sorted(whole.required - {*whole.properties}), True)  # required, and not described
    resolved = {name: _resolved(own, schema) for name, own in (whole.properties | named).items()}
    return Parameters(
        {name: _type(own) for name, own in resolved.items()},
        tuple(name for name in resolved if name not in whole.required),
        {name: _detail(own, schema) for name, own in resolved.items()},
    )


def rest(schema: Mapping[str, Any]) -> str:
    """What agents read about parameters that the schema allows besides `parameters`; '' for none.

    A schema with ``properties`` that does not mention other names allows none, as for functions.
    """
    whole = _object(schema, schema, _LINKS)
    silent = not whole.properties and not whole.required and _is_silent(schema)
    return ", ".join(whole.rest) or (_ANY if silent else "")


def _is_silent(schema: Mapping) -> bool:
    """Whether a schema neither describes nor excludes any name."""
    return "properties" not in schema and schema.get("additionalProperties") is not False


def summary(text: str | None) -> str:
    """The first paragraph of a description, on one line and cut."""
    line = " ".join((text or "").strip().split("\n\n")[0].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _type(schema: Any) -> type:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return _KINDS.get(kind, object) if isinstance(kind, str) else object


def _object(schema: Any, root: Mapping, links: int) -> _Object:
    """An object's schema as one; of alternatives (``anyOf``), what all require is required."""
    if not isinstance(schema, Mapping) or links == 0:
        return _Object({}, frozenset(), (_ANY,))
    own, needed = schema.get("properties"), schema.get("required")
    properties: dict[str, Any] = dict(own) if isinstance(own, Mapping) else {}
    required = frozenset(needed if isinstance(needed, list) else ())
    others = [*_listed(schema, "allOf"), *([_resolved(schema, root)] if "$ref" in schema else [])]
    # A reference without a target resolves to itself.
    every = [_object(one, root, 0 if one is schema else links - 1) for one in others]
    either = [[_object(one, root, links - 1) for one in _listed(schema, word)] for word in ("anyOf", "oneOf")]
    for part in every:
        properties = _joined("allOf", properties, part.properties)
        required |= part.required
    for parts in filter(None, either):
        for part in parts:
            properties = _joined("anyOf", properties, part.properties)
        required |= frozenset.intersection(*(part.required for part in parts))
    further = [text for part in (*every, *either[0], *either[1]) for text in part.rest]
    return _Object(properties, required, tuple(dict.fromkeys([*_open(schema, root), *further])))


def _listed(schema: Mapping, word: str) -> list:
    parts = schema.get(word)
    return list(parts) if isinstance(parts, list) else []


def _joined(word: str, first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Properties of two schemas; properties that both describe differently are combined by ``word``."""
    both = {n: {word: [first[n], own]} for n, own in second.items() if n in first and first[n] != own}
    return first | second | both


def _open(schema: Mapping, root: Mapping) -> Iterator[str]:
    """What agents read about names that a schema allows besides those that it lists."""
    patterns = schema.get("patternProperties")
    for pattern, own in (patterns if isinstance(patterns, Mapping) else {}).items():
        yield f"names that match {pattern}: {_words(own, root, _DEEPEST)}"
    more = schema.get("additionalProperties", schema.get("unevaluatedProperties", False))
    if more is not False:
        yield f"any other name: {_words(more, root, _DEEPEST)}"


def _resolved(schema: Any, root: Mapping) -> Any:
    """The target of a schema's reference within the whole schema; itself if there is none."""
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
