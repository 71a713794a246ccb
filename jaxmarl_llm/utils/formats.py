"""Versions of the files in run folders: each file has the number of its format, and old ones are read.

`marked` puts the number into a JSON object that is written. `upgraded` takes it out again when the object is
read, and lets the migrations of that kind of file turn what an earlier version wrote into what this one
writes. An object without a number has format 0: nothing had one until format 1.
"""

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

KEY = "format"
VERSION = 1  # raise it with a migration wherever a file of the format before could be misread


class NewerFormatError(UserError):
    """A newer version of the package wrote the file."""


# From an object of one format to an equal one of the next format; the argument is not changed.
Migration = Callable[[dict[str, Any]], dict[str, Any]]


def marked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with the number of this version's format."""
    return {KEY: VERSION, **fields}


def upgraded(
    fields: Mapping[str, Any], where: object, migrations: Mapping[int, Migration] | None = None
) -> dict[str, Any]:
    """A JSON object of a file as this version would have written it, without the number of its format.

    Args:
      fields: what the file holds.
      where: the file's name for errors.
      migrations: by the format that they read; a format without one was not changed by the next.

    Raises:
      UserError: naming the file, if a newer version wrote it (`NewerFormatError`), or if its number is none.
    """
    upgraded_fields = dict(fields)
    version = upgraded_fields.pop(KEY, 0)
    if type(version) is not int or version < 0:
        raise UserError(f"{where}: {KEY} is {version!r}; allowed are whole numbers up to {VERSION}")
    if version > VERSION:
        raise NewerFormatError(
            f"{where}: is of format {version}, which a newer version of jaxmarl_llm wrote; this one reads "
            f"formats up to {VERSION}, so update jaxmarl_llm"
        )
    for number in range(version, VERSION):
        migration = (migrations or {}).get(number)
        upgraded_fields = migration(upgraded_fields) if migration else upgraded_fields
    return upgraded_fields


def write(path, fields: Mapping[str, Any], indent: int | None = 2) -> pathlib.Path:
    """Write a JSON object with the number of its format, whole or not at all; returns the path."""
    return files.atomic_write_text(path, json.dumps(marked(fields), indent=indent) + "\n")


def read(path, migrations: Mapping[int, Migration] | None = None) -> dict[str, Any]:
    """The JSON object in a file, as `upgraded` returns it.

    Raises:
      UserError: naming the file, if it is not there, damaged, or of a newer version.
    """
    return upgraded(files.read_json(path), path, migrations)
