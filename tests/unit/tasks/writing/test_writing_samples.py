"""The posts of the summarisation task: complete, of the promised length, plain ASCII, and all different."""

import collections
import json
import re

import pytest
from repository import ROOT

POSTS = ROOT / "jaxmarl_llm" / "tasks" / "data" / "writing" / "posts.jsonl"


@pytest.fixture(scope="module")
def posts():
    return [json.loads(line) for line in POSTS.read_text("utf-8").splitlines()]


def _words(text):
    """Lower-case words without punctuation: a copy with other commas is a copy."""
    return re.findall(r"[a-z0-9']+", text.lower())


def _shared(texts, length):
    """Sequences of `length` words that stand in more than one of the texts."""
    owners = collections.defaultdict(set)
    for number, text in enumerate(texts):
        words = _words(text)
        for start in range(len(words) - length + 1):
            owners[" ".join(words[start : start + length])].add(number)
    return sorted(sequence for sequence, numbers in owners.items() if len(numbers) > 1)


def _repeated(values):
    return [value for value, count in collections.Counter(values).items() if count > 1]


def test_one_hundred_and_twenty_rows_in_order(posts):
    assert [post["task_id"] for post in posts] == [f"post/{n}" for n in range(1, 121)]
    assert {tuple(post) for post in posts} == {("task_id", "title", "text")}


def test_length_and_alphabet(posts):
    for post in posts:
        assert 70 <= len(post["text"].split()) <= 130, post["task_id"]
        assert post["title"].isascii() and post["text"].isascii(), post["task_id"]


def test_titles_are_one_line_and_texts_up_to_three_clean_paragraphs(posts):
    for post in posts:
        paragraphs = post["text"].split("\n\n")
        assert len(paragraphs) <= 3, post["task_id"]
        for line in [post["title"], *paragraphs]:
            assert line and line == " ".join(line.split()), post["task_id"]


def test_every_post_speaks_in_the_first_person(posts):
    for post in posts:
        assert {"i", "i'm", "my", "me", "we", "our", "us"} & set(_words(post["text"])), post["task_id"]


def test_titles_and_openings_are_unique(posts):
    assert _repeated(" ".join(_words(post["title"])) for post in posts) == []
    assert _repeated(" ".join(_words(post["text"])[:5]) for post in posts) == []


def test_no_two_posts_share_eight_words_in_a_row(posts):
    """Otherwise a summary of one post could be scored for words of another."""
    assert _shared(["One two three, four.", "And: ONE two three five"], 3) == ["one two three"]
    assert _shared([post["text"] for post in posts], 8) == []
