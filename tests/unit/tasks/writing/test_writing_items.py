"""Texts to write about: rows of files, sample sets, splits, and the public data sets without a network."""

import json
import subprocess
import sys
import types

import pytest
from repository import ROOT

from jaxmarl_llm.tasks.writing import items as writing_items
from jaxmarl_llm.tasks.writing.items import WritingItem, load_items, load_jsonl, load_sample


def write(tmp_path, *rows, name="rows.jsonl"):
    path = tmp_path / name
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), "utf-8")
    return path


def ids(items):
    return [item.task_id for item in items]


def test_good_rows(tmp_path):
    path = write(
        tmp_path,
        {"task_id": "p/1", "title": "Drums", "text": " My neighbour\ndrums. \n", "more": 1},
        "",
        {"text": "Only a text."},
        {"task_id": 7, "text": ["One sentence.", "Another."]},
    )
    assert load_jsonl(path) == [
        WritingItem("p/1", "My neighbour\ndrums.", "Drums", {"more": 1}),
        WritingItem("rows/3", "Only a text."),  # by its line
        WritingItem("7", "One sentence. Another."),
    ]


def test_another_column(tmp_path):
    path = write(tmp_path, {"task_id": "a", "post": "words"}, {"task_id": "b", "post": "more words"})
    assert [item.text for item in load_jsonl(path, "post")] == ["words", "more words"]
    assert [item.text for item in load_items(str(path), column="post")] == ["words", "more words"]
    message = r"rows\.jsonl: no column 'text'; columns present: task_id, post$"
    for load in (load_jsonl, lambda path: load_items(str(path))):
        with pytest.raises(ValueError, match=message):
            load(path)


def test_all_bad_rows_are_reported_at_once(tmp_path):
    path = write(
        tmp_path,
        {"task_id": "good", "text": "x"},  # line 1
        "{not json",  # line 2
        "",
        [1, 2],  # line 4
        {"task_id": "a"},  # line 5
        {"task_id": "b", "text": " \n"},  # line 6
        {"task_id": "c", "text": 3, "title": None},  # line 7
        {"task_id": ["d"], "text": "x"},  # line 8
        {"task_id": "good", "text": "x"},  # line 9
        {"task_id": "e", "text": ["x", 1]},  # line 10
        {"task_id": "f", "text": []},  # line 11
    )
    with pytest.raises(ValueError) as caught:
        load_jsonl(path)
    first, *lines = str(caught.value).split("\n")
    assert first == f"{path}: 9 bad row(s)"
    expected = {
        2: "invalid JSON", 4: "a JSON list, expected an object", 5: "no column 'text'",
        6: "column 'text' is empty",
        7: "column 'text' is 3, expected text; field 'title' is None, expected text",
        8: "field 'task_id' is ['d'], expected text", 9: "task_id 'good' was already used in line 1",
        10: "column 'text' is ['x', 1], expected text", 11: "column 'text' is empty",
    }
    assert len(lines) == len(expected)
    for line, (number, complaint) in zip(lines, expected.items(), strict=True):
        assert line.startswith(f"  line {number}: ") and complaint in line


