"""Names with slices, splits, and the lines of JSONL files."""

import importlib.resources
import json

import pytest

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.coding import items as coding_items
from jaxmarl_llm.tasks.programs import optimisation_items
from jaxmarl_llm.tasks.writing import items as writing_items


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


BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def test_problems_and_texts_from_an_editor_on_windows(tmp_path):
    """Of every kind of file with problems: a byte-order mark in front, and line ends with a carriage return."""
    code = {"task_id": "a", "prompt": "def f(x):\n", "entry_point": "f", "test": "def check(f):\n    assert f(1)"}
    (tmp_path / "code.jsonl").write_bytes(BYTE_ORDER_MARK + json.dumps(code).encode() + b"\r\n")
    assert [item.task_id for item in coding_items.load_jsonl(tmp_path / "code.jsonl")] == ["a"]
    (tmp_path / "texts.jsonl").write_bytes(BYTE_ORDER_MARK + b'{"text": "a"}\r\n{"text": "b"}\r\n')
    assert [item.text for item in writing_items.load_jsonl(tmp_path / "texts.jsonl")] == ["a", "b"]
    folder = importlib.resources.files("jaxmarl_llm.tasks") / "data" / "optimisation" / "python"
    shipped = min((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    text = shipped.read_text("utf-8")
    (tmp_path / "fast.toml").write_bytes(BYTE_ORDER_MARK + text.replace("\n", "\r\n").encode())
    assert optimisation_items.load_items(str(tmp_path / "fast.toml")) == optimisation_items.parse(text, "fast.toml")
