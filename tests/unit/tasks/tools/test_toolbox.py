"""Tools from functions, and what every kind of call gives back: a result, or a sentence that an agent can act on."""

import asyncio
import dataclasses
import functools
import sys

import pytest
from toolboxes import BOX, add, call

from jaxmarl_llm.tasks.tools import Call, Tool, Toolbox
from jaxmarl_llm.tasks.tools.toolbox import LONGEST, of_function, of_names


@pytest.mark.parametrize("text, result", [
    (call("add", a=2, b=3), "5"),
    (call("add", a=2), "3"),
    (call("share", part=1, whole=4), "0.25"),
    (call("passed", text="p"), "True"),
    (call("passed", text="q", strict=True), "False strictly"),
    (call("add", a=1, b=1) + call("add", a=5, b=5), "10"),  # the last call counts
    ('<tool_call>{"name": "add", "arguments": {"a": 1}}', "2"),  # without the end tag
    ("<tool_call>add(1, 2)</tool_call>", "error: the call is not a JSON object between the tags"),
    ("<tool_call>[1]</tool_call>", 'error: the call needs "name" and "arguments"'),
    ('<tool_call>{"arguments": {}}</tool_call>', 'error: the call needs "name" and "arguments"'),
    (call("sub", a=1), "error: there is no tool 'sub'; there are add, share, passed"),
    (call("add"), "error: add needs the argument 'a'"),
    (call("add", a=1, c=2), "error: add has no argument 'c'; it has a, b"),
    (call("add", a="1"), 'error: a of add must be a whole number, not "1"'),
    (call("add", a=True), "error: a of add must be a whole number, not true"),
    (call("share", part="x", whole=1), 'error: part of share must be a number, not "x"'),
    ('<tool_call>{"name": "add", "arguments": [1]}</tool_call>',
     "error: the arguments of add are a JSON object with a, b"),
    (call("share", part=1, whole=0), "error: ZeroDivisionError: float division by zero"),
    (call("passed", text="\ud800"), "error: the call holds half of a surrogate pair, which is no character"),
    (call("passed", text="\U0001f600", strict=True), "False strictly"),  # a whole pair
    ("<tool_call>" + "[" * 3000, "error: the call is not a JSON object between the tags"),
])  # fmt: skip
def test_what_a_call_gives_back(text, result):
    assert BOX.result("p", text) == result


@pytest.mark.parametrize("at_once", [False, True])
def test_a_tool_that_exits_ends_nothing(at_once):
    tool = Tool("leave", "Leaves.", {}, sys.exit, at_once=at_once)
    assert Toolbox([tool]).results([Call("p", call("leave"))] * 2) == ["error: SystemExit"] * 2


def test_long_results_are_cut():
    assert len(Toolbox([Tool("say", "Says.", {}, lambda: "x" * 9999)]).result("p", call("say"))) == LONGEST


def test_what_agents_read():
    text = BOX.describe()
    assert "add(a: whole number, b: whole number (may be left out)): Adds two numbers.\n" in text
    assert "passed(text: text, strict: true or false (may be left out)): Says whether" in text and "item" not in text
    assert '<tool_call>{"name": "add", "arguments": {"<name>": "<value>"}}</tool_call>' in text


def blank(a: int):
    """  """


def nothing(a: int):
    return a


def untyped(a) -> int:
    """Has no type."""
    return a


def listed(a: list) -> int:
    """Has another type."""
    return len(a)


class Adder:
    """Adds."""

    def __call__(self, a: int) -> int:
        return a


def steps(a: int):
    """Counts."""
    yield a


async def later_steps(a: int):
    """Counts."""
    yield a


def before(a: int, /, b: int) -> int:
    """Adds."""
    return a + b


def several(*names: str) -> str:
    """Joins."""
    return ",".join(names)


def by_name(**numbers: int) -> int:
    """Adds."""
    return sum(numbers.values())


def unknown(a: "Nowhere") -> int:  # noqa: F821
    """Has a type that is not there."""
    return a


async def double(a: int) -> int:
    """Doubles."""
    await asyncio.sleep(0)
    return 2 * a


def test_coroutines_are_awaited():
    box = Toolbox([of_function(double), dataclasses.replace(of_function(double, "quick"), at_once=True)])
    assert box.result(None, call("double", a=4)) == "8"
    calls = [Call(None, call(name, a=n)) for n, name in enumerate(("quick", "double", "quick"))]
    assert box.results(calls) == ["0", "2", "4"]

    async def in_a_loop():  # as in a notebook
        return box.result(None, call("double", a=5))

    assert asyncio.run(in_a_loop()) == "10"


@pytest.mark.parametrize("function, message", [
    (Adder, "tools.functions 'Adder' is a class; allowed are functions"),
    (Adder(), "tools.functions .*Adder object .* is a Adder; allowed are functions"),
    (functools.partial(before, 1), "tools.functions .* is a partial; allowed are functions"),
    (steps, "tools.functions 'steps' is a generator; allowed are functions that return their result"),
    (later_steps, "tools.functions 'later_steps' is a generator; allowed"),
    (before, "'before': its parameter 'a: int' is positional-only; allowed are those that can be given by name"),
    (several, r"'several': its parameter '\*names: str' is variadic positional; allowed"),
    (by_name, r"'by_name': its parameter '\*\*numbers: int' is variadic keyword; allowed"),
    (unknown, r"'unknown': its parameters cannot be read \(NameError: name 'Nowhere' is not defined\)"),
    (nothing, "tools.functions 'nothing' has no docstring"),
    (blank, "tools.functions 'blank' has no docstring"),
    (untyped, "tools.functions 'untyped': its parameter 'a' needs one of the types str, int, float, bool"),
    (listed, "tools.functions 'listed': its parameter 'a' needs one of the types"),
])  # fmt: skip
def test_functions_that_are_no_tools(function, message):
    with pytest.raises(ValueError, match=message):
        of_function(function)


def test_names():
    assert [tool.name for tool in of_names(("toolboxes:add", "toolboxes:share"))] == ["add", "share"]
    with pytest.raises(ValueError, match="tools.functions 'toolboxes:none': .* has no 'none'"):
        of_names(("toolboxes:none",))
    with pytest.raises(ValueError, match="tools.functions: there are two tools 'add'; allowed are names that differ"):
        Toolbox([of_function(add)] * 2)
