"""The 60 invented abstracts of the writing task: whole, plain, of the promised length, and all different."""

import importlib.resources
import itertools
import json
import re

import pytest

KEYS = {"task_id", "title", "text"}
SHARED = 8  # words in a row that no two texts may share


@pytest.fixture(scope="module")
def rows():
    path = importlib.resources.files("jaxmarl_llm.tasks") / "data" / "writing" / "abstracts.jsonl"
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def _words(text):
    """Lower-case words without punctuation, so that a comma does not hide a copied phrase."""
    return re.findall(r"[a-z0-9']+", text.lower())


def _runs(text, length):
    words = _words(text)
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def _repeated(values):
    values = list(values)
    return sorted({value for value in values if values.count(value) > 1})


def test_sixty_rows_with_ids_in_order(rows):
    assert [row["task_id"] for row in rows] == [f"abstract/{i}" for i in range(1, 61)]
    for row in rows:
        assert set(row) == KEYS and all(type(value) is str for value in row.values()), row["task_id"]


def test_length_of_every_text(rows):
    assert [row["task_id"] for row in rows if not 110 <= len(row["text"].split()) <= 170] == []


def test_plain_ascii_in_one_paragraph(rows):
    """Checked on the decoded strings: an escape such as \\u2019 is ASCII in the file and not in the text."""
    for row in rows:
        for value in row.values():
            assert value.isascii() and value.isprintable(), row["task_id"]
            assert " ".join(value.split()) == value != "", row["task_id"]
        assert row["text"].endswith("."), row["task_id"]


def test_titles_and_openings_are_unique(rows):
    assert _repeated(row["title"].lower() for row in rows) == []
    assert _repeated(" ".join(_words(row["text"])[:5]) for row in rows) == []


def test_no_two_texts_share_eight_words_in_a_row(rows):
    runs = {row["task_id"]: _runs(row["text"], SHARED) for row in rows}
    for (a, in_a), (b, in_b) in itertools.combinations(runs.items(), 2):
        assert not in_a & in_b, (a, b)


def test_shared_words_are_found():
    """By hand: eight words are shared despite comma and capital; none are once a middle word differs."""
    first, second = "a b c d e f g h x", "Y a, b c d E f g h"
    assert _runs(first, SHARED) & _runs(second, SHARED) == {tuple("abcdefgh")}
    assert not _runs(first, SHARED) & _runs("a b c d z f g h x", SHARED)
