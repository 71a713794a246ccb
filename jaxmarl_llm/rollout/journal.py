"""Keep a rollout on disk step by step, so that an interrupted one continues where it stopped.

Every step of a rollout leaves two files in the journal's folder: ``<step>_turns.json`` once its answers are
drawn, and ``<step>_joints.json`` once they are judged. So a kill loses at most the work on one file. Each
file has digests of the rollout (items, random key, sampling) and of the requests. The same rollout reads its
answers from there; any other is refused. The digests do not cover the team's parameters and the judge, so use
one folder for each state of the team.
"""

import dataclasses
import hashlib
import importlib
import json
import logging
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.utils import distributed, formats
from jaxmarl_llm.utils.errors import UserError

# Modules whose dataclasses may be stored: records of the forest, and judgements of tasks.
_MODULES = ("jaxmarl_llm.forest", "jaxmarl_llm.tasks")
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, ImportError)


class Journal:
    """Stores drawn and judged answers on disk, for `rollout.run`.

    With several processes, the first one reads and writes for all.

    Args:
      folder: of one rollout, created when something is stored; None stores nothing.
      like: folders of other rollouts of the same team. Their answer to the same request in the same step is
        copied, so equal beginnings are computed once.
      taken: called with the name and the value of every answer that is read from this folder or another one.
    """

    def __init__(
        self, folder, like: Sequence = (), taken: Callable[[str, Any], None] = lambda name, value: None
    ):
        self._folder = None if folder is None else pathlib.Path(folder)
        self._like = tuple(map(pathlib.Path, like))
        self._rollout, self._anew, self._taken = "", False, taken

    def begin(self, rollout: Any) -> None:
        """Begin a rollout; ``rollout`` is data that differs between different rollouts, see `encode`."""
        self._rollout, self._anew = digest(rollout), False

    def once(self, name: str, request: Any, bring: Callable[[], Any]) -> Any:
        """The stored result for this name and request, or the result of ``bring()``, which is then stored.

        A file that cannot be read counts as missing, with a warning. So does a file for another request, if
        anything before it was computed again, since that may have changed the result.

        Raises:
          ValueError: naming the file, if it belongs to another rollout or another request.
          TypeError: for values that cannot be stored, see `encode`.
        """
        if self._folder is None:
            return bring()
        kept = distributed.on_main(self._read)(name, digest(request))
        if kept is not None:
            self._taken(name, kept[0])
            return kept[0]
        kept = distributed.on_main(self._elsewhere)(name, digest(request))
        value, self._anew = bring() if kept is None else kept[0], True
        if kept is not None:
            self._taken(name, value)
        distributed.on_main(self._write)(name, digest(request), value)
        return value

    @property
    def added(self) -> bool:
        """Whether the last rollout has added anything to the folder."""
        return self._anew

    def _path(self, name: str) -> pathlib.Path:
        return self._folder / f"{name}.json"

    def _read(self, name: str, request: str) -> tuple[Any] | None:
        """The value in the file, as a 1-tuple; None if the file counts as missing."""
        path = self._path(name)
        try:
            kept = formats.upgraded(json.loads(path.read_text("utf-8")), path)
            rollout, kept_request, value = kept["rollout"], kept["asked"], decode(kept["found"])
        except formats.NewerFormatError:
            raise
        except FileNotFoundError:
            return None
        except _DAMAGED as error:
            logging.warning("%s cannot be read and is done again (%s)", path, error)
            return None
        if rollout != self._rollout:
            raise UserError(f"{path} is of another rollout (other items, random key or sampling); {_ADVICE}")
        if kept_request == request:
            return (value,)
        if not self._anew:
            raise UserError(f"{path} answers other requests than this rollout's; {_ADVICE}")
        logging.warning("%s follows what turned out differently now, and is done again", path)
        return None

    def _elsewhere(self, name: str, request: str) -> tuple[Any] | None:
        """The value that another rollout stored for the same request, as a 1-tuple; None if none did."""
        for folder in self._like:
            try:
                path = folder / f"{name}.json"
                kept = formats.upgraded(json.loads(path.read_text("utf-8")), path)
                if (kept["rollout"], kept["asked"]) == (self._rollout, request):
                    return (decode(kept["found"]),)
            except (FileNotFoundError, *_DAMAGED):
                continue
        return None

    def _write(self, name: str, request: str, value: Any) -> None:
        kept = {"rollout": self._rollout, "asked": request, "found": encode(value)}
        formats.write(self._path(name), kept, indent=None)


_ADVICE = "give this one another folder, or remove that one"


def digest(thing: Any) -> str:
    """SHA-256 of a value that `encode` takes, as text."""
    return hashlib.sha256(json.dumps(encode(thing)).encode()).hexdigest()


def encode(thing: Any) -> Any:
    """Convert a value to JSON data, from which `decode` makes an equal value.

    It takes texts, numbers, None, NumPy arrays and scalars (these become plain numbers), lists, tuples,
    mappings (these become dicts), and the dataclasses of `forest` and of the tasks.

    Raises:
      TypeError: for anything else, naming its type.
    """
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return thing
    if isinstance(thing, np.generic):
        return thing.item()
    if isinstance(thing, np.ndarray):
        return {"array": thing.tolist(), "dtype": thing.dtype.name}
    if isinstance(thing, list):
        return [encode(part) for part in thing]
    if isinstance(thing, tuple):  # a named tuple comes back as an equal plain tuple
        return {"tuple": [encode(part) for part in thing]}
    if isinstance(thing, Mapping):
        return {"dict": [[encode(key), encode(value)] for key, value in thing.items()]}
    kind = type(thing)
    if dataclasses.is_dataclass(kind) and _may_be_read(kind.__module__):
        fields = {field.name: encode(getattr(thing, field.name)) for field in dataclasses.fields(thing)}
        return {"of": f"{kind.__module__}:{kind.__qualname__}", "fields": fields}
    raise TypeError(
        f"a journal cannot keep a {kind.__module__}.{kind.__qualname__}: allowed are plain values and the "
        f"dataclasses of {' and '.join(_MODULES)}"
    )


def decode(data: Any) -> Any:
    """The value that `encode` was given; ValueError and the like for data that it did not write."""
    if isinstance(data, list):
        return [decode(part) for part in data]
    if not isinstance(data, dict):
        return data
    if "tuple" in data:
        return tuple(decode(part) for part in data["tuple"])
    if "dict" in data:
        return {decode(key): decode(value) for key, value in data["dict"]}
    if "array" in data:
        return np.array(data["array"], data["dtype"])
    module, _, name = data["of"].partition(":")
    if not _may_be_read(module):
        raise UserError(f"{data['of']!r} is nothing that a journal keeps")
    kind = getattr(importlib.import_module(module), name)
    return kind(**{field: decode(value) for field, value in data["fields"].items()})


def _may_be_read(module: str) -> bool:
    return any(module == allowed or module.startswith(f"{allowed}.") for allowed in _MODULES)
