"""Compiled programs kept on disk: the second run of a command loads what the first one compiled.

JAX's persistent compilation cache, in a folder of the user's cache unless JAX_COMPILATION_CACHE_DIR names
another one. A program is identified by its own text, the compiler's version and its flags, so a program of
another config or version is never used by mistake.
"""

import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import pathlib
import platform
import tempfile
from collections.abc import Mapping

from jaxmarl_llm.utils import jax_settings, user_cache
from jaxmarl_llm.utils.errors import UserError

VARIABLE = "JAX_COMPILATION_CACHE_DIR"  # JAX's own; if it is set, even to nothing, it counts
SECONDS = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
LEAST_SECONDS = 0.2  # programs that compile faster are not kept: reading them would take as long
MOST_BYTES = 2 * 2**30  # of the folder; the least recently used programs are dropped first
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_PLATFORMS", "JAX_DISABLE_MOST_OPTIMIZATIONS")


def folder(environment: Mapping[str, str] = os.environ) -> pathlib.Path:
    """Where programs are kept: <`user_cache.folder`>/compiled/<JAX's version>-<flags and processor>.

    A program for one processor may hold instructions that another one lacks, and home folders are shared
    between machines. UserError as `user_cache.folder`.
    """
    identity = "\n".join([*(environment.get(name, "") for name in FLAGS), _processor()])
    key = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return user_cache.folder(environment) / "compiled" / f"{importlib.metadata.version('jax')}-{key}"


def keep(environment: Mapping[str, str] = os.environ) -> pathlib.Path | None:
    """Keep compiled programs in `folder` from here on; returns it, or None if nothing was changed.

    Nothing is changed if the user has set JAX_COMPILATION_CACHE_DIR, or, with a warning, if the folder cannot
    be written to, or, without one, if the user has no home folder. Call it before anything is compiled.
    """
    if VARIABLE in environment:
        return None
    try:
        place = folder(environment)
    except UserError:
        return None
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        logging.warning("compiled programs are not kept: %s cannot be written to (%s)", place, error)
        return None
    jax_settings.update("jax_compilation_cache_dir", str(place))
    if SECONDS not in environment:
        jax_settings.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    if importlib.util.find_spec("filelock"):  # which JAX needs to keep a folder small
        jax_settings.update("jax_compilation_cache_max_size", MOST_BYTES)
    return place


def _processor() -> str:
    """The processor's name and features, as far as the system reports them."""
    cpu_file = pathlib.Path("/proc/cpuinfo")
    lines = cpu_file.read_text("utf-8").split("\n\n")[0].splitlines() if cpu_file.is_file() else []
    kept = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    return "\n".join([platform.machine(), platform.processor(), *kept])
