"""Rules as assertions that hold under ``python -O`` too, and those of chat messages."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

ROLES = ("system", "user", "assistant")


def require(holds: Any, rule: str, value: Any = "") -> None:
    """Raise AssertionError with the rule and the value, at most 300 characters of it, unless it holds."""
    if not holds:
        text = value if isinstance(value, str) else repr(value)
        raise AssertionError(f"{rule}: {text[:300]}")


def call(rule: str, function: Callable, *args: Any, **options: Any) -> Any:
    """The result of a function that must not raise; AssertionError with the rule and the error if it does."""
    try:
        return function(*args, **options)
    except Exception as error:
        raise AssertionError(f"{rule}: {type(error).__name__}: {error}") from error


def require_messages(messages: Any, where: str) -> None:
    """AssertionError unless these are chat messages, {role, content}, that end with a question."""
    rule = f"{where}: chat messages are one or more {{role, content}}"
    require(isinstance(messages, Sequence) and not isinstance(messages, str) and messages, rule, messages)
    for message in messages:
        require(isinstance(message, dict) and set(message) == {"role", "content"}, rule, message)
        require(message["role"] in ROLES, f"{where}: a role is one of {ROLES}", message["role"])
        require(isinstance(message["content"], str), f"{where}: a content is a text", message["content"])
    require(messages[-1]["role"] == "user", f"{where}: the last message is the user's", messages[-1])


def text_of(messages: Sequence[dict[str, str]]) -> str:
    """All that an agent reads, as one text."""
    return "\n".join(message["content"] for message in messages)


def require_same_arrays(actual: Any, expected: Any, rule: str, rtol: float = 0.0, atol: float = 0.0) -> None:
    """AssertionError unless two trees hold equal arrays, up to rounding; NaN equals NaN."""
    same_form = jax.tree.structure(actual) == jax.tree.structure(expected)
    require(same_form, rule, f"{jax.tree.structure(actual)}, not {jax.tree.structure(expected)}")
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        close = x.shape == y.shape and np.allclose(x, y, rtol=rtol, atol=atol, equal_nan=True)
        if not close:
            raise AssertionError(f"{rule}: {_first_difference(x, y, rtol, atol)}")


def _first_difference(x: np.ndarray, y: np.ndarray, rtol: float, atol: float) -> str:
    if x.shape != y.shape:
        return f"shapes {x.shape} and {y.shape}"
    place = tuple(np.argwhere(~np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=True))[0].tolist())
    return f"{x[place]} in place of {y[place]}, at {place}"
