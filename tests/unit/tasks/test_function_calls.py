"""Questions answered by a call of a function: the checker by hand, and against the package's own answers."""

import importlib.util
import json

import pytest
from changed_configs import changed

from jaxmarl_llm.factory.tasks import build_task
from jaxmarl_llm.tasks import function_calls
from jaxmarl_llm.tasks.function_calls import LEFT_OUT, questions, right

FUNCTION = {
    "name": "area", "description": "The area of a triangle.",
    "parameters": {"type": "dict", "required": ["base", "place"], "properties": {
        "base": {"type": "integer", "description": "Its base."}, "unit": {"type": "string"},
        "place": {"type": "dict", "properties": {"city": {"type": "string"}}},
        "sides": {"type": "array", "items": {"type": "float"}},
    }},
}  # fmt: skip
ASKED = {"id": "q0", "question": [[{"role": "user", "content": "How large?"}]], "function": [FUNCTION]}
ANSWER = {"id": "q0", "ground_truth": [{"area": {
    "base": [10], "unit": ["", "square meters"], "place": [{"city": ["New York", "NY"], "zip": ["", 1]}],
    "sides": ["", [1.5, 2]],
}}]}  # fmt: skip
(ITEM,) = questions(json.dumps(ASKED), json.dumps(ANSWER))
(NONE,) = questions(json.dumps(ASKED), "")


def call(tool="area", /, **arguments):
    return f'<tool_call>{json.dumps({"name": tool, "arguments": arguments})}</tool_call>'


GOOD = {"base": 10, "place": {"city": "new-york"}}


@pytest.mark.parametrize("text, wanted", [
    (call(**GOOD), True),
    (f"I call it.\n{call(**GOOD, unit='Square Meters.', sides=[1.5, 2.0])}", True),
    (call(**GOOD | {"place": {"city": "NY", "zip": 1}}), True),
    (call("size", **GOOD), False),
    (call(base=10), False),  # a required one is missing
    (call(**GOOD, color="red"), False),
    (call(**GOOD | {"base": 11}), False), (call(**GOOD | {"base": "10"}), False),
    (call(**GOOD | {"base": True}), False),
    (call(**GOOD, sides=[2, 1.5]), False), (call(**GOOD, sides=[1.5]), False),
    (call(**GOOD | {"place": {"zip": 1}}), False), (call(**GOOD | {"place": "NY"}), False),
    (call(**GOOD) + call(**GOOD), False), ("<tool_call>area", False), ("10", False), ("", False),
])  # fmt: skip
def test_the_checker(text, wanted):
    assert right(ITEM, text) is wanted
    assert right(NONE, text) is ("<tool_call>" not in text)


def test_what_the_description_requires_is_not_left_out():
    """As in BFCL's `simple_function_checker`, which looks at the description before the allowed values."""
    function = FUNCTION | {"parameters": FUNCTION["parameters"] | {"required": ["base", "place", "unit"]}}
    (strict,) = questions(json.dumps(ASKED | {"function": [function]}), json.dumps(ANSWER))
    assert not right(strict, call(**GOOD)) and right(strict, call(**GOOD, unit="square meters"))


def test_what_an_agent_reads():
    task = object.__new__(function_calls.FunctionCalls)
    (message,) = task.prompts(ITEM)["caller"]
    assert message["content"].startswith("How large?\n\nYou may call these tools:\narea(base: whole number")
    assert "(Its base)" in message["content"] and "If none of them helps" in message["content"]


def test_judgements():
    task = object.__new__(function_calls.FunctionCalls)
    good, none = task.judge([ITEM, ITEM], {"caller": [call(**GOOD), "10"]})
    assert (good.total, good.parts, none.total, none.parts) == (1.0, {"called": 100.0}, 0.0, {"called": 0.0})


config = changed({
    "task.kind": "jaxmarl_llm.tasks.function_calls.FunctionCalls", "task.source": "simple_python",
    "team.agents": ("caller",), "train.joint_mode": "aligned",
})  # fmt: skip


def test_another_set():
    with pytest.raises(ValueError, match="task.source='hard': allowed are simple_python, multiple, irrelevance"):
        build_task(config({"task.source": "hard"}), None, "test")


def test_nothing_is_trained_on():
    with pytest.raises(ValueError, match="these questions are for evaluations only, not for a training"):
        build_task(config(), None, "train")


def test_the_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="not installed: pip install --no-deps bfcl-eval=="):
        function_calls.read("multiple")


def first(values):
    """One of some allowed values; of an object, one for each of its fields that is needed."""
    one = next(value for value in values if value != LEFT_OUT or len(values) == 1)
    if isinstance(one, dict):
        return {name: first(own) for name, own in one.items() if LEFT_OUT not in own}
    return [first([each]) for each in one] if isinstance(one, list) else one


@pytest.mark.parametrize("name, number", [("simple_python", 400), ("multiple", 200), ("irrelevance", 240)])
def test_right_and_wrong_answers_of_the_package(name, number):
    """All questions: judged with a right call all are right, with a call of nothing and an empty text none."""
    if importlib.util.find_spec(function_calls.MODULE) is None:
        pytest.skip("bfcl-eval is not installed")
    items = function_calls.read(name)
    assert len(items) == number == len({item.task_id for item in items})
    task = object.__new__(function_calls.FunctionCalls)
    assert all(task.prompts(item)["caller"] for item in items)
    if name == "irrelevance":
        assert all(right(item, "I cannot.") and not right(item, call(item.functions[0]["name"])) for item in items)
        return
    given = lambda item, name: LEFT_OUT not in item.arguments[name] or name in item.required()  # noqa: E731
    good = [call(i.name, **{k: first(v) for k, v in i.arguments.items() if given(i, k)}) for i in items]
    assert all(map(right, items, good))
    assert not any(right(item, call("none")) or right(item, "") for item in items)
