"""jaxmarl_llm/utils/compiled_programs.py: where compiled programs are kept, and when they are not."""

import os
import pathlib
import subprocess
import sys

import jax
import pytest
from repository import ROOT

from jaxmarl_llm.utils import compiled_programs

NAMES = (
    "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs",
    "jax_compilation_cache_max_size",
)  # fmt: skip
# Compiles a program that is worth keeping at any speed, and says what it hears of the cache.
PROGRAM = """
import sys
from jaxmarl_llm.utils import compiled_programs
import jax, jax.numpy as jnp
from jax._src import monitoring
hits = []
monitoring.register_event_listener(lambda name, **_: hits.append(name))
print(compiled_programs.keep())
print(float(jax.jit(lambda x: jnp.sin(x).sum())(jnp.arange(5.0))))
print(sum(name.endswith("cache_hits") for name in hits))
"""


@pytest.fixture
def settings():
    """JAX's settings as they were, afterwards."""
    before = {name: getattr(jax.config, name) for name in NAMES}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_the_folder_knows_the_version_and_the_flags(tmp_path):
    plain = {"XDG_CACHE_HOME": str(tmp_path)}
    place = compiled_programs.folder(plain)
    assert place.parent == tmp_path / "jaxmarl_llm" / "compiled"
    assert place.name.startswith(f"{jax.__version__}-")
    other = compiled_programs.folder(plain | {"XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false"})
    assert other.parent == place.parent and other != place
    home = compiled_programs.folder({})
    assert home.parent == pathlib.Path.home() / ".cache" / "jaxmarl_llm" / "compiled"


@pytest.mark.parametrize("value", ["", "/somewhere/else"])
def test_a_setting_of_the_user_is_left_alone(value, settings):
    before = [getattr(jax.config, name) for name in NAMES]
    assert compiled_programs.keep({"JAX_COMPILATION_CACHE_DIR": value, "XDG_CACHE_HOME": "/nowhere"}) is None
    assert [getattr(jax.config, name) for name in NAMES] == before


def test_a_folder_that_cannot_be_written_to_is_a_warning(tmp_path, caplog, settings):
    (tmp_path / "cache").write_text("a file")
    before = jax.config.jax_compilation_cache_dir
    assert compiled_programs.keep({"XDG_CACHE_HOME": str(tmp_path / "cache")}) is None
    assert jax.config.jax_compilation_cache_dir == before
    (line,) = caplog.messages
    assert line.startswith(f"compiled programs are not kept: {tmp_path}/cache/jaxmarl_llm/compiled/")


def test_settings_made_before_jax_is_imported_are_its_own(tmp_path):
    code = """
import sys
from jaxmarl_llm.utils import compiled_programs, host_memory, jax_settings
host_memory.keep()
place = compiled_programs.keep()
assert "jax" not in sys.modules
import jax
jax_settings.update("jax_compilation_cache_max_size", 7)
print(jax.config.jax_compilation_cache_dir == str(place), jax.config.jax_persistent_cache_min_compile_time_secs)
print(jax.config.read("jax_cpu_enable_async_dispatch"), jax.config.jax_compilation_cache_max_size)
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout == "True 0.2\nFalse 7\n", done.stderr


@pytest.mark.slow
def test_a_second_process_loads_what_the_first_one_compiled(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    actual = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        place, value, hits = done.stdout.split("\n")[:3]
        actual.append((value, int(hits)))
    assert pathlib.Path(place).is_relative_to(tmp_path) and any(pathlib.Path(place).iterdir())
    assert actual[0][1] == 0 and actual[1][1] >= 1 and actual[0][0] == actual[1][0]


def test_a_program_that_is_only_half_written_is_compiled_again(tmp_path):
    """As where another process of the tests is still writing it: no warning that pytest makes an error."""
    from smoke_runs import programs_kept

    def double(x):
        return 2 * x

    with programs_kept(tmp_path):
        assert jax.jit(double)(3.0) == 6.0
        (kept,) = tmp_path.glob("jit_double-*-cache")
        kept.write_bytes(kept.read_bytes()[:-9])
        jax.clear_caches()
        assert jax.jit(double)(3.0) == 6.0
