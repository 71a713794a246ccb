"""jaxmarl_llm/memory: similarity and search against plain arithmetic."""

import math

import numpy as np
import pytest

from jaxmarl_llm.memory import Index, Item, Relevance, ngrams
from jaxmarl_llm.memory.index import Bm25


def test_cosine_by_hand_and_every_text_once():
    asked = []

    def encoder(texts):
        asked.append(list(texts))
        return np.array([[len(text), text.count("a")] for text in texts], float)

    like = Relevance(encoder)
    # "aa" is (2, 2), "ab" (2, 1), "bbb" (3, 0): cosines 6 / (sqrt 8 sqrt 5) and 1 / sqrt 2.
    assert like(["ab", "bbb"], ["aa", "aa"]) == pytest.approx([0.948683, 0.707107], abs=1e-6)
    assert like(["bbb", "aa"], ["aa", "aa"]) == pytest.approx([0.707107, 1.0], abs=1e-6)
    assert asked == [["aa", "ab", "bbb"]]


def test_words_in_common_count():
    vectors = ngrams(["sort the list once", "sort the list", "use a set"])
    assert vectors[0] @ vectors[1] == 5  # sort, the, list, and two pairs
    assert vectors[0] @ vectors[2] == 0


def test_bm25_by_hand():
    """Three texts of 2, 4 and 6 words: "sum" is in two of them, "max" in one, "zip" in none."""
    texts = ["sum max", "sum sum a b", "a b c d e f"]
    # K1 (1 - B + B L / 4): 0.75, 1.2 and 1.65 for the lengths 2, 4 and 6.
    idf_sum, idf_max = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    first = idf_sum * 2.2 / 1.75 + idf_max * 2.2 / 1.75
    second = idf_sum * 2 * 2.2 / 3.2
    assert Bm25(texts).scores("Max sum, zip") == pytest.approx([first, second, 0.0])
    assert Bm25(texts).scores("sum sum max") == pytest.approx([first, second, 0.0])
    assert Bm25([]).scores("sum").shape == (0,) and Bm25(["", ""]).scores("sum").tolist() == [0.0, 0.0]


ITEMS = [
    Item("first", {"code": "sort the list"}),
    Item("second", {"code": "sum the list of numbers"}),
    Item("third", {"code": "sum numbers"}),
    Item("fourth", {"code": "sort the list"}),
]


def texts(items):
    return [item.text for item in items]


def test_every_rule():
    index = Index(ITEMS, "code", Relevance(ngrams), shortlist=2)
    assert len(index) == 4
    assert texts(index.select("sum numbers", 2, "bm25")) == ["third", "second"]
    assert texts(index.select("sort the list", 3, "bm25")) == ["first", "fourth", "second"]  # the older first
    assert texts(index.select("sort the list", 9, "cosine")) == ["first", "fourth", "second", "third"]
    assert texts(Index(ITEMS).select("fourth", 1, "bm25")) == ["fourth"]
    random = [texts(index.select("x", 3, "random", np.random.default_rng(seed))) for seed in range(20)]
    assert all(len(set(chosen)) == 3 for chosen in random) and len(set(map(str, random))) > 5
    assert index.select("x", 0, "bm25") == [] and Index([]).select("x", 3, "bm25") == []


def test_the_second_step_orders_what_the_first_leaves():
    """Words leave "ab" and "ac"; vectors, which would prefer "zz", put "ac" before "ab"."""
    vectors = {"query a": (1.0, 0.0), "a b": (0.0, 1.0), "a c": (1.0, 1.0), "z z": (1.0, 0.0)}
    encode = Relevance(lambda many: np.array([vectors[text] for text in many]))
    items = [Item(text) for text in ("z z", "a b", "a c")]
    index = Index(items, relevance=encode, shortlist=2)
    assert texts(index.select("query a", 2, "two_step")) == ["a c", "a b"]
    assert texts(index.select("query a", 1, "two_step")) == ["a c"]
    assert texts(index.select("query a", 1, "cosine")) == ["z z"]
    # More are wanted than the shortlist holds: it grows.
    assert texts(index.select("query a", 3, "two_step")) == ["z z", "a c", "a b"]


def test_bad_input():
    index = Index(ITEMS, "code")
    with pytest.raises(ValueError, match="rule='best'; allowed: bm25, cosine, two_step, random"):
        index.select("x", 1, "best")
    with pytest.raises(ValueError, match="cosine and two_step need an encoder"):
        index.select("x", 1, "cosine")
    with pytest.raises(ValueError, match="rule='random' needs a generator"):
        index.select("x", 1, "random")
    with pytest.raises(ValueError, match="no key 'diff'; it has code"):
        Index(ITEMS, "diff")
    with pytest.raises(ValueError, match="no key 'diff'; it has none"):
        Item("x").key("diff")
