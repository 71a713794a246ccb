"""A student's targets at every token of its texts: the fused distributions of its teachers."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jaxmarl_llm.fusion import align, edits, fuse, pieces
from jaxmarl_llm.fusion.align import Aligned, Own, Seen
from jaxmarl_llm.fusion.cache import Tokens
from jaxmarl_llm.fusion.texts import Part, Text

ALIGN = {"bytes": align.by_bytes, "edits": edits.by_edits}


@dataclasses.dataclass(frozen=True)
class How:
    """How teachers are fused: ``fuse`` of `fuse.RULES`, ``cost`` of `fuse.COSTS`, ``align`` of `ALIGN`."""

    fuse: str = "min_ce"
    cost: str = "byte"
    align: str = "bytes"


def of_texts(
    texts: Sequence[Text],
    ids: Sequence[np.ndarray],
    tokenizer,
    caches: Mapping[str, tuple[list[Seen], Tokens]],
    how: How,
) -> tuple[list[tuple[np.ndarray, np.ndarray]], dict[str, float]]:
    """The targets of all texts, ids (L, K) and log-probabilities (L, K) each, and the misaligned share by teacher.

    Args:
      texts: texts with their parts.
      ids: tokens of each text, with its ending token.
      tokenizer: the student's.
      caches: for every teacher, its distributions on its parts, in order, and its tokens.
      how: see `How`.
    """
    student, mark = pieces.Vocabulary(tokenizer), pieces.mark(tokenizer)
    lined = {name: iter(seen) for name, (seen, _) in caches.items()}
    counts = {name: np.zeros(2) for name in caches}
    made = []
    for text, own_ids in zip(texts, ids, strict=True):
        data, ends = text.text.encode(), pieces.byte_ends(tokenizer, own_ids[:-1].tolist(), text.text)
        whole = Own(own_ids, np.concatenate([[0], ends]), np.append(ends, len(data)))
        by_span: dict[tuple[int, int], list[tuple[Part, Seen]]] = {}
        for part in text.parts:
            by_span.setdefault((part.start, part.end), []).append((part, next(lined[part.teacher])))
        rows: dict[int, dict[int, float]] = {}
        for (start, end), taught in by_span.items():
            places, own = _inside(whole, start, end, len(data))
            costs = [fuse.cost(seen, end - start, how.cost) for _, seen in taught]
            aligned = []
            for part, seen in taught:
                tokens = caches[part.teacher][1]
                one = _aligned(seen, tokens, own, (student, mark), data[start:end], end == len(data), how)
                counts[part.teacher] += (sum(row is None for row in one.by_token), len(one.by_token))
                aligned.append(one)
            mixed = fuse.fused(aligned, fuse.weights(costs, how.fuse))
            rows |= {place: row for place, row in zip(places, mixed, strict=True) if row}
        made.append(fuse.as_arrays(own_ids, rows))
    return made, {name: float(bad / max(number, 1)) for name, (bad, number) in counts.items()}


def _inside(whole: Own, start: int, end: int, size: int) -> tuple[list[int], Own]:
    """Positions of the student's tokens in a part, and the tokens; at the text's end with the ending one."""
    inside = (whole.starts >= start) & (whole.ends <= end)
    if end < size:
        inside[-1] = False
        inside &= whole.ends > start
    places = np.flatnonzero(inside)
    return places.tolist(), Own(whole.ids[places], whole.starts[places] - start, whole.ends[places] - start)


def _aligned(seen: Seen, tokens: Tokens, own: Own, student, text: bytes, ended: bool, how: How) -> Aligned:
    """One teacher's part, by ids if both tokenizers split it equally."""
    vocabulary, mark = student
    same = align.by_ids(seen, own, tokens) if tokens.mark == mark else None
    return same or ALIGN[how.align](seen, tokens, own, vocabulary, text, ended)
