"""Fields of a parsed JSON file such as ``config.json``, each read by its type and range.

Every function takes the file's dict and a field's name. A value of another type, ``null`` where that means
nothing, or a value out of range is a `UserError` that names the field, the value and what is allowed; the
caller puts the file's name in front.
"""

import math
from collections.abc import Mapping
from typing import Any

from jaxmarl_llm.utils.errors import UserError

MOST_LAYERS = 10_000  # far above any model: a mistyped number must not make millions of names


def count(raw: Mapping, key: str, low: int = 1, high: int | None = None) -> int:
    """A whole number of at least ``low``, and at most ``high`` if that is given."""
    value = raw.get(key)
    if type(value) is not int or value < low or (high is not None and value > high):
        limit = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise wrong(key, value, f"an integer {limit}")
    return value


def number(raw: Mapping, key: str, above: float = 0.0, low: float | None = None) -> float:
    """A finite number above ``above``, or of at least ``low`` if that is given."""
    value = raw.get(key)
    fits = type(value) in (int, float) and math.isfinite(value)
    if not fits or (value <= above if low is None else value < low):
        raise wrong(
            key, value, f"a number above {above:g}" if low is None else f"a number of at least {low:g}"
        )
    return float(value)


def flag(raw: Mapping, key: str, default: bool = False) -> bool:
    """true or false; ``default`` if the field is absent."""
    value = raw.get(key, default)
    if type(value) is not bool:
        raise wrong(key, value, "true or false")
    return value


def table(raw: Mapping, key: str) -> dict:
    """A JSON object; an empty one for ``null`` and where the field is absent."""
    value = raw.get(key)
    if value is not None and not isinstance(value, dict):
        raise wrong(key, value, "null or a JSON object")
    return value or {}


def texts(raw: Mapping, key: str) -> list[str]:
    """A list of texts; an empty one for ``null`` and where the field is absent."""
    value = raw.get(key)
    if value is not None and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        raise wrong(key, value, "null or a list of texts")
    return value or []


def ids(raw: Mapping, key: str) -> list[int]:
    """A token id or a list of them, as a list; an empty one for ``null`` and where the field is absent."""
    value = raw.get(key)
    listed = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(each) is not int for each in listed):
        raise UserError(f"{key} is {value!r}, expected an id or a list of ids")
    return listed


def wrong(key: str, value: Any, allowed: str) -> UserError:
    """The error about a field's value."""
    shown = repr(value)
    return UserError(f"{key} is {shown if len(shown) < 80 else shown[:77] + '...'}; allowed: {allowed}")
