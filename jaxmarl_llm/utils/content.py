"""SHA-256 of the content of values and files: equal content has equal hashes."""

import dataclasses
import hashlib
import json
import math
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

WHOLE_BYTES = 256 * 2**20  # files up to this size are read whole
BLOCK_BYTES = 2**20  # of larger ones the first, the last and `BLOCKS` between are read
BLOCKS = 64


def of_values(values: Iterable[Any]) -> str:
    """The hash of some values in order, such as the problems of a task.

    Numbers, texts, None, sequences, mappings, arrays and dataclasses count with their content. A dataclass
    field with its default value is left out, so that a new field changes no hash. Any other object counts
    with its type and attributes, never with its address.
    """
    digest = hashlib.sha256()
    for value in values:
        try:
            data = _plain(value)
        except RecursionError:  # an object that holds itself
            data = type(value).__qualname__
        digest.update(json.dumps(data, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def of_file(path) -> str:
    """The hash of a file with its size; of a large one of blocks that are spread over it (`WHOLE_BYTES`).

    OSError if it cannot be read.
    """
    path = pathlib.Path(path)
    size = path.stat().st_size
    digest = hashlib.sha256(f"{size}\n".encode())
    with path.open("rb") as file:
        if size <= WHOLE_BYTES:
            while chunk := file.read(BLOCK_BYTES):
                digest.update(chunk)
            return digest.hexdigest()
        for number in range(BLOCKS + 2):
            file.seek((size - BLOCK_BYTES) * number // (BLOCKS + 1))
            digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest()


def of_files(paths: Iterable[pathlib.Path]) -> str:
    """The hash of some files by their names, in the order of the names; the folder does not count."""
    named = sorted((path.name, of_file(path)) for path in paths)
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def of_text(text: str) -> str:
    """The hash of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _plain(value: Any) -> Any:
    """A value as JSON data that depends only on its content."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {"map": sorted(([_plain(key), _plain(held)] for key, held in value.items()), key=repr)}
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    if isinstance(value, set | frozenset):
        return {"set": sorted((_plain(element) for element in value), key=repr)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    name = type(value).__qualname__
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return {name: _plain(value.tolist())}
    if dataclasses.is_dataclass(value):
        held = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        default = {field.name: _default(field) for field in dataclasses.fields(value)}
        held = {key: each for key, each in held.items() if not _same(each, default[key])}
        return {name: {key: _plain(each) for key, each in held.items()}}
    attributes = getattr(value, "__dict__", {})
    if callable(value) or not attributes:
        return {name: getattr(value, "__qualname__", "")}
    return {name: {key: _plain(each) for key, each in sorted(attributes.items())}}


def _default(field: dataclasses.Field) -> Any:
    factory = field.default_factory
    return field.default if factory is dataclasses.MISSING else factory()


def _same(value: Any, default: Any) -> bool:
    """Whether a field has its default; False where that cannot be asked, as of arrays."""
    return type(value) is type(default) and _plain(value) == _plain(default)
