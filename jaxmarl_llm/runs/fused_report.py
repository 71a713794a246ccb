"""Cross-entropy of held-out texts in nats per byte: of the student and of its teachers, on the same bytes."""

import pathlib
from collections.abc import Sequence

import numpy as np

from jaxmarl_llm.factory import fusion
from jaxmarl_llm.fusion import align, cache, scores, texts
from jaxmarl_llm.fusion.align import Seen
from jaxmarl_llm.fusion.scores import Model
from jaxmarl_llm.fusion.texts import Text
from jaxmarl_llm.utils import console

STUDENT = "student"


def measure(student: Model, rows: Sequence[Text], source: pathlib.Path) -> list[dict]:
    """A row for each group of texts and each of those who read it, first the student on all of its bytes.

    ``nats_per_byte`` is the reader's, ``student_nats_per_byte`` the student's on the same bytes. That a text ends does
    not count, as it is no byte.

    Args:
      student: the trained one.
      rows: the texts.
      source: their file, with the teachers' caches beside it.
    """
    own = scores.score(student, [(text.messages, text.text) for text in rows], top=1)
    mine = [_of_bytes(seen, len(text.text.encode())) for seen, text in zip(own, rows, strict=True)]
    totals: dict[tuple[str, str], np.ndarray] = {}

    def add(group: str, reader: str, nats: float, of_student: float, size: int) -> None:
        totals[group, reader] = totals.get((group, reader), np.zeros(3)) + (nats, of_student, size)

    for text, nats in zip(rows, mine, strict=True):
        add(text.group, STUDENT, nats.sum(), nats.sum(), len(nats))
    for name in texts.teachers(rows):
        seen_of, _ = cache.read(fusion.folder_of(source, name))
        for (n, part), seen in zip(texts.units(rows, name), seen_of, strict=True):
            its = -float(np.sum(seen.logprobs[:-1], dtype=np.float64))
            add(rows[n].group, name, its, mine[n][part.start : part.end].sum(), part.end - part.start)
    order = {group: n for n, group in enumerate(dict.fromkeys(text.group for text in rows))}
    return [
        {
            "group": group,
            "reader": reader,
            "bytes": int(size),
            "nats_per_byte": float(nats / size),
            "student_nats_per_byte": float(of_student / size),
        }
        for (group, reader), (nats, of_student, size) in sorted(
            totals.items(), key=lambda row: order[row[0][0]]
        )
        if size
    ]


def _of_bytes(seen: Seen, size: int) -> np.ndarray:
    return align.nats_of_bytes(seen.logprobs[:-1], seen.ends[:-1], size)


def show(report: Sequence[dict], stream=None) -> None:
    """Print the report as a table."""
    rows = [
        (
            row["group"],
            row["reader"],
            f"{row['bytes']}",
            f"{row['nats_per_byte']:.3f}",
            f"{row['student_nats_per_byte']:.3f}",
        )
        for row in report
    ]
    headers = ("held-out texts", "read by", "bytes", "nats per byte", "the student's on these bytes")
    console.table(rows, headers, "cross-entropy of held-out texts", stream)
