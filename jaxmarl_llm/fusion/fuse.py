"""Fuse the distributions of several teachers (FuseLLM, arXiv 2401.10491, section 3).

For every part of a text, with the cross-entropy C_k of teacher k on that part:

    min_ce   the distributions of the teacher with the smallest C_k
    avg_ce   sum_k w_k P_k,   w_k = exp(-C_k) / sum_j exp(-C_j)

C is in nats per *byte* of the text, which is comparable between tokenizers. The release uses nats per teacher
token, which makes a teacher with long tokens look worse than it is: two tokens of 3 nats each for eight bytes
are .75 nats per byte, eight tokens of 1 nat each are 1. `COSTS` has both, the second only for comparison with
the release.

Where a teacher is misaligned (`align`), the target is the text itself; with avg_ce only if all teachers are,
else the aligned ones share the weight. Tokens without a teacher, such as role names, also have the text
itself as target.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from jaxmarl_llm.fusion.align import Aligned, Seen
from jaxmarl_llm.utils.errors import UserError

TOP = 10  # number of tokens of a distribution that are kept, as in the paper
RULES = ("min_ce", "avg_ce")
COSTS = ("byte", "token")
MOST_MISALIGNED = 0.5


def cost(seen: Seen, size: int, per: str = "byte") -> float:
    """Cross-entropy of a text of ``size`` bytes in nats, per one of `COSTS`; without its ending token."""
    nats = -float(np.sum(seen.logprobs[:-1], dtype=np.float64))
    return nats / max(size if per == "byte" else len(seen.ids) - 1, 1)


def weights(costs: Sequence[float], rule: str) -> np.ndarray:
    """The teachers' weights, which add up to 1.

    >>> weights([0.75, 1.0], "min_ce").tolist(), weights([1.0, 1.0], "avg_ce").tolist()
    ([1.0, 0.0], [0.5, 0.5])
    """
    costs_K = np.asarray(costs, np.float64)
    if rule == "min_ce":
        return (np.arange(len(costs_K)) == costs_K.argmin()).astype(float)
    scores_K = np.exp(costs_K.min() - costs_K)
    return scores_K / scores_K.sum()


def fused(aligned: Sequence[Aligned], weights_K: np.ndarray) -> list[dict[int, float] | None]:
    """The mixture of the teachers' distributions at every token of a part; None where the text is the target."""
    rows: list[dict[int, float] | None] = []
    for by_teacher in zip(*(each.by_token for each in aligned), strict=True):
        there = [(w, row) for w, row in zip(weights_K, by_teacher, strict=True) if row is not None and w > 0]
        total = sum(w for w, _ in there)
        if not total:
            rows.append(None)
            continue
        mixed: dict[int, float] = {}
        for w, row in there:
            for token, p in row.items():
                mixed[token] = mixed.get(token, 0.0) + w / total * p
        rows.append(mixed)
    return rows


def as_arrays(
    ids: np.ndarray, rows: Mapping[int, dict[int, float]], top: int = TOP
) -> tuple[np.ndarray, np.ndarray]:
    """Ids (L, K) and log-probabilities (L, K) of the K likeliest tokens at every token of a student's text.

    Args:
      ids: the text (L,), with the token that ends it.
      rows: distributions by position in the text; elsewhere the text itself has probability 1.
      top: K, always including the text's own token. Probability of further tokens is left unassigned, as is
        what teachers leave unassigned.
    """
    ids_LK = np.zeros((len(ids), top), np.int32)
    logprobs_LK = np.full((len(ids), top), -np.inf, np.float32)
    for place, own in enumerate(ids.tolist()):
        row = rows.get(place) or {own: 1.0}
        likeliest = sorted(row, key=lambda token: (token != own, -row[token], token))[:top]
        ids_LK[place, : len(likeliest)] = likeliest
        logprobs_LK[place, : len(likeliest)] = np.log([row[token] for token in likeliest])
    return ids_LK, np.minimum(logprobs_LK, 0.0)


def check_aligned(shares: Mapping[str, float], align: str) -> None:
    """UserError, with the share, if most positions of a teacher are misaligned; ``shares`` by its name."""
    for teacher, share in shares.items():
        if share > MOST_MISALIGNED:
            raise UserError(
                f"distil.align={align!r}: at {share:.0%} of the student's tokens teacher {teacher!r} is misaligned, "
                f"so that the text itself is the target; allowed are {MOST_MISALIGNED:.0%}"
            )
