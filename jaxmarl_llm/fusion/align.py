"""A teacher's distribution at every token of a student, where both read one text with their own tokenizers.

Both tokenizers split the bytes b of one text. At each teacher token we know the K likeliest tokens w
(sequences of bytes) with their probabilities p(w), and the probability of the actual token. A student token
that begins at byte a and ends at e begins in the teacher's token [s, t) with s <= a < t, of which the bytes c
= b[s:a] have been read:

    P(the text goes on with r) = p(c r) / Z,   Z = 1 if c is empty, else the sum of p(w) over known w that begin with c

r becomes the student token equal to r, else the first token of r in the student's tokenizer
(`Vocabulary.first`); teacher tokens that become the same student token add up. If the student's token extends
beyond t, only its own probability is known: the product of those of the teacher's tokens up to e (chain
rule), if one of them ends at e. If none does, the student's token ends inside a teacher token, and the
position is *misaligned*: there the text itself is the target, with probability 1, as in the paper.

With the same tokenizer on both sides nothing changes. For a student over bytes everything is exact if K = V;
for other students a teacher token counts as their token with the same bytes, regardless of how it would
continue. Unknown probability is left unassigned: `losses.distillation` keeps it in one bucket.
"""

import dataclasses

import numpy as np

from jaxmarl_llm.fusion.pieces import END, Pieces, Vocabulary

TINY = 1e-30
LEAD = b" "  # SentencePiece's prefix of a text, as a token or in the first one; not part of the text


@dataclasses.dataclass(frozen=True)
class Seen:
    """A text in the tokens of one model.

    Attributes:
      ids: token ids (L,); the last one is the ending token if the text ends here.
      ends: byte at which each token ends (L,); for the ending token, that of the previous one.
      logprobs: log-probabilities of these tokens in nats, float32 (L,).
      top_ids, top_logprobs: the K likeliest tokens at each position (L, K) and their log-probabilities.
    """

    ids: np.ndarray
    ends: np.ndarray
    logprobs: np.ndarray
    top_ids: np.ndarray
    top_logprobs: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """Byte at which each token begins (L,)."""
        return np.concatenate([[0], self.ends[:-1]]).astype(int)


@dataclasses.dataclass(frozen=True)
class Own:
    """Tokens of the student in a part of a text: ids, and the bytes of the part at which they begin and end, (L,)."""

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


@dataclasses.dataclass(frozen=True)
class Aligned:
    """For every student token, the teacher's probabilities by student id; None where misaligned."""

    by_token: list[dict[int, float] | None]

    @property
    def misaligned(self) -> float:
        """Share of the positions without a distribution."""
        return sum(row is None for row in self.by_token) / max(len(self.by_token), 1)


def by_ids(seen: Seen, own: Own, teacher: Pieces) -> Aligned | None:
    """`Aligned` of a teacher with the student's tokenizer; None if the two token sequences differ."""
    length = len(own.ids)
    if not np.array_equal(own.ids, seen.ids[:length]) or len(seen.ids) - length > 1:
        return None
    rows = [likely(seen, i) for i in range(length)]
    if length < len(
        seen.ids
    ):  # the student's text continues after this part: the teacher's ending is unassigned
        rows = [{k: p for k, p in row.items() if teacher.of_id[k] != END} for row in rows]
    return Aligned([{k: p for k, p in row.items() if p > 0} for row in rows])


def by_bytes(seen: Seen, teacher: Pieces, own: Own, student: Vocabulary, text: bytes, ended: bool) -> Aligned:
    """`Aligned` of a teacher with other tokens.

    Args:
      seen: the text as the teacher has read it, including its ending token.
      teacher: its tokens.
      own: the student's tokens.
      student: its vocabulary.
      text: the bytes that both have read.
      ended: whether the student's text ends here too; else the teacher's ending probability is unassigned.
    """
    last = len(seen.ids) - 1
    rows: list[dict[int, float] | None] = []
    for token, a, e in zip(own.ids.tolist(), own.starts.tolist(), own.ends.tolist(), strict=True):
        i = last if a == len(text) else int(np.searchsorted(seen.ends, a, side="right"))
        if a == e and a < len(text):  # a part of a character, see `pieces.byte_ends`
            rows.append(None)
            continue
        rows.append(_at(seen, i, teacher, student, text, (token, a, e), ended))
    return Aligned(rows)


