"""Load functions of the user by the names in a config."""

import functools
import importlib
import pathlib
import sys
import sysconfig
import traceback
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jaxmarl_llm.utils.errors import UserError

RAISED = (
    Exception,
    SystemExit,
)  # by a function of the user's: a script calls sys.exit, and no run is to end by it

# Modules that configs of earlier versions name, where they are now.
MOVED = {"jaxmarl_llm.tasks.letters": "jaxmarl_llm.tasks.toys.letters"}
_OURS = pathlib.Path(__file__).parents[1]
_LIBRARIES = tuple(pathlib.Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib", "platlib"))


class UserCodeError(RuntimeError):
    """A user's function raised an error, which is the cause; the message names the function and its input."""

    def user_frames(self) -> list[str]:
        """Traceback lines of the cause, without frames of this package and of libraries."""
        cause = self.__cause__
        while isinstance(cause, UserCodeError) and cause.__cause__ is not None:
            cause = cause.__cause__
        if cause is None:
            return []
        frames = traceback.extract_tb(cause.__traceback__)
        return traceback.format_list([frame for frame in frames if _is_users(frame.filename)])


class UserCodeRefused(UserCodeError, UserError):
    """`UserCodeError` before anything is loaded: a config's function cannot be imported, made or traced."""


def reason(error: BaseException) -> str:
    """An error as one line: its type, and the first line of its message if it has one."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def listed(given: Any) -> list | None:
    """The values that a user's function returns, in order; None for anything but a list, e.g. a dict."""
    unordered = isinstance(given, str | bytes | Mapping | set | frozenset)
    return list(given) if isinstance(given, Iterable) and not unordered else None


def raised_by_user(error: BaseException) -> bool:
    """Whether an error was raised by code outside this package and libraries."""
    return any(_is_users(frame.filename) for frame in traceback.extract_tb(error.__traceback__))


def _is_users(filename: str) -> bool:
    """Whether a file is outside this package and libraries."""
    if filename.startswith("<"):
        return False
    path = pathlib.Path(filename).absolute()
    return not any(path.is_relative_to(place) for place in (_OURS, *_LIBRARIES))


def current(name: str) -> str:
    """The current name of a function with an old dotted name; other texts are unchanged."""
    for old, new in MOVED.items():
        if name.startswith((f"{old}:", f"{old}.")):
            return new + name[len(old) :]
    return name


def resolve(name: str, what: str) -> Callable:
    """The function at 'package.module:function' or 'package.module.function'; of a class 'module:Class.function'.

    Raises:
      ValueError: if there is none. ``what`` is the function's name in it, such as the config field.
    """
    place = current(name)
    module_name, _, attribute = place.partition(":") if ":" in place else place.rpartition(".")
    if not module_name or not attribute:
        raise UserError(f"{what} {name!r}: expected 'package.module:function' or 'package.module.function'")
    try:
        module = importlib.import_module(module_name)
    except RAISED as error:
        cause = f"{type(error).__name__}: {error}"
        raise UserCodeRefused(f"{what} {name!r}: cannot import {module_name!r} ({cause})") from error
    try:
        function = functools.reduce(
            lambda owner, part: getattr(owner, part, None), attribute.split("."), module
        )
    except RAISED as error:  # of a module's own __getattr__
        raise UserCodeRefused(f"{what} {name!r}: {attribute!r} cannot be read ({reason(error)})") from error
    if function is None:
        defined = sorted(n for n, value in vars(module).items() if callable(value) and not n.startswith("_"))
        raise UserError(f"{what} {name!r}: module {module_name!r} has no {attribute!r}; it has {defined}")
    if not callable(function):
        raise UserError(f"{what} {name!r} is a {type(function).__name__}; expected a function")
    return function


def user_sources(name: str) -> dict[str, str]:
    """Source texts, by module, of the user's own code that a function of a config uses.

    These are the module that holds ``name`` and all user modules that it uses, directly or indirectly,
    without this package and libraries. ``name`` is as in `resolve`.
    """
    place = current(name)
    module_name = place.partition(":")[0] if ":" in place else place.rpartition(".")[0]
    waiting, sources = [importlib.import_module(module_name)], {}
    while waiting:
        module = waiting.pop()
        path = getattr(module, "__file__", None)
        if module.__name__ in sources or not path or not _is_users(path):
            continue
        sources[module.__name__] = pathlib.Path(path).read_text("utf-8", "replace")
        names = {getattr(used, "__module__", None) for used in vars(module).values()}
        waiting += [used for used in vars(module).values() if isinstance(used, types.ModuleType)]
        waiting += [sys.modules[each] for each in names if isinstance(each, str) and each in sys.modules]
    return dict(sorted(sources.items()))