def test_files_without_rows(tmp_path):
    with pytest.raises(ValueError, match=r"rows\.jsonl: no rows; expected one JSON object per line with"):
        load_jsonl(write(tmp_path, "", "  "))
    with pytest.raises(ValueError, match=r"rows\.jsonl: 2 bad row\(s\)"):
        load_jsonl(write(tmp_path, "no", "json"))
    with pytest.raises(ValueError, match=r"nowhere\.jsonl: cannot be read"):
        load_jsonl(tmp_path / "nowhere.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"text": "\xe9"}')
    with pytest.raises(ValueError, match=r"latin\.jsonl: cannot be read"):
        load_jsonl(tmp_path / "latin.jsonl")


def test_splits_and_slices_of_a_file(tmp_path):
    path = write(tmp_path, *({"task_id": f"t{k}", "text": "x"} for k in range(1, 10)))
    assert ids(load_items(str(path))) == [f"t{k}" for k in range(1, 10)]
    assert ids(load_items(str(path), "validation")) == ["t4"]
    assert ids(load_items(str(path), "test")) == ["t8"]
    assert ids(load_items(str(path), "train")) == ["t1", "t2", "t3", "t5", "t6", "t7", "t9"]
    assert ids(load_items(f"{path}[2:4]", "train")) == ["t3", "t5"]  # the split first
    assert ids(load_items(f"{path}[-1:]")) == ["t9"]
    with pytest.raises(ValueError, match=r"\[9:\]', split 'all' holds no texts; choose a larger slice"):
        load_items(f"{path}[9:]")
    other = write(tmp_path, {"task_id": "x", "text": "x"}, name="texts.json")
    assert ids(load_items(str(other))) == ["x"]  # any name, if the file is there


@pytest.mark.parametrize("name", ["sample_posts", "sample_abstracts"])
def test_sample_sets(name):
    items = load_items(name)
    assert items == load_sample(name) and len(items) >= 8
    assert len({item.task_id for item in items}) == len({item.text for item in items}) == len(items)
    assert all(item.title and len(item.text.split()) >= 20 for item in items)
    train, validation, test = (load_items(name, split) for split in ("train", "validation", "test"))
    assert (validation, test) == (items[3::8], items[7::8])
    assert len({*ids(train), *ids(validation), *ids(test)}) == len(items)
    assert load_items(f"{name}[2:5]", "train") == train[2:5]


def test_another_column_of_a_sample_set():
    with pytest.raises(ValueError, match=r"posts\.jsonl: no column 'body'; columns present: task_id, title"):
        load_items("sample_posts", column="body")


@pytest.mark.parametrize("source", ["", "sample", "tldr", "trl-lib/tldr[3]", "sample_posts[a:b]", "/no/file"])
def test_an_unknown_source(source):
    with pytest.raises(ValueError, match=r"source is .*; allowed: 'sample_posts', .*'trl-lib/tldr'"):
        load_items(source)


def test_an_unknown_split():
    with pytest.raises(ValueError, match="split is 'held_out'; allowed: train, validation, test, all"):
        load_items("sample_posts", "held_out")


class Table:
    """What `datasets.load_dataset` returns, as far as it is used: column names, and a column by its name."""

    def __init__(self, **columns):
        self._columns, self.column_names = columns, list(columns)

    def __getitem__(self, column):
        return self._columns[column]


@pytest.fixture
def hub(monkeypatch):
    """Puts tables {(name, split): Table} in the place of the hub, and keeps what was asked for."""
    tables, asked = {}, []

    def load_dataset(name, split):
        asked.append((name, split))
        return tables[name, split]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    return types.SimpleNamespace(tables=tables, asked=asked)


def test_public_posts(hub):
    train, test = Table(prompt=["POST: a\nTL;DR:", "b", "c"]), Table(prompt=["d"], completion=["e"])
    tables = {"train[:1000]": train, "train[1000:1200]": Table(prompt=["v"]), "test[:1000]": test}
    hub.tables.update({("trl-lib/tldr", rows): table for rows, table in tables.items()})
    assert load_items("trl-lib/tldr[:2]", "train") == [
        WritingItem("trl-lib/tldr/train/0", "POST: a\nTL;DR:"), WritingItem("trl-lib/tldr/train/1", "b")]
    assert load_items("trl-lib/tldr", "test") == [WritingItem("trl-lib/tldr/test/0", "d")]
    assert load_items("trl-lib/tldr", "validation") == [WritingItem("trl-lib/tldr/validation/0", "v")]
    assert [item.text for item in load_items("trl-lib/tldr")] == ["POST: a\nTL;DR:", "b", "c", "v", "d"]
    assert [item.text for item in load_items("trl-lib/tldr", "test", column="completion")] == ["e"]
    assert hub.asked[:2] == [("trl-lib/tldr", "train[:1000]"), ("trl-lib/tldr", "test[:1000]")]


def test_public_abstracts(hub):
    name = "OpenMLRL/arXiv_abstract"
    hub.tables[name, "train[:1000]"] = Table(article_id=["1"], abstract_text=["We show it."])
    hub.tables[name, "train[1000:1200]"] = Table(abstract_text=["And more."])
    hub.tables[name, "val[:1000]"] = Table(abstract_text=["It is so.", ["It", "is not."]])
    texts = ["We show it.", "And more.", "It is so.", "It is not."]
    assert [item.text for item in load_items(name)] == texts
    assert hub.asked == [(name, rows) for rows in ("train[:1000]", "train[1000:1200]", "val[:1000]")]


def test_public_data_that_is_not_as_expected(hub):
    hub.tables["trl-lib/tldr", "train[:1000]"] = Table(prompt=["a", "", 3], label=[0, 1, 0])
    with pytest.raises(ValueError, match="trl-lib/tldr: no column 'text'; columns present: prompt, label"):
        load_items("trl-lib/tldr", "train", column="text")
    with pytest.raises(ValueError) as caught:
        load_items("trl-lib/tldr", "train")
    assert str(caught.value).split("\n") == [
        "trl-lib/tldr: 2 bad row(s)", "  train row 1: column 'prompt' is empty",
        "  train row 2: column 'prompt' is 3, expected text"]


def test_public_data_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"'trl-lib/tldr' needs the package datasets.*jaxmarl_llm\[data\]"):
        load_items("trl-lib/tldr")


def test_the_package_is_not_needed_for_anything_else():
    code = "import sys, jaxmarl_llm.tasks.writing.items; assert 'datasets' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert set(writing_items.HUB_SETS) == {"trl-lib/tldr", "OpenMLRL/arXiv_abstract"}
