"""Demonstrations with teacher predictions, which `experiments.fuse` saved beside them."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from jaxmarl_llm.config.imitation import FILE
from jaxmarl_llm.fusion import cache, fuse, pieces, targets, texts
from jaxmarl_llm.systems.demonstrations import Encoded
from jaxmarl_llm.utils.errors import UserError

TEACHERS = "teachers"  # folder beside the file of texts, with a folder per teacher


def with_teachers(config, encoded: Sequence[Encoded], tokenizers: Mapping) -> list[Encoded]:
    """The demonstrations of ``sft.source``, in the order of ``encoded``, with their teachers' predictions.

    Raises:
      ValueError: if there are no teachers beside the file, if an agent's tokens do not decode to the texts,
        or if most positions are misaligned.
    """
    source, c = pathlib.Path(config.sft.source), config.distil
    rows = read(source, c.weight)
    kept = {name: cache.read(folder_of(source, name)) for name in texts.teachers(rows)}
    how = targets.How(c.fuse, c.cost, c.align)
    agents = list(dict.fromkeys(row.agent for row in encoded))
    if len(agents) > 1:
        raise UserError(
            f"distil.weight={c.weight}: the texts of {str(source)!r} are of {', '.join(agents)}; allowed is one agent"
        )
    tokenizer = tokenizers[agents[0]]
    pieces.check_round_trip([row.text for row in encoded], tokenizer, f"agent {agents[0]!r}", "sft.source")
    made, shares = targets.of_texts(rows, [row.completion for row in encoded], tokenizer, kept, how)
    fuse.check_aligned(shares, c.align)
    return [dataclasses.replace(row, teacher=pair) for row, pair in zip(encoded, made, strict=True)]


def read(source: pathlib.Path, weight: float) -> list[texts.Text]:
    """The texts of a file that has teachers beside it."""
    if not (source.parent / TEACHERS).is_dir():
        raise UserError(
            f"distil.weight={weight}: sft.source={str(source)!r} has no teachers beside it; allowed are 0 and a "
            f"{FILE} file that experiments.fuse wrote"
        )
    return texts.read(source)


def folder_of(source: pathlib.Path, teacher: str) -> pathlib.Path:
    """Folder of a teacher's cache; model names may contain any character."""
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in teacher)
    return source.parent / TEACHERS / safe
