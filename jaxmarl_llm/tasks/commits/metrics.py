"""Similarity of a text and a reference: BLEU-4, ROUGE-L and METEOR on words, pure functions from 0 to 1.

All take lists of words; the caller that splits the texts decides what a word is and whether case counts
(`jaxmarl_llm.memory.words` for messages). The release of the commit message study (arXiv 2404.14824) computes BLEU over
characters and calls a cosine times lengths METEOR, so its values are not comparable with these.
"""

import collections
import math
from collections.abc import Callable, Sequence

from jaxmarl_llm.tasks.commits.stemmer import stem

Words = Sequence[str]
ORDER = 4  # of BLEU-4
ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5  # of METEOR, as published for English


def bleu(words: Words, references: Sequence[Words], smooth: bool = True) -> float:
    """Sentence BLEU-4 (Papineni et al. 2002), the geometric mean of four clipped precisions times a brevity penalty.

    ``smooth``: method 2 of Chen and Cherry (2014, "A Systematic Comparison of Smoothing Techniques for Sentence-Level
    BLEU"), after Lin and Och (2004): for n-grams of two words and more, one is added to matches and totals.
    If a text has fewer words than that, it counts 0 matches of 1. Without smoothing a precision of 0 makes
    the result 0, as does an empty text.
    """
    if not words:
        return 0.0
    log_mean = 0.0
    for n in range(1, ORDER + 1):
        matches, number = _clipped(words, references, n)
        more = int(smooth and n > 1)
        if not matches + more:
            return 0.0
        log_mean += math.log((matches + more) / (number + more)) / ORDER
    nearest = min((abs(len(r) - len(words)), len(r)) for r in references)[1]
    return math.exp(log_mean + min(0.0, 1 - nearest / len(words)))


def rouge_l(words: Words, reference: Words) -> float:
    """ROUGE-L (Lin 2004): the F1 of the longest common subsequence's share in each text."""
    longest = _common_subsequence(words, reference)
    return 2 * longest / (len(words) + len(reference)) if longest else 0.0


def meteor(words: Words, reference: Words) -> float:
    """METEOR (Banerjee and Lavie 2005) with equal words, then equal stems, and no synonyms.

    With precision P and recall R of the aligned words, in ``chunks`` that are runs in both texts,

        P R / (alpha P + (1 - alpha) R) * (1 - gamma (chunks / matches)^beta),

    `ALPHA`, `BETA`, `GAMMA` as in Lavie and Agarwal (2007). Words are aligned from the end of the texts, the
    last free one first, as in NLTK; this alignment does not always have the fewest crossings.
    """
    pairs = _aligned(words, reference)
    if not pairs:
        return 0.0
    precision, recall = len(pairs) / len(words), len(pairs) / len(reference)
    mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
    steps = zip(pairs, pairs[1:], strict=False)
    chunks = 1 + sum(later != (i + 1, j + 1) for (i, j), later in steps)
    return mean * (1 - GAMMA * (chunks / len(pairs)) ** BETA)


def _grams(words: Words, n: int) -> collections.Counter:
    return collections.Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def _clipped(words: Words, references: Sequence[Words], n: int) -> tuple[int, int]:
    """Clipped count of n-grams that occur in a reference, and the number of n-grams, at least 1."""
    own = _grams(words, n)
    most: collections.Counter = collections.Counter()
    for reference in references:
        most |= _grams(reference, n)
    return (own & most).total(), max(1, own.total())


def _common_subsequence(first: Words, second: Words) -> int:
    """The length of the longest common subsequence."""
    lengths = [0] * (len(second) + 1)
    for word in first:
        before = 0  # entry of the row above, one to the left
        for j, other in enumerate(second, start=1):
            above = lengths[j]
            lengths[j] = before + 1 if word == other else max(above, lengths[j - 1])
            before = above
    return lengths[-1]


def _aligned(words: Words, reference: Words) -> list[tuple[int, int]]:
    """Pairs of matching words' positions, in the first text's order: equal words first, then equal stems."""
    free, free_there = list(range(len(words))), list(range(len(reference)))
    pairs: list[tuple[int, int]] = []
    forms: tuple[Callable[[str], str], ...] = (str, stem)
    for form in forms:
        for i in reversed(free):
            j = next((j for j in reversed(free_there) if form(words[i]) == form(reference[j])), None)
            if j is not None:
                pairs.append((i, j))
                free_there.remove(j)
        taken = {i for i, _ in pairs}
        free = [i for i in free if i not in taken]
    return sorted(pairs)
