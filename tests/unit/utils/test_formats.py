"""jaxmarl_llm/utils/formats.py: numbers of formats, migrations, files of newer versions."""

import json

import pytest

from jaxmarl_llm.utils import formats
from jaxmarl_llm.utils.errors import UserError


def test_what_is_written_has_the_number_and_what_is_read_has_not(tmp_path):
    path = formats.write(tmp_path / "a.json", {"step": 3})
    assert json.loads(path.read_text()) == {"format": formats.VERSION, "step": 3}
    assert formats.read(path) == {"step": 3}


def test_migrations_are_applied_in_turn_from_the_number_on(monkeypatch):
    monkeypatch.setattr(formats, "VERSION", 3)
    migrations = {0: lambda old: {**old, "trace": "0"}, 2: lambda old: {**old, "trace": old.get("trace", "") + "2"}}
    assert formats.upgraded({"a": 1}, "x", migrations) == {"a": 1, "trace": "02"}  # format 1 was not changed
    assert formats.upgraded({"a": 1, "format": 1}, "x", migrations) == {"a": 1, "trace": "2"}
    assert formats.upgraded({"a": 1, "format": 3}, "x", migrations) == {"a": 1}


def test_a_file_of_a_newer_version_is_refused_in_a_sentence():
    with pytest.raises(formats.NewerFormatError, match="^runs/x/a.json: is of format 99, which a newer version of"):
        formats.upgraded({"format": 99}, "runs/x/a.json")


@pytest.mark.parametrize("number", ["1", -1, 1.0, None, True])
def test_a_number_that_is_none_is_refused(number):
    with pytest.raises(UserError, match="a.json: format is .*; allowed are whole numbers up to"):
        formats.upgraded({"format": number}, "a.json")


@pytest.mark.parametrize("text, reason", [
    ("", "is empty"), (" \n", "is empty"), ('{"a": ', "not JSON"), ("[1]", "holds a JSON list"),
])
def test_a_damaged_file_is_named(tmp_path, text, reason):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match=f"a.json: {reason}"):
        formats.read(tmp_path / "a.json")
