"""Names with slices, splits, and the lines of JSONL files."""

import pytest

from jaxmarl_llm.tasks import sources


@pytest.mark.parametrize("source, name, chosen", [
    ("posts", "posts", slice(None)),
    ("posts[10:50]", "posts", slice(10, 50)),
    ("posts[:3]", "posts", slice(None, 3)),
    ("posts[-2:]", "posts", slice(-2, None)),
    ("posts[:]", "posts", slice(None, None)),
    ("a[1]/b.jsonl[2:4]", "a[1]/b.jsonl", slice(2, 4)),
    ("", "", slice(None)),
    ("posts[3]", "posts[3]", slice(None)),  # no slice: part of the name
    ("posts[a:b]", "posts[a:b]", slice(None)),
    ("posts[1:2:3]", "posts", slice(1, 2, 3)),
    ("posts[::2]", "posts", slice(None, None, 2)),
    ("posts[::0]", "posts[::0]", slice(None)),
])
def test_parse(source, name, chosen):
    assert sources.parse(source) == (name, chosen)


def test_splits_go_by_the_place_in_the_group():
    letters = list("abcdefghijklmnop")
    assert sources.of_split(letters, "all") == letters
    assert sources.of_split(letters, "validation") == ["d", "l"]  # the 4th and the 12th
    assert sources.of_split(letters, "test") == ["h", "p"]  # the 8th and the 16th
    assert sources.of_split(letters, "train") == list("abcefgijkmno")
    # Counted in each group apart: of the capitals A C E G the fourth is G, of the others h.
    mixed = list("AbCdEfGh")
    assert sources.of_split(mixed, "validation", group=str.isupper) == ["G", "h"]
    assert sources.of_split(mixed, "test", group=str.isupper) == []


def test_json_lines():
    text = '{"a": 1}\n\n[1]\n{"a"\n  \n{"b": "\u2028 is no line end"}'
    (one, two, three, four) = sources.json_lines(text)
    assert one == (1, {"a": 1}, []) and four == (6, {"b": "\u2028 is no line end"}, [])
    assert two == (3, {}, ["a JSON list, expected an object"])
    assert three[:2] == (4, {}) and three[2][0].startswith("invalid JSON (")
    assert list(sources.json_lines(" \n")) == []
    assert next(sources.json_lines("[" * 100_000))[2][0].startswith("invalid JSON (")  # too deep


def test_check_split():
    for split in ("train", "validation", "test", "all"):
        sources.check_split(split)
    with pytest.raises(ValueError, match="split is 'val'; allowed: train, validation, test, all"):
        sources.check_split("val")
