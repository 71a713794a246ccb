"""Scores of single steps, by hand."""

import pytest

from jaxmarl_llm.evaluation import steps

TOOLS = ("add", "scale")


def call(name, **arguments):
    import json

    return f'<tool_call>{json.dumps({"name": name, "arguments": arguments})}</tool_call>'


@pytest.mark.parametrize("right, text, scores", [
    ("It is.\nNext: caller", "Other words.\nNext: caller", {"route": 1.0}),
    ("It is.\nNext: caller", "It is.\nNext: conclusion", {"route": 0.0}),
    ("It is.\nNext: give up", "It is.", {"route": 0.0}),
    (call("add", a=1, b=2), call("add", b=2, a=1.0),
     {"route": 1.0, "call": 1.0, "no such tool": 0.0, "arguments": 1.0}),
    (call("add", a=1, b=2), call("add", a=1, b=3),
     {"route": 1.0, "call": 0.0, "no such tool": 0.0, "arguments": 1 / 2}),
    (call("add", a=1, b=2), call("add", a=1), {"route": 1.0, "call": 0.0, "no such tool": 0.0, "arguments": 2 / 3}),
    (call("add", a=1), call("scale", a=1), {"route": 1.0, "call": 0.0, "no such tool": 0.0, "arguments": 0.0}),
    (call("add", a=1), call("plus", a=1), {"route": 1.0, "call": 0.0, "no such tool": 1.0, "arguments": 0.0}),
    (call("add", a=1), "<tool_call>add", {"route": 1.0, "call": 0.0, "no such tool": 0.0, "arguments": 0.0}),
    (call("add", a=1), "1", {"route": 0.0, "call": 0.0, "no such tool": 0.0, "arguments": 0.0}),
    ("The answer is 3.", "The answer is 3. ", {"route": 1.0, "text": 1.0}),
    ("The answer is 3.", "The answer is 4.", {"route": 1.0, "text": 0.0}),
    ("The answer is 3.", call("add", a=1), {"route": 0.0, "text": 0.0}),
])  # fmt: skip
def test_scores(right, text, scores):
    assert steps.scores(right, text, TOOLS) == pytest.approx(scores)


def test_table():
    parts = [(("p", (), "Next: caller"), "Next: caller"), (("p", (), "Next: caller"), ""), (("c", (), "x"), "x")]
    assert steps.table(parts, TOOLS) == {
        "p": {"route": 50.0, "steps": 2.0}, "c": {"route": 100.0, "text": 100.0, "steps": 1.0}
    }  # fmt: skip
