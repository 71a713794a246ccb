"""JAX's options, set without importing it: commands set them before they know whether they need JAX."""

import os
import sys


def update(name: str, value: bool | float | int | str) -> None:
    """Set an option such as ``jax_compilation_cache_dir``.

    Before JAX is imported it becomes the environment variable of that name, which JAX reads then, here and in
    the processes that this one starts.
    """
    if "jax" in sys.modules:
        sys.modules["jax"].config.update(name, value)
    else:
        os.environ[name.upper()] = str(value)
