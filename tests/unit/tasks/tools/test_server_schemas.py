"""Tools of servers whose schemas are more than flat properties: each can be called with what its schema allows."""

import json

import pytest
from toolboxes import call

from jaxmarl_llm.tasks.tools import Toolbox, schemas, server_tools

X = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
Y = {"properties": {"y": {"type": "string"}}, "required": ["y"]}
CASES = {  # schema, what agents read, arguments that the schema allows, and some that it does not
    "free": ({"type": "object", "additionalProperties": True}, "any other name: value", {"a": [1]}, None),
    "silent": ({"type": "object"}, "any other name: value", {"a": 1}, None),
    "texts": (
        {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"],
         "additionalProperties": {"type": "string"}},
        "url: text, any other name: text", {"url": "u", "q": "v"}, {"url": "u", "q": 1},
    ),
    "patterns": (
        {"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
        "names that match ^x: whole number", {"x1": 2}, {"y1": 2},
    ),
    "reference": ({"$ref": "#/$defs/A", "$defs": {"A": X}}, "x: whole number", {"x": 1}, {}),
    "of references": (
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": X}}, "x: whole number", {"x": 1}, {"x": "1"},
    ),
    "either": (
        {"type": "object", "anyOf": [X, Y]}, "x: whole number (may be left out), y: text (may be left out)",
        {"y": "v"}, {"x": "v"},
    ),
    "one": ({"oneOf": [X, {**X, "properties": {"x": {"type": "string"}}}]}, "x: whole number or text", {"x": "v"}, {}),
    "all": (
        {"allOf": [X, {"$ref": "#/$defs/Y"}], "$defs": {"Y": Y}}, "x: whole number, y: text", {"x": 1, "y": "v"},
        {"x": 1},
    ),
    "undescribed": ({"type": "object", "properties": {}, "required": ["x"]}, "x: value", {"x": [1]}, {}),
    "a loop": ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "any other name: value", {"x": 1}, None),
    "elsewhere": ({"$ref": "https://example.org/a.json"}, "any other name: value", {"x": 1}, None),
    "closed": ({"type": "object", "properties": {}}, "", {}, {"x": 1}),
}  # fmt: skip


class Server:
    """Gives back the arguments."""

    def call(self, place, name, arguments):
        return json.dumps(arguments)


@pytest.mark.parametrize("name", CASES)
def test_a_tool_can_be_called_as_its_schema_says(name):
    schema, shown, right, wrong = CASES[name]
    described = [[{"name": "t", "description": "", "inputSchema": schema}]]
    box = Toolbox(server_tools.tools(["srv"], described, (), Server()))
    assert box.lines() == [f"t({shown})"]
    assert box.result(None, call("t", **right)) == json.dumps(right)
    if wrong is not None:
        assert box.result(None, call("t", **wrong)).startswith("error: ")


def test_names_besides():
    assert schemas.rest({}) == "any other name: value"
    assert schemas.rest({"type": "object", "additionalProperties": False}) == schemas.rest(X) == ""
    described = [[{"name": "t", "inputSchema": CASES["texts"][0]}]]
    box = Toolbox(server_tools.tools(["srv"], described, (), Server()))
    assert box.result(None, '<tool_call>{"name": "t", "arguments": [1]}</tool_call>') == (
        "error: the arguments of t are a JSON object with url, any other name: text"
    )
