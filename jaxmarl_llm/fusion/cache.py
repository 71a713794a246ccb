"""A teacher's distributions on texts, kept on disk: the 10 likeliest tokens at each position, in float16.

One folder per teacher: ``about.json`` identifies its content, ``00000.npz`` and so on hold `SHARD` texts
each, and ``tokens.json`` the bytes of their tokens, so the teacher is not needed again. A shard is written
completely or not at all, and a stopped run continues with the next shard.
"""

import dataclasses
import io
import json
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from jaxmarl_llm.fusion.align import Seen
from jaxmarl_llm.utils import files, formats
from jaxmarl_llm.utils.errors import UserError

SHARD = 64
ABOUT, TOKENS = "about.json", "tokens.json"


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The tokens of a teacher as a cache knows them: bytes by id, and the `mark` of its tokenizer."""

    of_id: dict[int, bytes | None]
    mark: str


def fill(
    folder: pathlib.Path,
    about: dict[str, str],
    units: Sequence,
    score: Callable[[Sequence], list[Seen]],
    tokens: Callable[[Sequence[int]], Tokens],
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Write the missing part of a teacher's cache.

    Args:
      folder: the teacher's.
      about: fingerprints of teacher and texts; another cache in the folder is refused.
      units: what the teacher reads, one for each text or part.
      score: units -> the teacher's distributions, in order.
      tokens: the tokens of these ids.
      progress: called with the number of units that are done.

    Raises:
      ValueError: for a folder with the cache of another teacher, or of other texts.
    """
    if (folder / ABOUT).is_file():
        kept = {name: value for name, value in formats.read(folder / ABOUT).items() if name in about}
        if kept != about:
            differing = ", ".join(name for name in about if kept.get(name) != about[name])
            raise UserError(f"{folder} holds a teacher's cache of another {differing}; give another --out")
    else:
        formats.write(folder / ABOUT, about)
    if (folder / TOKENS).is_file():
        return
    for number in range(-(-len(units) // SHARD)):
        path = _shard(folder, number)
        if not path.is_file():
            _write(path, score(units[number * SHARD : (number + 1) * SHARD]))
        progress(min((number + 1) * SHARD, len(units)))
    used = sorted({int(i) for seen in _all(folder) for i in (*seen.top_ids.flat, *seen.ids)})
    held = tokens(used)
    pieces = {str(i): None if held.of_id[i] is None else held.of_id[i].hex() for i in used}
    files.atomic_write_text(folder / TOKENS, json.dumps({"mark": held.mark, "pieces": pieces}))


def is_whole(folder: pathlib.Path) -> bool:
    """Whether a teacher's cache is there, with all texts."""
    return (folder / TOKENS).is_file()


def read(folder: pathlib.Path) -> tuple[list[Seen], Tokens]:
    """What `fill` has written; ValueError where it is not whole."""
    if not is_whole(folder):
        raise UserError(f"{folder}: a teacher's cache without its end; experiments.fuse goes on with it")
    held = files.read_json(folder / TOKENS)
    of_id = {int(i): None if part is None else bytes.fromhex(part) for i, part in held["pieces"].items()}
    return _all(folder), Tokens(of_id, held["mark"])


def _shard(folder: pathlib.Path, number: int) -> pathlib.Path:
    return folder / f"{number:05d}.npz"


def _all(folder: pathlib.Path) -> list[Seen]:
    paths = sorted(folder.glob("*.npz"))
    return [seen for path in paths for seen in _read(path)]


FIELDS = ("ids", "ends", "logprobs", "top_ids", "top_logprobs")


def _write(path: pathlib.Path, several: Sequence[Seen]) -> None:
    """Write several texts, concatenated."""
    arrays = {name: np.concatenate([getattr(seen, name) for seen in several]) for name in FIELDS}
    arrays["top_logprobs"] = arrays["top_logprobs"].astype(np.float16)
    data = io.BytesIO()
    np.savez_compressed(data, lengths=[len(seen.ids) for seen in several], **arrays)
    files.atomic_write_bytes(path, data.getvalue())


def _read(path: pathlib.Path) -> list[Seen]:
    with np.load(path) as held:
        cuts = np.cumsum(held["lengths"])[:-1]
        columns = [np.split(held[name], cuts) for name in FIELDS]
    return [Seen(*row) for row in zip(*columns, strict=True)]
