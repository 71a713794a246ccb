"""Relevance of one text for another: words of texts, vectors of texts, and their cosine."""

import re
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

Encoder = Callable[[Sequence[str]], np.ndarray]
NGRAM_DIMENSIONS = 1024
WORD = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]")


def words(text: str) -> list[str]:
    """Words, numbers and single symbols of a text, in lower case; ``get_name``: ``get``, ``_``, ``name``."""
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


def checked(encoder: Encoder, name: str = "the encoder") -> Encoder:
    """An encoder whose vectors (X, D), float64, are checked in every call; ``name`` is its name in errors.

    UserError unless each text has a vector of finite numbers with the same length in all calls;
    UserCodeError if the encoder raises.
    """
    known: list[int] = []  # D, after the first call

    def encode(texts: Sequence[str]) -> np.ndarray:
        try:
            given = encoder(texts)
        except UserError:
            raise
        except dotted.RAISED as error:
            reason = dotted.reason(error)
            raise dotted.UserCodeError(f"{name} raised on {len(texts)} texts ({reason})") from error
        wanted = f"expected finite numbers of shape ({len(texts)}, {known[0] if known else 'dimensions'})"
        try:
            if (
                np.asarray(given).dtype.kind in "SUc"
            ):  # NumPy would parse numbers in strings, or drop a part of them
                raise TypeError
            vectors = np.asarray(given, np.float64)
        except (TypeError, ValueError):  # strings, or rows of different lengths
            raise UserError(f"{name} gave {given!r:.40} for {len(texts)} texts; {wanted}") from None
        fits = (
            vectors.ndim == 2
            and vectors.shape == (len(texts), *(known or vectors.shape[1:]))
            and vectors.size
        )
        if not fits or not np.isfinite(vectors).all():
            raise UserError(f"{name} gave an array of shape {vectors.shape} for {len(texts)} texts; {wanted}")
        known[:] = vectors.shape[1:]
        return vectors

    return encode


class Relevance:
    """q(z) = cosine(encoder(lesson), encoder(source)), -1..1; each text is encoded once, new ones together.

    Raises:
      ValueError: if the encoder does not return a vector for each text, see `checked`.
    """

    def __init__(self, encoder: Encoder):
        self._encoder = checked(encoder)
        self._known: dict[str, np.ndarray] = {}

    def __call__(self, lessons: Sequence[str], sources: Sequence[str]) -> list[float]:
        """Relevance of each lesson to the source at the same index."""
        wanted = list(dict.fromkeys([*sources, *lessons]))
        if new := [text for text in wanted if text not in self._known]:
            vectors = self._encoder(new)
            norms = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
            self._known |= dict(zip(new, vectors / norms, strict=True))
        pairs = zip(lessons, sources, strict=True)
        return [float(self._known[text] @ self._known[source]) for text, source in pairs]