def _at(seen: Seen, i: int, teacher: Pieces, student: Vocabulary, text: bytes, token, ended: bool):
    """The distribution at one token (id, begin, end) of the student, in the teacher's token i; None: misaligned."""
    own, a, e = token
    path, starts = _path(seen, i, e), seen.starts
    inside = i and seen.ends[i - 1] == starts[i - 1] and not (i == 1 and leads(seen, teacher))
    if path is None or inside:  # or the teacher's begins inside a character
        return None
    read, known = text[starts[i] : a], likely(seen, i)
    parts = parts_at(seen, i, teacher, text)
    going_on = {k: p for k, p in known.items() if _goes_on(parts[k], read)}
    scale = 1.0 / max(sum(going_on.values()), TINY) if read else 1.0
    if e > seen.ends[i]:
        same = text[starts[i] : e]
        going_on = {k: p for k, p in going_on.items() if k == seen.ids[i] or parts[k] == same}
    lead = LEAD if a == 0 and student.of_id[own] == LEAD + text[:e] else b""
    row: dict[int, float] = {}
    for k, p in going_on.items():
        part = parts[k][len(read) :]
        if k == seen.ids[i]:
            row[own] = row.get(own, 0.0) + scale * p * path
        elif part != END or ended:
            place = student.first(part if part == END else lead + part)
            if place is not None:
                row[place] = row.get(place, 0.0) + scale * p
    return {k: p for k, p in row.items() if p > 0}


def leads(seen: Seen, teacher: Pieces) -> bool:
    """Whether the first token is only the `LEAD` of the text."""
    return seen.ends[0] == 0 and teacher.of_id[int(seen.ids[0])] == LEAD


def parts_at(seen: Seen, i: int, teacher: Pieces, text: bytes) -> dict[int, bytes | None]:
    """The bytes that the `likely` tokens at position i would add to the text, by the teacher's ids.

    The text's own token adds the actual bytes. If these lack its `LEAD`, it is removed from the other tokens
    too; for a token that is only the `LEAD`, the continuation is unknown (None).
    """
    own, here = int(seen.ids[i]), text[seen.starts[i] : seen.ends[i]]
    parts = {k: teacher.of_id[k] for k in (*seen.top_ids[i].tolist(), own)}
    if i == 0 and parts[own] == LEAD + here:
        parts = {k: part and (part.removeprefix(LEAD) or None) for k, part in parts.items()}
    return parts | {own: here}


def _goes_on(part: bytes | None, read: bytes) -> bool:
    """Whether a token continues the bytes read so far; for an ending token, none have been read."""
    return part is not None and (not read or (part.startswith(read) and len(part) > len(read)))


def _path(seen: Seen, i: int, end: int) -> float | None:
    """Probability of the teacher's tokens after i up to byte ``end``; None if no token ends exactly there."""
    if end <= seen.ends[i]:
        return 1.0
    logprob, at = 0.0, i
    while seen.ends[at] < end:
        at += 1
        logprob += float(seen.logprobs[at])
    return float(np.exp(logprob)) if seen.ends[at] == end else None


def likely(seen: Seen, i: int) -> dict[int, float]:
    """Probabilities, by id, of the teacher's known tokens at position i: the likeliest and the text's own."""
    pairs = zip(seen.top_ids[i], seen.top_logprobs[i], strict=True)
    known = {int(k): float(np.exp(np.float32(x))) for k, x in pairs}
    known.setdefault(int(seen.ids[i]), float(np.exp(seen.logprobs[i])))
    return known


def nats_of_bytes(logprobs: np.ndarray, ends: np.ndarray, size: int) -> np.ndarray:
    """Cross-entropy of each byte of a text in nats, float (size,): a token's nats are split over its bytes.

    ``logprobs`` and ``ends`` exclude the ending token. If no token crosses the boundaries of a part, the sum
    over the part is that of its tokens; the sum over the text is that of all tokens.
    """
    nats, begin, waiting = np.zeros(size), 0, 0.0
    for logprob, end in zip(logprobs, ends, strict=True):
        waiting -= float(logprob)
        if end > begin:  # tokens inside a character wait for the one that completes it
            nats[begin:end] = waiting / (end - begin)
            begin, waiting = int(end), 0.0
    return nats
