"""The program of the page about checks runs on the examples of the pages, and needs no test runner."""

import re

from repository import ROOT

MODULES = {"check": "tasks", "letters": "tasks", "backwards": "tasks", "ranks": "systems", "my_loss": "losses"}


def test_the_program_of_the_page_runs(tmp_path, monkeypatch):
    for name, page in MODULES.items():
        first, *blocks = re.findall(r"```python\n(.*?)```", (ROOT / f"docs/{page}.md").read_text(), re.DOTALL)
        named = [block for block in (first, *blocks) if block.startswith(f"# {name}.py")]
        (tmp_path / f"{name}.py").write_text(named[0] if named else first)
    monkeypatch.syspath_prepend(tmp_path)
    exec((tmp_path / "check.py").read_text(), {})


def test_nothing_of_a_test_runner_is_imported():
    for path in ROOT.glob("jaxmarl_llm/testing/*.py"):
        assert not re.search(r"import pytest|from pytest", path.read_text()), path
