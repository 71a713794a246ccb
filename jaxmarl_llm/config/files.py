"""The config files of this project: in a checkout beside the package, in an installed wheel inside it."""

import importlib.util
import pathlib
import sys
import types

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
FOLDER = next(
    f for f in (_PACKAGE.parent / "configs", _PACKAGE / "configs") if (f / "published.py").is_file()
)


def experiment(name: str) -> types.ModuleType:
    """The module of a config file, such as "coding"; one that is imported already is not loaded again."""
    path, module_name = FOLDER / f"{name}.py", f"configs.{name}"
    module = sys.modules.get(module_name)
    if module is not None and pathlib.Path(module.__file__).resolve() == path:
        return module
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module


def find(path: str) -> str:
    """A config file as given, or, where ``configs/<name>.py`` is not there, the project's own of that name."""
    own = FOLDER / pathlib.Path(path).name
    given = pathlib.Path(path)
    return str(own) if not given.exists() and given.parent.name == "configs" and own.is_file() else path
