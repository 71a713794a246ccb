"""files.py: a file is the old one or the new one, never something between."""

import os

import pytest

from jaxmarl_llm.files import atomic_write_text


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
