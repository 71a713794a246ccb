"""JAX's options, set without importing it: a command sets them before it knows whether it needs JAX."""

import importlib.abc
import importlib.util
import sys

_wanted: dict[str, bool | float | int | str] = {}  # until JAX is imported


def update(name: str, value: bool | float | int | str) -> None:
    """Set an option such as ``jax_compilation_cache_dir``, now or as soon as JAX is imported."""
    if "jax" in sys.modules:
        sys.modules["jax"].config.update(name, value)
        return
    if not _wanted:
        sys.meta_path.insert(0, _OnImport())
    _wanted[name] = value


class _OnImport(importlib.abc.MetaPathFinder):
    """Sets the options when JAX has been imported, by whichever module comes first.

    Some options, such as jax_cpu_enable_async_dispatch, have no environment variable that would do.
    """

    def find_spec(self, fullname, path, target=None):
        """JAX as it would be found otherwise, with the options set at the end of its import; None for others."""
        if fullname != "jax":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_set(module) -> None:
            execute(module)
            while _wanted:
                module.config.update(*_wanted.popitem())

        spec.loader.exec_module = execute_and_set  # type: ignore[method-assign]
        return spec
