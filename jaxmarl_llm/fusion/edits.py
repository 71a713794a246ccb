"""Tokens of two tokenizers matched by edit distance, as FuseLLM does (arXiv 2401.10491), to compare with `align`.

The cheapest path through the table of edit distances between the teacher's and the student's tokens (dynamic time
warping) matches each token with one or more of the other side. A position of the student keeps the teacher's
distribution if it is matched with one teacher token with the same bytes; all others are misaligned.

Difference from the release: a teacher token becomes the student token with the same bytes, or is left out if
there is none; the release takes the nearest token of the whole vocabulary by edit distance.
"""

from collections.abc import Sequence

import numpy as np

from jaxmarl_llm.fusion.align import Aligned, Own, Seen, leads, likely, parts_at
from jaxmarl_llm.fusion.pieces import END, Pieces, Vocabulary


def by_edits(seen: Seen, teacher: Pieces, own: Own, student: Vocabulary, text: bytes, ended: bool) -> Aligned:
    """`align.by_bytes`, by the paper's edit distances."""
    mine = [text[a:e] for a, e in zip(own.starts, own.ends, strict=True)]
    its = [text[a:e] for a, e in zip(seen.starts, seen.ends, strict=True)]
    its = its if ended else its[:-1]  # without the token that ends the teacher's text
    first = int(leads(seen, teacher))  # a token outside the text matches none
    rows: list[dict[int, float] | None] = []
    for token, part, matched in zip(own.ids.tolist(), mine, warped(mine, its[first:]), strict=True):
        place = matched[0] + first if len(matched) == 1 else None
        one = place is not None and its[place] == part
        rows.append(_mapped(seen, place, teacher, token, student, text, ended) if one else None)
    return Aligned(rows)


def _mapped(
    seen: Seen, i: int, teacher: Pieces, own: int, student: Vocabulary, text: bytes, ended: bool
) -> dict[int, float]:
    """The teacher's distribution at a position, by ids of the student, whose token there is ``own``."""
    parts = parts_at(seen, i, teacher, text)
    row: dict[int, float] = {}
    for k, p in likely(seen, i).items():
        part = parts[k]
        if part is None or (part == END and not ended):
            continue
        place = own if k == seen.ids[i] else student.first(part)
        if place is not None and (place == own or student.of_id[place] == part) and p > 0:
            row[place] = row.get(place, 0.0) + p
    return row


def warped(one: Sequence[bytes], other: Sequence[bytes]) -> list[list[int]]:
    """For each token of the first list, the matched indices in the other list, in order.

    The path from both first tokens to both last tokens with the smallest sum of edit distances; of ties, the
    one with more diagonal steps.

    >>> warped([b"a", b"bc"], [b"a", b"b", b"c"])
    [[0], [1, 2]]
    """
    kept: dict[tuple[bytes, bytes], int] = {}
    cost = np.zeros((len(one), len(other)))
    for n, left in enumerate(one):
        for m, right in enumerate(other):
            if (left, right) not in kept:
                kept[left, right] = edit_distance(left, right)
            cost[n, m] = kept[left, right]
    total = np.full((len(one) + 1, len(other) + 1), np.inf)
    total[0, 0] = 0.0
    for n in range(len(one)):
        for m in range(len(other)):
            total[n + 1, m + 1] = cost[n, m] + min(total[n, m], total[n, m + 1], total[n + 1, m])
    matched: list[list[int]] = [[] for _ in one]
    n, m = len(one), len(other)
    while n and m:
        matched[n - 1].insert(0, m - 1)
        steps = ((n - 1, m - 1), (n - 1, m), (n, m - 1))
        n, m = min(steps, key=lambda at: total[at])
    return matched


def edit_distance(one: bytes, other: bytes) -> int:
    """The minimal number of inserted, deleted or replaced bytes that turns one into the other (Levenshtein).

    >>> edit_distance(b"house", b"mouse "), edit_distance(b"", b"ab")
    (2, 2)
    """
    before = list(range(len(other) + 1))
    for n, left in enumerate(one, 1):
        now = [n]
        for m, right in enumerate(other, 1):
            now.append(min(before[m] + 1, now[-1] + 1, before[m - 1] + (left != right)))
        before = now
    return before[-1]
