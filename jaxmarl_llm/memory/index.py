"""Search in a memory: by common words (BM25), by the cosine of vectors, by both in two steps, or at random.

BM25 is that of Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the
inverse document frequency log(1 + (N - n + 0.5) / (n + 0.5)), which is never negative. Query and items are
split into words in the same way. Two steps, as in the commit message study (arXiv 2404.14824): common words
select a shortlist, vectors select from it.
"""

import collections
import math
from collections.abc import Sequence
from typing import Generic

import numpy as np

from jaxmarl_llm.memory.items import T
from jaxmarl_llm.memory.relevance import Relevance, words
from jaxmarl_llm.utils.errors import UserError

RULES = ("bm25", "cosine", "two_step", "random")
K1, B = 1.2, 0.75  # saturation of repeated words, and weight of the text length


class Index(Generic[T]):
    """Items, searchable by one of their keys.

    Args:
      items: the items, oldest first.
      key: name of the key, see `Item.key`; empty: the items' texts.
      relevance: similarity of two texts, for the rules ``cosine`` and ``two_step``.
      shortlist: number of items that the first of two steps selects.

    Raises:
      UserError: if an item does not have the key.
    """

    def __init__(
        self, items: Sequence[T], key: str = "", relevance: Relevance | None = None, shortlist: int = 50
    ):
        self._items, self._relevance, self._shortlist = list(items), relevance, shortlist
        self._texts = [item.key(key) for item in self._items]
        self._bm25: Bm25 | None = None

    def __len__(self) -> int:
        return len(self._items)

    def select(
        self, query: str, number: int, rule: str, random: np.random.Generator | None = None
    ) -> list[T]:
        """At most ``number`` items most similar to ``query`` by a rule of `RULES`, the best first.

        With equal scores, older ones first. ``random`` is for the rule with that name.

        Raises:
          UserError: for another rule, and if an argument that the rule needs is missing.
        """
        if rule not in RULES:
            raise UserError(f"rule={rule!r}; allowed: {', '.join(RULES)}")
        if rule == "random":
            if random is None:
                raise UserError("rule='random' needs a generator of random numbers")
            chosen = random.choice(len(self._items), min(number, len(self._items)), replace=False)
            return [self._items[i] for i in chosen]
        places = list(range(len(self._items)))
        if rule in ("bm25", "two_step"):
            scores = self._words().scores(query)
            places = _first(places, scores, number if rule == "bm25" else max(self._shortlist, number))
        if rule != "bm25":
            places = _first(places, self._cosines(query, places), number)
        return [self._items[i] for i in places]

    def _words(self) -> "Bm25":
        self._bm25 = self._bm25 or Bm25(self._texts)
        return self._bm25

    def _cosines(self, query: str, places: Sequence[int]) -> list[float]:
        """The cosine of the query with the items at these places; nan elsewhere, which is not used."""
        if self._relevance is None:
            raise UserError("the rules cosine and two_step need an encoder of texts")
        cosines = [math.nan] * len(self._texts)
        texts = [self._texts[i] for i in places]
        for i, cosine in zip(places, self._relevance(texts, [query] * len(texts)), strict=True):
            cosines[i] = cosine
        return cosines


def _first(places: Sequence[int], scores: Sequence[float] | np.ndarray, number: int) -> list[int]:
    """The ``number`` places with the highest scores; with equal scores the earlier ones."""
    return sorted(places, key=lambda i: (-scores[i], i))[:number]


class Bm25:
    """The BM25 scores of texts for a query."""

    def __init__(self, texts: Sequence[str]):
        self._counts = [collections.Counter(words(text)) for text in texts]
        lengths = np.array([sum(counts.values()) for counts in self._counts], float)
        mean = lengths.mean() if len(lengths) and lengths.any() else 1.0
        self._lengths = K1 * (1 - B + B * lengths / mean)
        self._texts_with = collections.Counter(word for counts in self._counts for word in counts)

    def scores(self, query: str) -> np.ndarray:
        """Scores (N,) of the N texts, 0 without common words. Words repeated in the query count once."""
        total_N = np.zeros(len(self._counts))
        for word in dict.fromkeys(words(query)):
            if with_it := self._texts_with[word]:
                idf = math.log(1 + (len(self._counts) - with_it + 0.5) / (with_it + 0.5))
                counts_N = np.array([counts[word] for counts in self._counts], float)
                total_N += idf * counts_N * (K1 + 1) / (counts_N + self._lengths)
        return total_N
