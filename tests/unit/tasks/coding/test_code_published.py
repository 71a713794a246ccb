"""Prompts of the published experiments: their structure, and what each agent reads."""

import pytest

from jaxmarl_llm.tasks import CodingTask
from jaxmarl_llm.tasks.centralised import CentralisedTask
from jaxmarl_llm.tasks.coding.data_files import load_humaneval
from jaxmarl_llm.tasks.coding.items import CodingItem

ITEM = CodingItem("t/1", 'def add_two(a, b):\n    """Return a + b + 2."""\n', "add_two", "check", ("a", "b"))
NO_MORE = "Answer with Python code only: no Markdown fences, no explanation, no tests."


def texts(agents):
    prompts = CodingTask([ITEM], None, agents, prompts="published").prompts(ITEM)
    assert list(prompts) == list(agents)
    assert all([m["role"] for m in messages] == ["user"] for messages in prompts.values())  # no examples
    return [messages[0]["content"] for messages in prompts.values()]


def test_helper_and_main():
    helper, main = texts(("left", "right"))
    for text in (helper, main):
        assert ITEM.prompt.strip() in text and NO_MORE in text
    assert helper.startswith("Write one helper function") and "return something" in helper
    assert helper.endswith("def aux(a, b):\n    # code of the helper\n    return result\n")
    assert "A helper function aux(a, b) exists already." in main
    assert "Do not define aux again. You may call it and assign the result to a variable." in main
    assert main.endswith("def add_two(a, b):\n    # code of the function\n    return result\n")
    assert "value = aux" not in main


def test_one_agent_alone_reads_of_no_helper():
    (alone,) = texts(("main",))
    assert "aux" not in alone and "helper" not in alone and NO_MORE in alone
    assert alone.endswith("def add_two(a, b):\n    # code of the function\n    return result\n")


def test_several_helpers_read_nothing_of_each_other():
    left, right, main = texts(("left", "right", "main"))
    assert "aux1" in left and "aux2" not in left and "aux2" in right and "aux1" not in right
    assert "function aux1(a, b) exists" in main and "function aux2(a, b) exists" in main


def test_every_problem_of_humaneval_is_quoted_whole_with_its_parameters():
    items = load_humaneval()
    task = CodingTask(items, None, prompts="published")
    for item in items:
        helper, main = (messages[0]["content"] for messages in task.prompts(item).values())
        params = ", ".join(item.params)
        assert item.prompt.strip() in helper and item.prompt.strip() in main
        assert f"def aux({params}):" in helper and f"aux({params})" in main
        assert f"def {item.entry_point}({params}):" in main


def test_one_who_writes_all_roles():
    task = CentralisedTask(CodingTask([ITEM], None, prompts="published"))
    ((message,),) = task.prompts(ITEM).values()
    assert "[aux]\nWrite one helper" in message["content"]
    assert "[main]\nWrite the function" in message["content"]


def test_unknown_prompts():
    with pytest.raises(ValueError, match="prompts is 'short'; allowed: examples, published"):
        CodingTask([ITEM], None, prompts="short")
