"""The examples in the docstrings of the losses run, and every public function has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

from jaxmarl_llm import losses

MODULES = sorted(module.name for module in pkgutil.iter_modules(losses.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    actual = doctest.testmod(importlib.import_module(f"jaxmarl_llm.losses.{name}"), verbose=False)
    assert actual.failed == 0 and (actual.attempted > 0 or name == "checks")


def test_every_public_function_has_an_example():
    public = [getattr(losses, name) for name in losses.__all__]
    functions = [thing for thing in public if inspect.isfunction(thing)]
    assert len(functions) > 20
    assert [f.__name__ for f in functions if ">>> " not in f.__doc__] == []
