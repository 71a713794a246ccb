"""Tools from functions, and what every kind of call gives back: a result, or a sentence that an agent can act on."""

import pytest
from toolboxes import BOX, add, call

from jaxmarl_llm.tasks.tools import Tool, Toolbox
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
    ("<tool_call>" + "[" * 3000, "error: the call is not a JSON object between the tags"),
])  # fmt: skip
def test_what_a_call_gives_back(text, result):
    assert BOX.result("p", text) == result


def test_long_results_are_cut():
    assert len(Toolbox([Tool("say", "Says.", {}, lambda: "x" * 9999)]).result("p", call("say"))) == LONGEST


def test_what_agents_read():
    text = BOX.describe()
    assert "add(a: whole number, b: whole number (may be left out)): Adds two numbers.\n" in text
    assert "passed(text: text, strict: true or false (may be left out)): Says whether" in text and "item" not in text
    assert '<tool_call>{"name": "add", "arguments": {"<name>": "<value>"}}</tool_call>' in text


def nothing(a: int):
    return a


def untyped(a) -> int:
    """Has no type."""
    return a


def listed(a: list) -> int:
    """Has another type."""
    return len(a)


@pytest.mark.parametrize("function, message", [
    (nothing, "tools.functions 'nothing' has no docstring"),
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
