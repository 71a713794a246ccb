"""What the executor's own source may not contain."""

import ast
import pathlib

import pytest

from jaxmarl_llm import executor

FILES = sorted(pathlib.Path(executor.__file__).parent.rglob("*.py"))
# Candidate text runs in the candidate's process, the tests' text in the tester.
MAY_EXEC = {"candidate.py", "script.py", "tester.py"}
FORBIDDEN_MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "multiprocessing",
}


def findings(source: str, name: str) -> list[str]:
    """Lines with what is forbidden in the file of that name."""
    actual = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").split(".")[0]]
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if called in ("eval", "system", "popen", "execfile") or (
                called == "exec" and name not in MAY_EXEC
            ):
                actual.append(f"{name}:{node.lineno} {called}()")
            for keyword in node.keywords:
                if keyword.arg == "shell" and getattr(keyword.value, "value", True):
                    actual.append(f"{name}:{node.lineno} shell=True")
        actual += [f"{name}:{node.lineno} import {module}" for module in set(names) & FORBIDDEN_MODULES]
    return actual


def test_no_pickle_no_eval_no_shell_and_exec_in_three_places_only():
    assert len(FILES) > 20
    assert [line for path in FILES for line in findings(path.read_text(), path.name)] == []
    assert {path.name for path in FILES if "exec(" in path.read_text()} >= MAY_EXEC


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from marshal import loads",
        "import multiprocessing.pool",
        "eval('1')",
        "import builtins\nbuiltins.eval('1')",
        "exec(text)",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import os\nos.system('ls')",
    ],
)
def test_the_search_finds_what_it_looks_for(source):
    assert findings(source, "pool.py")
