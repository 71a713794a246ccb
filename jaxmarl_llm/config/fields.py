"""Declarations of config fields: default, type, choices or range, when a field is read, and its description.

Each section of a config is a module beside this one. It declares its fields once, as a tuple ``FIELDS``, and
may have ``problems(config, base)``: a sentence per field that contradicts others. `base` combines them.
"""

import copy
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxmarl_llm.config.options import ConfigDict, field, is_dotted

ENCODERS = ("policy", "ngrams")  # of texts, beside functions of the user's own


class Read(NamedTuple):
    """When a field is read; otherwise it must have its default, and ``otherwise`` says why.

    Amounts such as critic.lr may be set in a config that many systems share, so they need no rule. Fields
    that choose what is done (a mode, a source) need one: a user who sets them expects an effect.
    """

    when: Callable[[ConfigDict], bool]
    otherwise: str


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a config.

    Attributes:
      path: dotted name.
      default: it decides the type; an int may be given for a float, a list for a tuple.
      about: its description, for the documentation.
      choices: allowed values, each with its meaning, '' if the name is clear; empty: any value.
      dotted: whether the dotted name of a user's function is allowed too.
      low, high: allowed range of a number; None: no limit.
      read: when it is read; None: always, or it is an amount.
    """

    path: str
    default: Any
    about: str
    choices: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dotted: bool = False
    low: float | None = None
    high: float | None = None
    read: Read | None = None


def value(path: str, default, about: str, read: Read | None = None) -> Field:
    """Declare a flag, a text, or a tuple."""
    return Field(path, default, about, read=read)


def number(path: str, default, about: str, low=None, high=None, read: Read | None = None) -> Field:
    """Declare a number in a range."""
    return Field(path, default, about, low=low, high=high, read=read)


def choice(
    path: str,
    default: str,
    about: str,
    choices: Mapping[str, str] | Sequence[str],
    dotted: bool = False,
    read: Read | None = None,
) -> Field:
    """Declare a text that is one of several choices."""
    meanings = dict(choices) if isinstance(choices, Mapping) else dict.fromkeys(choices, "")
    return Field(path, default, about, meanings, dotted, read=read)


def build(fields: Iterable[Field]) -> ConfigDict:
    """A config with the defaults of the given fields."""
    config = ConfigDict()
    for each in fields:
        *sections, last = each.path.split(".")
        section = config
        for name in sections:
            if name not in section:
                section[name] = ConfigDict()
            section = section[name]
        section[last] = copy.deepcopy(each.default)
    return config


def wrong_types(config: Mapping, base: Mapping, prefix: str = "") -> list[str]:
    """Sentences about fields of ``base`` that are missing in the config or have another type there."""
    bad = []
    for name, default in base.items():
        path, kind = f"{prefix}{name}", type(default)
        kinds = {float: (float, int), tuple: (tuple, list), ConfigDict: (ConfigDict, dict)}.get(kind, (kind,))
        if name not in config:
            bad.append(f"{path} is missing")
        elif type(config[name]) not in kinds:
            bad.append(f"{path}={config[name]!r}: must be of type {kind.__name__}")
        elif kind is ConfigDict:
            bad += wrong_types(config[name], default, f"{path}.")
    return bad


def outside(given: Field, config: ConfigDict, low: float | None = None) -> list[str]:
    """A sentence about a value that is not among the field's choices or not in its range.

    ``low``: replaces the field's smallest value.
    """
    held = field(config, given.path)
    if given.choices and held not in given.choices and not (given.dotted and is_dotted(held)):
        return [f"{given.path}={held!r}: allowed are {words(given.choices)}"]
    low = given.low if low is None else low
    if low is not None and not within(held, low, given.high):
        return [f"{given.path}={held!r}: allowed is {low} to {end_of(given.high)}"]
    return []


def wrong_encoder(config: ConfigDict, path: str) -> list[str]:
    """A sentence about an encoder of texts that is neither one of `ENCODERS` nor a dotted name."""
    held = field(config, path)
    if held in ENCODERS or is_dotted(held):
        return []
    return [f"{path}={held!r}: allowed are {', '.join(ENCODERS)}, or the dotted name of a function"]


def within(number: float, low: float, high: float | None) -> bool:
    """Whether a number is finite and in a range."""
    return math.isfinite(number) and number >= low and (high is None or number <= high)


def end_of(high: float | None) -> str:
    """The end of a range, as messages show it."""
    return "any larger number" if high is None else str(high)


def unread(given: Field, config: ConfigDict) -> list[str]:
    """A sentence about a field that is set but not read."""
    held = as_tuple(field(config, given.path))
    if given.read is None or held == given.default or given.read.when(config):
        return []
    return [f"{given.path}={held!r}: {given.read.otherwise}, allowed is {given.default!r}"]


def as_tuple(held):
    """A list (a tuple in a saved config) as a tuple; other values unchanged."""
    return tuple(held) if isinstance(held, list) else held


def words(choices: Iterable[str]) -> str:
    """Choices as messages show them: ``'', float32, bfloat16``."""
    return ", ".join(choice or "''" for choice in choices)
