"""Functions as tools in the sandbox, and coding's run_tests."""

import functools
import sys

import pytest
from scripted_coding import ITEM
from toolboxes import call

from jaxmarl_llm.config import base_config
from jaxmarl_llm.executor import Executor, Limits
from jaxmarl_llm.factory import tasks, tools
from jaxmarl_llm.tasks.coding import run_tests
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.task import CodingTask
from jaxmarl_llm.tasks.planned import PlannedTask
from jaxmarl_llm.tasks.tools import Call, Toolbox, sandboxed
from jaxmarl_llm.tasks.tools.toolbox import of_function
from jaxmarl_llm.utils.dotted import UserCodeError
from jaxmarl_llm.utils.errors import UserError

SOURCE = '''
import os, time

SEEN = []

def add(a: int, b: int = 1) -> str:
    """Adds."""
    SEEN.append(a)
    return f"{a + b} after {len(SEEN)}"

def divide(a: int, b: int) -> float:
    """Divides."""
    return a / b

def spin(forever: bool) -> str:
    """Takes long."""
    while forever:
        pass
    return "done"

def end() -> str:
    """Ends the process."""
    os._exit(0)

def read(path: str) -> str:
    """Reads a file."""
    return open(path).read()

def of_item(item, a: int) -> str:
    """Needs the problem."""

async def later(a: int) -> str:
    """Waits."""
'''


@pytest.fixture(scope="module")
def executor():
    with Executor(1, Limits(cpu_seconds=0.3)) as started:
        yield started


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "own_tools.py").write_text(SOURCE)
    (tmp_path / "needy_tools.py").write_text(f"import psutil\n{SOURCE}")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("own_tools", "needy_tools"):
        sys.modules.pop(name, None)


def test_calls_run_apart_and_cannot_hang(executor, module):
    names = [f"own_tools.{name}" for name in ("add", "divide", "spin", "end", "read")]
    box = Toolbox(sandboxed.of_names(names, executor))
    (module / "secret").write_text("secret")
    calls = {
        call("add", a=1): "2 after 1",
        call("add", a=2): "3 after 1",  # nothing stays
        call("divide", a=1, b=0): "error: ZeroDivisionError: division by zero",
        call("spin", forever=True): "error: it took longer than 0.3 s of CPU time",
        call("end"): "error: it ended the process",
        call("add", a="1"): 'error: a of add must be a whole number, not "1"',
    }
    assert box.results([Call(None, text) for text in calls]) == list(calls.values())
    if executor.level > 1:
        assert "secret" not in box.result(None, call("read", path=str(module / "secret")))
    assert "own_tools" in sys.modules and sys.modules["own_tools"].SEEN == []


@pytest.mark.parametrize("head, coding", [("# coding: latin-1\n", "latin-1"), ("", "utf-8-sig"), ("", "utf-8")])
def test_files_are_read_in_their_own_encoding(executor, module, head, coding):
    source = f'{head}def word(n: int) -> str:\n    """Repeats."""\n    return "é" * n\n'
    (module / "own_tools.py").write_bytes(source.encode(coding))
    box = Toolbox(sandboxed.of_names(["own_tools.word"], executor))
    assert box.result(None, call("word", n=3)) == "ééé"


def test_functions_that_cannot_run_there(executor, module):
    with pytest.raises(ValueError, match="tools.functions 'own_tools.of_item': its parameter 'item' is the problem"):
        sandboxed.of_names(["own_tools.of_item"], executor)
    with pytest.raises(ValueError, match="'own_tools.later' is an async def, .*; allowed are other functions"):
        sandboxed.of_names(["own_tools.later"], executor)
    with pytest.raises(ValueError, match="'needy_tools.add': its file cannot be loaded in the sandbox .*psutil"):
        sandboxed.of_names(["needy_tools.add"], executor)


def test_a_config_starts_the_sandbox_for_them(module):
    config = base_config()
    config.task.kind, config.executor.workers = "reasoning", 1
    with tasks.build_executor(config) as none:
        assert none is None
    config.tools.update(functions=("own_tools.add",), place="sandbox")
    with tasks.build_executor(config) as started, tools.opened(config, started, None) as box:
        assert box.result(None, call("add", a=1)) == "2 after 1"


