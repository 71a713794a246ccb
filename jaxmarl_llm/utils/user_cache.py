"""The cache folder for things that can be recreated: converted models, compiled programs, downloads."""

import os
import pathlib
from collections.abc import Mapping

from jaxmarl_llm.utils.errors import UserError

VARIABLE = "JAXMARL_LLM_CACHE"


def folder(environment: Mapping[str, str] = os.environ) -> pathlib.Path:
    """``$JAXMARL_LLM_CACHE``, else ``jaxmarl_llm`` in ``$XDG_CACHE_HOME`` or in ``.cache`` of the home folder.

    Raises:
      UserError: naming the variable, where the user has no home folder, as in a container or a batch system
        whose user id the system does not know.
    """
    if given := environment.get(VARIABLE):
        return expanded(given)
    return expanded(environment.get("XDG_CACHE_HOME") or "~/.cache") / "jaxmarl_llm"


def expanded(path) -> pathlib.Path:
    """A path with the home folder in place of ``~``; UserError where the user has none."""
    try:
        return pathlib.Path(path).expanduser()
    except RuntimeError:
        raise UserError(
            f"{path}: this user has no home folder (HOME is not set); set {VARIABLE} to a folder that may be "
            "written, for converted models and other things that are kept, and give other paths in full"
        ) from None


def has_home() -> bool:
    """Whether the user has a home folder."""
    return os.path.expanduser("~") != "~"
