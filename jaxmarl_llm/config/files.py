"""The config files of this project: beside the package in a checkout, inside it in an installed wheel."""

import importlib.util
import pathlib
import sys
import types

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
FOLDER = next(
    f for f in (_PACKAGE.parent / "configs", _PACKAGE / "configs") if (f / "published.py").is_file()
)


def experiment(name: str) -> types.ModuleType:
    """The module of a config file, such as "coding"; it is loaded only once."""
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
    """The path, or the project's own config file if the path is ``configs/<name>.py`` and does not exist."""
    own = FOLDER / pathlib.Path(path).name
    given = pathlib.Path(path)
    return str(own) if not given.exists() and given.parent.name == "configs" and own.is_file() else path
