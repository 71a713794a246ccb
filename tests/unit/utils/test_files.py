"""files.py: a file is the old one or the new one, never something between."""

import os

import pytest

from jaxmarl_llm.utils.files import atomic_write_text, read_json, read_json_lines, read_text, safe_text


def test_writes_and_replaces_with_ordinary_permissions(tmp_path):
    path = atomic_write_text(tmp_path / "new" / "a.txt", "één\n")
    assert path.read_bytes() == "één\n".encode()
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    atomic_write_text(path, "two")
    assert path.read_text() == "two"
    assert list(path.parent.iterdir()) == [path]


def test_failure_before_the_end_keeps_the_old_file(tmp_path, monkeypatch):
    path = atomic_write_text(tmp_path / "a.txt", "old")

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        atomic_write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_reads_json_of_the_type_asked_for(tmp_path):
    path = atomic_write_text(tmp_path / "a.json", '{"é": [1]}')
    assert read_json(path) == {"é": [1]}
    assert read_json(atomic_write_text(tmp_path / "b.json", "[1]"), list) == [1]


@pytest.mark.parametrize("content, complaint", [
    (b"{", r"a\.json: not JSON"),
    (b"\xff", r"a\.json: cannot be read .*utf-8.*; save it as UTF-8"),
    (b"[" * 100_000, r"a\.json: not JSON"),
    (b"[1]", r"a\.json: holds a JSON list, expected a dict"),
    (None, r"a\.json: cannot be read .No such file"),
])  # fmt: skip
def test_json_errors_name_the_file(tmp_path, content, complaint):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=complaint):
        read_json(path)


@pytest.mark.parametrize("content, text", [
    (b"a\n", "a\n"), (b"\xef\xbb\xbfa\n", "a\n"), (b"a\r\nb\r\n", "a\nb\n"), (b"", ""),
    ("\ufeff\u00e9\ufeff\n".encode(), "\u00e9\ufeff\n"),
])  # fmt: skip
def test_text_of_editors_on_windows(tmp_path, content, text):
    (tmp_path / "a.txt").write_bytes(content)
    assert read_text(tmp_path / "a.txt") == text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_text_in_utf_16_is_named(tmp_path, encoding):
    mark = "" if encoding == "utf-16" else "\ufeff"
    (tmp_path / "a.jsonl").write_bytes(f'{mark}{{"text": "a"}}'.encode(encoding))
    with pytest.raises(ValueError, match=r"a\.jsonl: cannot be read .its encoding is UTF-16; save it as UTF-8"):
        read_text(tmp_path / "a.jsonl")


def test_json_behind_a_byte_order_mark(tmp_path):
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"x": 1}\r\n')
    assert read_json(tmp_path / "a.json") == {"x": 1}
    assert read_json_lines(tmp_path / "a.json", lambda row: row["x"]) == [1]


def test_json_lines_with_other_separators_inside(tmp_path):
    path = atomic_write_text(tmp_path / "a.jsonl", '{"x": "a\u2028b"}\n{"x": "c\x85d"}\n')
    assert read_json_lines(path, lambda row: row["x"]) == ["a\u2028b", "c\x85d"]
    assert read_json_lines(atomic_write_text(path, ""), dict) == []


def test_json_lines_name_the_line(tmp_path):
    path = atomic_write_text(tmp_path / "a.jsonl", '{"x": 1}\n{"x": 2}\n')
    assert read_json_lines(path, lambda row: row["x"]) == [1, 2]
    for second, reason in (('{"y": 2}', "KeyError: 'x'"), ("[]", "TypeError"), ("{", "JSONDecodeError")):
        atomic_write_text(path, '{"x": 1}\n' + second + "\n")
        with pytest.raises(ValueError, match=rf"a\.jsonl, line 2: cannot be read .{reason}"):
            read_json_lines(path, lambda row: row["x"])
    with pytest.raises(ValueError, match=r"none\.jsonl: cannot be read"):
        read_json_lines(tmp_path / "none.jsonl", dict)


def test_half_surrogates_become_question_marks():
    assert safe_text("a\ud800é♞") == "a?é♞"
