"""One answer from several: the last one, the majority's, a judge's choice, or the one with the best score."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence

from jaxmarl_llm.tasks.reasoning.answers import NONE, Answer

RULES = ("last", "majority", "judge", "best")


def last(answers: Sequence[Answer]) -> Answer:
    """The last answer."""
    return answers[-1]


def majority(answers: Sequence[Answer]) -> Answer:
    """The most frequent answer; in a tie the first. A missing answer does not count.

    >>> majority(["b", "a", None, "a", "b"])
    'b'
    """
    votes = collections.Counter(answer for answer in answers if answer is not NONE)
    return max(votes, key=votes.__getitem__) if votes else NONE


def judged(answers: Sequence[Answer], choice: Answer) -> tuple[Answer, bool]:
    """A judge's choice if it is one of the answers, else the first answer; and whether it decided.

    >>> judged(["a", "b"], "b"), judged(["a", "b"], "c"), judged(["a", "b"], None)
    (('b', True), ('a', False), ('a', False))
    """
    decided = choice is not NONE and choice in answers
    return (choice if decided else answers[0]), decided


def best(answers: Sequence[Answer], scores: Sequence[float]) -> Answer:
    """The answer with the largest score; in a tie the first. NaN is less than any other score.

    >>> best(["a", "b", "c"], [0.2, 0.9, 0.9])
    'b'
    """
    return answers[best_place(scores)]


def best_place(scores: Sequence[float]) -> int:
    """The index of the first largest score; NaN is less than any other."""
    known = [-math.inf if math.isnan(score) else score for score in scores]
    return known.index(max(known))


def over_chains(
    rule: str,
    answers: Sequence[Sequence[Answer]],
    scores: Sequence[Sequence[float]] = (),
) -> tuple[Answer, float]:
    """The answer of several conversations by a rule, one of `RULES`; and the share that decided.

    Args:
      rule: ``last``, the majority of the last agents' answers; ``majority``, of all agents' answers;
        ``judge``, of the last agents' decisions, see `judged`; ``best``, the answer with the best score of
        all.
      answers: of each conversation, those of its agents in order.
      scores: of each conversation, those of its answers, for ``best``.
    """
    if rule == "best":
        return best([a for row in answers for a in row], [s for row in scores for s in row]), 1.0
    if rule == "majority":
        return majority([answer for row in answers for answer in row]), 1.0
    if rule == "last":
        return majority([last(row) for row in answers]), 1.0
    pairs = [judged(row[:-1], row[-1]) for row in answers]
    return majority([answer for answer, _ in pairs]), sum(decided for _, decided in pairs) / len(pairs)
