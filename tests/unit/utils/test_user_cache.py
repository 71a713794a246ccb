"""jaxmarl_llm/utils/user_cache.py: where things are kept, also for users without a home folder."""

import pathlib
import pwd

import jax
import pytest

from jaxmarl_llm.utils import compiled_programs, user_cache
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import fingerprints, model_files


@pytest.fixture
def homeless(monkeypatch):
    """A user whose id the system does not know, without HOME."""

    def unknown(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("HOME", "XDG_CACHE_HOME", "JAXMARL_LLM_CACHE", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


def test_the_order_of_the_variables(tmp_path):
    assert user_cache.folder({"JAXMARL_LLM_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == pathlib.Path("/a")
    assert user_cache.folder({"XDG_CACHE_HOME": "/b"}) == pathlib.Path("/b/jaxmarl_llm")
    assert user_cache.folder({}) == pathlib.Path.home() / ".cache" / "jaxmarl_llm"


@pytest.mark.parametrize("need", [
    user_cache.folder, model_files.cache_folder, lambda: model_files.find("~/model"),
    lambda: fingerprints.of_model("~/model"), compiled_programs.folder, model_files._hub_cache,
])
def test_without_a_home_the_variable_is_named(homeless, need):
    with pytest.raises(UserError, match="this user has no home folder .*set JAXMARL_LLM_CACHE to a folder"):
        need()


def test_without_a_home_the_variable_is_enough(homeless, monkeypatch, tmp_path):
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path))
    assert model_files.cache_folder() == tmp_path
    assert model_files._hub_cache() == tmp_path / "hub"
    assert compiled_programs.folder().parent == tmp_path / "compiled"


def test_without_a_home_programs_are_not_kept_and_nothing_is_said(homeless, caplog):
    before = jax.config.jax_compilation_cache_dir
    assert compiled_programs.keep({}) is None
    assert jax.config.jax_compilation_cache_dir == before and not caplog.messages