TESTS = """def check(candidate):
    assert candidate(1) == 2
    assert candidate(5) == 6
    assert candidate(0) == 1
"""
ONE_MORE = CodingItem("p", "One more.", "one_more", TESTS, ("n",))
RIGHT, PART = "def one_more(n):\n    return n + 1", "def one_more(n):\n    return 2"


def test_run_tests_shows_the_revealed_tests_only(executor):
    for revealed, held_back, right, part in (
        (1, 0.0, "passed 1 of 1", "passed 1 of 1"),
        (2, 0.0, "passed 2 of 2", "passed 1 of 2\nfirst failure: assert one_more(5) == 6 -> AssertionError"),
        (0, 0.4, "passed 2 of 2", "passed 1 of 2\nfirst failure: assert one_more(5) == 6 -> AssertionError"),
    ):
        task = CodingTask([ONE_MORE], executor, revealed_tests=revealed, held_back=held_back)
        box = Toolbox(task.tools())
        assert box.names == (run_tests.NAME,)
        assert box.result(ONE_MORE, call("run_tests", program=RIGHT)) == right
        assert box.result(ONE_MORE, call("run_tests", program=f"```python\n{PART}\n```")) == part


def test_run_tests_of_what_cannot_run(executor):
    box = Toolbox(CodingTask([ONE_MORE], executor).tools())

    def result(program):
        return box.result(ONE_MORE, call("run_tests", program=program))

    assert result("def aux(n):\n    return n") == "error: the program does not define one_more, which the tests call"
    assert result("one_more is (") == "error: the program is no Python (line 1: '(' was never closed)"
    assert "SyntaxError: '(' was never closed" in result("def one_more(n:")
    assert "NameError: name 'aux' is not defined" in result("def one_more(n):\n    return aux(n) + 1")
    assert result("def aux(n):\n    return n\n\ndef one_more(n):\n    return aux(n) + 1") == "passed 1 of 1"
    assert "timeout" in result("def one_more(n):\n    while True:\n        pass")


def test_a_task_without_tools_is_refused():
    config = base_config()
    config.tools.of_task = True
    with pytest.raises(ValueError, match="tools.of_task=True: task.kind='coding' has no tools"):
        with tools.opened(config, None, object()):
            pass
    with tools.opened(config, None, CodingTask([ITEM], None)) as box:
        assert box.names == ("run_tests",)


class Shop:
    """Knows prices, by a method that is a tool."""

    def __init__(self, listed):
        self.tools, self._prices = functools.partial(listed, self), {"tea": 3}

    def price(self, good: str) -> int:
        """What a good costs."""
        return self._prices[good]


@pytest.mark.parametrize("listed", [
    lambda shop: [shop.price], lambda shop: (of_function(f) for f in (shop.price,)), lambda shop: (shop.price,),
])  # fmt: skip
def test_tools_of_a_task_of_ones_own(listed):
    config = base_config()
    config.tools.of_task = True
    with tools.opened(config, None, Shop(listed)) as box:
        assert box.lines() == ["price(good: text): What a good costs."]
        assert box.result(ONE_MORE, call("price", good="tea")) == "3"


@pytest.mark.parametrize("listed, kind, message", [
    (lambda shop: None, UserError, "of task.kind='coding' gave None; expected a list of functions, or of Tools"),
    (lambda shop: ["price"], UserError, r"of task.kind='coding' gave \['price'\]; expected a list of functions"),
    (lambda shop: [], UserError, "task.kind='coding' has no tools, allowed are tasks with a method"),
    (lambda shop: 1 / 0, UserCodeError, r"tools of task.kind='coding' raised \(ZeroDivisionError: division by zero"),
])  # fmt: skip
def test_tools_of_a_task_that_are_none(listed, kind, message):
    config = base_config()
    config.tools.of_task = True
    with pytest.raises(kind, match=f"^tools.of_task=True: .*{message}"):
        with tools.opened(config, None, Shop(listed)):
            pass


def test_a_planner_calls_the_tools_of_the_task(executor):
    """Of coding with one role, as three agents play it."""
    task = PlannedTask(CodingTask([ONE_MORE], executor, ("main",)), ("planner", "caller", "summarizer"))
    config = base_config()
    config.tools.of_task = True
    with tools.opened(config, executor, task) as box:
        assert box.result(ONE_MORE, call("run_tests", program=RIGHT)) == "passed 1 of 1"
