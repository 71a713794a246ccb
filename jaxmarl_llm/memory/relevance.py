"""How much a text has to do with another: the words of a text, vectors of texts, their cosine."""

import re
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from jaxmarl_llm.utils.errors import UserError

Encoder = Callable[[Sequence[str]], np.ndarray]
NGRAM_DIMENSIONS = 1024
WORD = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]")


def words(text: str) -> list[str]:
    """Words, numbers and single signs of a text, in lower case; ``get_name`` is ``get``, ``_``, ``name``."""
    return WORD.findall(text.lower())


def ngrams(texts: Sequence[str]) -> np.ndarray:
    """Hashed counts of words and of pairs of adjacent words, (X, NGRAM_DIMENSIONS); needs no model."""
    vectors_XD = np.zeros((len(texts), NGRAM_DIMENSIONS), np.float32)
    for x, text in enumerate(texts):
        single = words(text)
        for gram in (*single, *map(" ".join, zip(single, single[1:], strict=False))):
            data = gram.encode("utf-8", "surrogatepass")
            vectors_XD[x, zlib.crc32(data) % NGRAM_DIMENSIONS] += 1
    return vectors_XD


class Relevance:
    """q(z) = cosine(encoder(lesson), encoder(source)), -1..1; every text is encoded once, new ones together.

    Raises:
      ValueError: if the encoder gives no vector for each text.
    """

    def __init__(self, encoder: Encoder):
        self._encoder = encoder
        self._known: dict[str, np.ndarray] = {}

    def __call__(self, lessons: Sequence[str], sources: Sequence[str]) -> list[float]:
        """Relevance of each lesson to the source at its place."""
        wanted = list(dict.fromkeys([*sources, *lessons]))
        if new := [text for text in wanted if text not in self._known]:
            vectors = np.asarray(self._encoder(new), np.float64)
            if vectors.ndim != 2 or len(vectors) != len(new) or not np.isfinite(vectors).all():
                raise UserError(
                    f"the encoder gave an array of shape {vectors.shape} for {len(new)} texts; "
                    f"expected finite numbers of shape ({len(new)}, dimensions)"
                )
            norms = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
            self._known |= dict(zip(new, vectors / norms, strict=True))
        pairs = zip(lessons, sources, strict=True)
        return [float(self._known[text] @ self._known[source]) for text, source in pairs]
