"""The installed packages that programs and tests may import: only those that the user names."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import random
import sys
from collections.abc import Sequence

from .errors import InputError

_FAILED = "the sandbox cannot import "
installed: list[list[str]] = []  # in this process, see `install`


def find(names: Sequence[str]) -> list[list[str]]:
    """[name, folder that holds it, paths that belong to it, ..] of each package, in the form for `install`.

    InputError for a name that is not installed in this Python, or that belongs to the standard library.
    """
    packages = []
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or name in sys.stdlib_module_names:
            raise InputError(
                f"modules names {name!r}; allowed: top-level packages beside the standard library"
            )
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec else []
        path = places[0] if places else spec.origin if spec else None
        if path is None:
            raise InputError(f"modules names {name!r}, which is not installed: pip install {name}")
        folder = os.path.dirname(path)
        beside = os.path.join(folder, f"{name}.libs")  # shared libraries that come with a wheel
        packages.append([name, folder, path, *([beside] if os.path.isdir(beside) else [])])
    return packages


class _Finder:
    """Finds the named packages in their folders, and nothing else in these folders."""

    def __init__(self, folders: dict[str, str]):
        self._folders = folders

    def find_spec(self, name, path=None, target=None):
        """See `sys.meta_path`."""
        if path is not None or name not in self._folders:
            return None
        return importlib.machinery.PathFinder.find_spec(name, [self._folders[name]], target)


def install(packages: Sequence[list[str]]) -> None:
    """Make packages importable in this process."""
    installed.extend(packages)
    sys.meta_path.append(_Finder({name: folder for name, folder, *_ in packages}))


def load() -> list[str]:
    """Import the installed packages, so that forks have them; return paths. ImportError names the package."""
    for name, *_ in installed:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ImportError(f"{_FAILED}{name}: {error}; allow what it needs, too") from None
    seed()
    return [path for _, _, *paths in installed for path in paths]


def seed() -> None:
    """Seed the random generators of the standard library and, if NumPy is allowed, of NumPy."""
    random.seed(0)
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random").seed(0)


def problem(text: str) -> str:
    """The error message of `load` in the output of a process that has ended; '' if there is none."""
    lines = [line.partition(_FAILED) for line in text.splitlines() if line.startswith("ImportError: ")]
    return next((marker + rest for _, marker, rest in lines if marker), "")
