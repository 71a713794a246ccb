"""factory/engines.py: what is checked before a run draws by servers."""

import pytest

from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import engines
from jaxmarl_llm.rollout.engines.calls import Server
from jaxmarl_llm.utils.errors import UserError


def opened(folder, adapter_folder):
    config = base_config()
    config.update_from_flattened_dict({
        "engine.kind": "completions", "engine.servers": ("http://127.0.0.1:1",), "engine.retries": 0,
        "engine.adapter_folder": str(adapter_folder),
    })  # fmt: skip
    return engines.opened(config, folder)


def test_a_folder_that_cannot_be_written_is_named_before_the_servers_are_called(tmp_path, monkeypatch):
    monkeypatch.setattr(Server, "call", lambda *given, **options: pytest.fail("a server"))
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match=f"^engine.adapter_folder='{place}': .* cannot be written to: .*") as error:
            with opened(tmp_path, place):
                pass
        assert "\n" not in str(error.value)


def test_a_folder_of_the_home_is_that_of_its_user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(UserError, match="the server http://127.0.0.1:1 of engine.servers: no connection"):
        with opened(tmp_path, "~/adapters"):
            pass
    assert (tmp_path / "home" / "adapters").is_dir()
