"""Functions of the user's own, which a config names."""

import importlib
from collections.abc import Callable


def resolve(name: str, what: str) -> Callable:
    """The function at 'package.module:function' or 'package.module.function'.

    Raises:
      ValueError: if there is none; it calls the function ``what``, such as the config field that names it.
    """
    module_name, _, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    if not module_name or not attribute:
        raise ValueError(f"{what} {name!r}: expected 'package.module:function' or 'package.module.function'")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{what} {name!r}: cannot import {module_name!r} ({reason})") from error
    function = getattr(module, attribute, None)
    if function is None:
        defined = sorted(n for n, value in vars(module).items() if callable(value) and not n.startswith("_"))
        raise ValueError(f"{what} {name!r}: module {module_name!r} has no {attribute!r}; it has {defined}")
    if not callable(function):
        raise ValueError(f"{what} {name!r} is a {type(function).__name__}; expected a function")
    return function
