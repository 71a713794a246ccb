"""Config files and their options: the text after the colon, dotted names of fields."""

import difflib
from collections.abc import Iterable, Iterator, Mapping

from ml_collections import config_dict

from jaxmarl_llm.config.synonyms import SEVERAL, described, of_other_libraries
from jaxmarl_llm.utils.errors import UserError

ConfigDict = config_dict.ConfigDict
TAKEN = "as sections of a config have an attribute of that name"


def field(config: Mapping, path: str):
    """The value at a dotted path."""
    for name in path.split("."):
        config = config[name]
    return config


def is_taken(name: str) -> bool:
    """Whether no section can have a field of this name, because `ConfigDict` has such an attribute."""
    return hasattr(ConfigDict(), name)


def leaves(config: Mapping, prefix: str = "") -> Iterator[str]:
    """Dotted names of all fields; an empty section counts as a field that holds a dict."""
    for name, value in config.items():
        if isinstance(value, ConfigDict) and len(value):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def no_such_field(path: str, known: Iterable[str], about: Mapping[str, str] | None = None) -> str:
    """A sentence about a dotted name that no field has, with the fields that may be meant.

    Fields with the same last name come first, then fields with this name in other libraries (`synonyms`),
    fields with a similar spelling of the whole or last name, and fields whose description has its words.

    known: dotted names of all fields. about: the description of each.
    """
    known, last = list(known), path.rpartition(".")[2]
    lasts: dict[str, list[str]] = {}
    for name in known:
        lasts.setdefault(name.rpartition(".")[2], []).append(name)
    same = lasts.get(last, [])
    meant = same if same and last not in SEVERAL else of_other_libraries(path, known)
    meant = meant or difflib.get_close_matches(path, known, 1, 0.8)
    cutoff = 0.7 if len(last) > 5 else 0.8  # rate is not gate
    meant = meant or [
        name for like in difflib.get_close_matches(last, lasts, 1, cutoff) for name in lasts[like]
    ]
    meant = meant or described(path, about or {}) or difflib.get_close_matches(path, known, 1, 0.75)
    return f"there is no config field {path!r}" + (f"; did you mean {' or '.join(meant)}?" if meant else "")


def parse_arg(arg: str | None, **defaults):
    """Typed options from ``--config=file.py:name=value,flag``.

    Args:
      arg: text after the colon; None or empty gives the defaults.
      **defaults: every known option; its type converts the text (a bool may be given as a bare name).

    Returns:
      A ConfigDict of all options.

    Raises:
      ValueError: for an unknown option, naming the known ones, or a value of the wrong type.
    """
    options = ConfigDict(defaults)
    for piece in filter(None, (arg or "").split(",")):
        name, _, text = piece.partition("=")
        if name not in defaults:
            known = f"known are: {', '.join(defaults)}" if defaults else "this file has no options"
            raise UserError(f"unknown config option {name!r}; {known}")
        kind = type(defaults[name])
        if kind is bool:
            if text.lower() not in ("", "true", "false", "1", "0"):
                raise UserError(f"config option {name}={text!r} must be true or false")
            options[name] = text.lower() in ("", "true", "1")
            continue
        try:
            options[name] = kind(text)
        except ValueError:
            raise UserError(f"config option {name}={text!r} must be of type {kind.__name__}") from None
    return options


def is_dotted(name: str) -> bool:
    """Whether a text is 'module.function' or 'module:function': the name of a user's function."""
    return any(mark in name for mark in ".:")
