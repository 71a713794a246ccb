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
from jaxmarl_llm.utils.statistics import bootstrap

STUDENT = "student"


def measure(student: Model, rows: Sequence[Text], source: pathlib.Path) -> list[dict]:
    """A row for each text and reader: the student reads the whole text, a teacher its own parts.

    ``nats`` is the reader's cross-entropy over ``bytes``, ``student_nats`` the student's on the same bytes.
    The end of a text does not count, as it is not a byte. ``text``: the number of the text in its file. The
    student is named `STUDENT`; a teacher of this name is "teacher student".

    Args:
      student: the trained one.
      rows: the texts.
      source: their file, with the teachers' caches beside it.
    """
    own = scores.score(student, [(text.messages, text.text) for text in rows], top=1)
    mine = [_of_bytes(seen, len(text.text.encode())) for seen, text in zip(own, rows, strict=True)]
    read: dict[tuple[int, str], np.ndarray] = {
        (n, STUDENT): np.array([nats.sum(), nats.sum(), len(nats)]) for n, nats in enumerate(mine)
    }
    for name in texts.teachers(rows):
        seen_of, _ = cache.read(fusion.folder_of(source, name))
        reader = f"teacher {name}" if name == STUDENT else name
        for (n, part), seen in zip(texts.units(rows, name), seen_of, strict=True):
            its = -float(np.sum(seen.logprobs[:-1], dtype=np.float64))
            sums = (its, mine[n][part.start : part.end].sum(), part.end - part.start)
            read[n, reader] = read.get((n, reader), np.zeros(3)) + sums
    return [
        {
            "text": n,
            "group": rows[n].group,
            "reader": reader,
            "bytes": int(size),
            "nats": float(nats),
            "student_nats": float(of_student),
        }
        for (n, reader), (nats, of_student, size) in read.items()
        if size
    ]


def by_group(measured: Sequence[dict]) -> list[dict]:
    """The rows of `measure` by group and reader, in their order, as nats per byte; intervals are over the texts.

    ``low`` and ``high`` belong to the reader. ``difference`` is the student's value minus the reader's on the
    same bytes, with interval ``difference_low`` to ``difference_high``. A single text has no interval.
    """
    groups = list(dict.fromkeys(row["group"] for row in measured))
    read: dict[tuple[str, str], list[dict]] = {}
    for row in measured:
        read.setdefault((row["group"], row["reader"]), []).append(row)
    ordered = sorted(read, key=lambda key: groups.index(key[0]))
    return [_of_group(*key, read[key]) for key in ordered]


def _of_group(group: str, reader: str, rows: Sequence[dict]) -> dict:
    """A row of `by_group`."""
    sizes, nats, mine = (np.array([row[name] for row in rows]) for name in ("bytes", "nats", "student_nats"))
    own, less = bootstrap.ratio(nats, sizes), bootstrap.ratio(mine - nats, sizes)
    ends = {"low": own.low, "high": own.high, "difference_low": less.low, "difference_high": less.high}
    return {
        "group": group,
        "reader": reader,
        "texts": len(rows),
        "bytes": int(sizes.sum()),
        "nats_per_byte": float(own.mean),
        "student_nats_per_byte": float(mine.sum() / sizes.sum()),
        "difference": float(less.mean),
        **{name: float(end) for name, end in ends.items() if len(rows) > 1},
    }


def _of_bytes(seen: Seen, size: int) -> np.ndarray:
    return align.nats_of_bytes(seen.logprobs[:-1], seen.ends[:-1], size)


def show(report: Sequence[dict], stream=None) -> None:
    """Print the result of `by_group` as a table."""
    rows = []
    for row in report:
        own, less = f"{row['nats_per_byte']:.3f}", f"{row['difference']:+.3f}"
        if "low" in row:
            own += f" [{row['low']:.3f}, {row['high']:.3f}]"
            less += f" [{row['difference_low']:+.3f}, {row['difference_high']:+.3f}]"
        less = "" if row["reader"] == STUDENT else less
        rows.append((row["group"], row["reader"], str(row["texts"]), str(row["bytes"]), own, less))
    headers = ("held-out texts", "read by", "texts", "bytes", "nats per byte", "the student's less this")
    title = "cross-entropy of held-out texts, with 95 % intervals over the texts"
    console.table(rows, headers, title, stream)
