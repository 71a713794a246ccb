"""Demonstrations from solutions with tools: a team that writes them reads the prompts that they have."""

import pytest
from scripted_rounds import play

from jaxmarl_llm.protocols import Simultaneous, worked
from jaxmarl_llm.protocols.planner import Planner
from jaxmarl_llm.protocols.with_tools import WithTools
from jaxmarl_llm.systems import demonstration_sources
from jaxmarl_llm.tasks.planned import PlannedTask
from jaxmarl_llm.tasks.reasoning import tables
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.tasks.tools import Toolbox
from jaxmarl_llm.tasks.tools.solutions import Solution, Step
from jaxmarl_llm.tasks.tools.toolbox import of_function

BOX = Toolbox([of_function(f) for f in (tables.look_up, tables.add, tables.scale, tables.convert)])
ITEMS = tables.load("test")
SINGLE = ReasoningTask(ITEMS, ("solver",))
TEAM = PlannedTask(SINGLE, ("planner", "caller", "summarizer"))


def of(task, parts):
    return demonstration_sources.of_items(task, tables.solution, "x", worked=parts(BOX))


@pytest.mark.parametrize("task, parts, protocol", [
    (TEAM, worked.of_planner, lambda task: Planner(task.prompts, BOX, 1, 3)),
    (SINGLE, worked.of_one, lambda task: WithTools(Simultaneous(task.prompts, 1), BOX, 3, task.agents)),
], ids=["planner", "one"])  # fmt: skip
def test_a_conversation_of_these_texts_has_these_prompts(task, parts, protocol):
    rows = of(task, parts)
    by_prompt = {(row.agent, str(row.messages)): row.text for row in rows}
    text_of = lambda request, n: by_prompt[request.agent, str(request.messages)]  # noqa: E731
    forest = play(protocol(task), task, ITEMS, text_of).forest
    assert len(forest.turns) == len(rows)
    assert all(joint.total == 1.0 for joint in forest.joints) and len(forest.joints) == len(ITEMS)


def test_by_hand():
    """Two steps and an answer: every agent's texts."""
    item = next(item for item in ITEMS if "/cents/" in item.task_id)
    good = item.columns["table_values"]["good"]
    price = tables.TABLE[good]["price"]
    rows = demonstration_sources.of_items(
        PlannedTask(ReasoningTask([item], ("s",)), ("p", "c", "s")), tables.solution, "x", worked=worked.of_planner(BOX)
    )
    look = f'<tool_call>{{"name": "look_up", "arguments": {{"name": "{good}", "column": "price"}}}}</tool_call>'
    assert [(row.agent, row.text) for row in rows][:3] == [
        ("p", f"The price of {good} is needed.\nNext: caller"),
        ("c", look),
        ("p", "That is in euros, and cents are wanted.\nNext: caller"),
    ]
    assert rows[3].text.startswith('<tool_call>{"name": "convert", "arguments": {"value": ')
    assert [(row.agent, row.text) for row in rows][4:] == [
        ("p", "Nothing else is needed.\nNext: conclusion"), ("s", f"The answer is {100 * price:g}.")
    ]  # fmt: skip


def test_no_good_of_one_split_is_in_another():
    goods = {
        split: {value for item in tables.load(split) for value in item.columns["table_values"].values() if value in
                (*tables.GOODS, *tables.STRANGE)}
        for split in ("train", "validation", "test")
    }  # fmt: skip
    assert not goods["train"] & goods["validation"] and not goods["train"] & goods["test"]
    assert not goods["validation"] & goods["test"] and all(map(len, goods.values()))
    items = tables.load("all")
    assert len({item.task_id for item in items}) == len({item.question for item in items}) == len(items)


def test_questions_do_not_show_whether_they_have_an_answer():
    """All end in the same sentences, as agents read them."""
    prompts = [SINGLE.prompts(item)["solver"][-1]["content"] for item in ITEMS]
    assert len({prompt.partition("?")[2] for prompt in prompts}) == 1


@pytest.mark.parametrize("tool, arguments, result", [
    (tables.add, (1.5, 2), "3.5"), (tables.scale, (0.5, 9), "4.5"), (tables.convert, (2, "euro", "cent"), "200"),
    (tables.convert, (250, "gram", "kilogram"), "0.25"),
    (tables.look_up, (" Rice", "Price "), tables.look_up("rice", "price")),
])  # fmt: skip
def test_tools(tool, arguments, result):
    assert tool(*arguments) == result


@pytest.mark.parametrize("tool, arguments, message", [
    (tables.look_up, ("coral", "price"), "there is no coral in the table"),
    (tables.look_up, ("rice", "colour"), "there is no column colour; there are price and weight"),
    (tables.convert, (1, "euro", "gram"), "euro cannot be converted to gram"),
])  # fmt: skip
def test_tools_refuse(tool, arguments, message):
    with pytest.raises(ValueError, match=message):
        tool(*arguments)


def test_a_function_must_give_solutions_where_there_are_tools():
    with pytest.raises(ValueError, match="got 'text', expected a Solution, as this team has tools"):
        demonstration_sources.of_items(SINGLE, lambda item: "text", "x", worked=worked.of_one(BOX))
    with pytest.raises(ValueError, match=r"got Solution\(.*, expected \{agent: text\}"):
        demonstration_sources.of_items(SINGLE, lambda item: Solution((Step("x"),)), "x")
