"""Demonstrations: what a file, a function and canonical solutions give, and what is refused."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from jaxmarl_llm.protocols.pipeline import one_by_one, quote_all
from jaxmarl_llm.systems import demonstration_sources, demonstrations
from jaxmarl_llm.systems.demonstrations import Demonstration
from jaxmarl_llm.tasks.centralised import CentralisedTask
from jaxmarl_llm.tasks.coding import references as code_references
from jaxmarl_llm.tasks.coding.items import CodingItem

AGENTS = ("aux", "main")
ITEMS = (SimpleNamespace(task_id="one"), SimpleNamespace(task_id="two"))


class Task:
    """Two problems; each agent has a prompt of its own."""

    items, agents = ITEMS, AGENTS

    def prompts(self, item):
        return {agent: [{"role": "user", "content": f"{agent} of {item.task_id}"}] for agent in self.agents}


class Letters:
    """A letter is a token, 9 ends a text."""

    eos_ids = (9, 8)

    def encode(self, text):
        return [100 + ord(letter) for letter in text]

    def encode_chat(self, messages):
        return self.encode("".join(message["content"] for message in messages))


def write(folder, *rows):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_of_a_file(tmp_path):
    messages = [{"role": "user", "content": "what?"}]
    rows = (
        {"task_id": "two", "agent": "main", "text": "x"},
        {"messages": messages, "agent": "aux", "text": "y", "weight": 0.5},
    )
    first, second = demonstration_sources.read(write(tmp_path, *rows), Task())
    assert (first.agent, first.text, first.weight) == ("main", "x", 1.0)
    assert first.messages == ({"role": "user", "content": "main of two"},)
    assert (second.agent, second.weight, list(second.messages)) == ("aux", 0.5, messages)


BAD = (
    (
        {"task_id": "one", "text": "x"},
        "no field 'agent': a demonstration needs a role, allowed are aux, main",
    ),
    ({"task_id": "one", "agent": "b", "text": "x"}, "agent='b' is not in the team, allowed are aux, main"),
    ({"task_id": "one", "agent": "aux"}, "text=None, expected text that is not empty"),
    ({"task_id": "six", "agent": "aux", "text": "x"}, "task_id='six' is no problem of the training split"),
    ({"agent": "aux", "text": "x"}, "needs either a task_id or messages"),
    ({"messages": ["x"], "agent": "aux", "text": "x"}, "messages must be a list of"),
    ({"task_id": "one", "agent": "aux", "text": "x", "weight": -1}, "weight=-1, allowed are numbers from 0"),
)


def test_every_bad_row_is_named_with_its_line(tmp_path):
    good = {"task_id": "one", "agent": "aux", "text": "x"}
    with pytest.raises(ValueError) as caught:
        demonstration_sources.read(write(tmp_path, good, *(row for row, _ in BAD)), Task())
    first, *lines = str(caught.value).split("\n")
    assert first.endswith(f"{len(BAD)} bad line(s)")
    for number, (line, (_, sentence)) in enumerate(zip(lines, BAD, strict=True), start=2):
        assert line.startswith(f"  line {number}: ") and sentence in line


def test_weights_that_are_all_zero_are_refused(tmp_path):
    path = write(tmp_path, {"task_id": "one", "agent": "aux", "text": "x", "weight": 0})
    with pytest.raises(ValueError, match="no demonstration with a weight above 0"):
        demonstration_sources.read(path, Task())


LATER = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}]


def test_rows_of_a_function_have_prompts_of_later_turns():
    given = {"one": [{"agent": "aux", "messages": LATER, "text": "b", "weight": np.float32(0.5)}], "two": {"main": "c"}}
    first, second = demonstration_sources.of_items(Task(), lambda item: given[item.task_id], "mine:f")
    assert (first.agent, first.messages, first.text, first.weight) == ("aux", tuple(LATER), "b", 0.5)
    assert (second.text, second.weight) == ("c", 1.0)
    assert second.messages == tuple(Task().prompts(Task().items[1])["main"])


def test_answers_of_a_function():
    given = {"one": {"aux": ["a", "b"], "main": "c"}, "two": None}
    rows = demonstration_sources.of_items(Task(), lambda item: given[item.task_id], "mine:f")
    assert [(row.agent, row.text, row.name) for row in rows] == [
        ("aux", "a", "one"), ("aux", "b", "one"), ("main", "c", "one"),
    ]  # fmt: skip


@pytest.mark.parametrize("given, sentence", [
    ({"c": "x"}, "problem 'one': agent 'c' is not in the team, it has aux, main"),
    ({"aux": [3]}, "the text of 'aux' is 3, expected a text"),
    ({"aux": 3}, "the text of 'aux' is 3, expected a text"),
    ({"aux": None, "main": "x"}, "the text of 'aux' is None, expected a text"),
    ({"aux": {"text": "x"}}, "the text of 'aux' is {'text': 'x'}, expected a text"),
    (["x"], r"got \['x'\], expected \{agent: text\}, a list of such chains or of rows with messages, or None"),
    ([{"messages": [], "agent": "aux", "text": "a"}], "'one', row 0: messages must be a list of"),
    ([{"messages": LATER, "agent": "aux", "text": "a"}, {"agent": "c", "text": ""}],
     r"row 1: agent='c' is not in the team, allowed are aux, main; text='', .*; rows of a problem need messages"),
    ([{"messages": LATER, "agent": "aux", "text": "a"}, {"task_id": "one", "agent": "aux", "text": "a"}],
     "'one', row 1: rows of a problem need messages, and no task_id"),
    ([{"messages": LATER, "agent": "aux", "text": "a"}, "x"], "row 1: got 'x', expected {agent, messages, text}"),
    ([], r"got \[\], expected"),
    ([{"aux": "a"}], "got chains, but with this train.protocol agents do not read each other"),
    (None, "there is no demonstration"),
])  # fmt: skip
def test_answers_that_are_none(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        demonstration_sources.of_items(Task(), lambda item: given, "mine:f")


READING = demonstration_sources.Reading(one_by_one, quote_all, ("aux", "main"))


def test_agents_of_a_chain_read_the_texts_before_their_own():
    chains = [{"aux": "a", "main": "b"}, {"aux": "c"}]
    given = {"one": chains, "two": None}
    rows = demonstration_sources.of_items(Task(), lambda item: given[item.task_id], "mine:f", READING)
    alone = Task().prompts(Task().items[0])
    assert [(row.agent, row.text) for row in rows] == [("aux", "a"), ("main", "b"), ("aux", "c")]
    assert rows[0].messages == rows[2].messages == tuple(alone["aux"])
    quoting = rows[1]
    assert quoting.messages[-1]["content"] == f"aux wrote:\na\n\n{alone['main'][-1]['content']}"
    # Of one that does not learn the texts are only read; agents of one step do not read each other.
    main_alone = dataclasses.replace(READING, learners=["main"])
    rows = demonstration_sources.of_items(Task(), lambda item: chains, "mine:f", main_alone)
    assert [(row.agent, row.text, row.name) for row in rows] == [("main", "b", "one"), ("main", "b", "two")]
    assert rows[0].messages == quoting.messages
    together = dataclasses.replace(READING, steps=lambda agents: [tuple(agents)])
    rows = demonstration_sources.of_items(Task(), lambda item: chains[:1], "mine:f", together)
    assert rows[1].messages == tuple(alone["main"])


@pytest.mark.parametrize("chain", [{"main": "b"}, {"main": "b", "aux": "a"}, {"aux": ["a", "a"], "main": "b"}])
def test_a_chain_with_a_gap(chain):
    with pytest.raises(ValueError, match="'one': a chain of .* one text of each of the first agents of aux, main"):
        demonstration_sources.of_items(Task(), lambda item: [chain], "mine:f", READING)


def test_token_ids_and_their_end():
    row = Demonstration("aux", ({"role": "user", "content": "abc"},), "de", 2.0, "one")
    limits = dict(max_prompt_tokens=3, max_new_tokens={"aux": 3, "main": 1})
    (encoded,) = demonstrations.encode([row], {"aux": Letters()}, **limits)
    assert encoded.prompt.tolist() == [197, 198, 199] and encoded.completion.tolist() == [200, 201, 9]
    refused = {
        "has 3 tokens with its end, sampling.max_new_tokens, or team.agent.aux.max_new_tokens, allows 2": {
            "max_new_tokens": {"aux": 2, "main": 9}
        },
        "a prompt of 3 tokens, sampling.max_prompt_tokens allows 2": {"max_prompt_tokens": 2},
        "holds 'd', where sampling.stop ends an answer": {"stop": ("d",)},
    }
    for sentence, change in refused.items():
        with pytest.raises(ValueError, match=rf"the demonstration of 'aux' \(one\).* {sentence}"):
            demonstrations.encode([row], {"aux": Letters()}, **(limits | change))
    short = limits | {"max_prompt_tokens": 2}
    (cut,) = demonstrations.encode([row], {"aux": Letters()}, truncate=True, **short)
    assert cut.prompt.tolist() == [198, 199]


def test_too_long_answers_can_be_left_out():
    rows = [Demonstration(agent, (), text, name=text) for agent in AGENTS for text in ("a", "abc", "ab")]
    # With its end a text of two letters has three tokens.
    kept = demonstrations.fitting(rows, dict.fromkeys(AGENTS, Letters()), {"aux": 3, "main": 4})
    assert [(row.agent, row.text) for row in kept] == [
        ("aux", "a"), ("aux", "ab"), ("main", "a"), ("main", "abc"), ("main", "ab"),
    ]  # fmt: skip


def test_a_forest_of_unequal_numbers():
    groups = [
        [demonstrations.Encoded(agent, np.array([1]), np.array([2, 9]), "x", 1.0) for _ in range(2)]
        for agent in ("aux", "main", "aux")
    ]
    forest = demonstrations.forest_of(groups, 4)
    assert [(turn.agent, turn.request, turn.item, turn.sample) for turn in forest.turns] == [
        ("aux", 0, 0, 0), ("aux", 0, 0, 1), ("main", 1, 0, 0), ("main", 1, 0, 1),
        ("aux", 2, 1, 0), ("aux", 2, 1, 1),
    ]  # fmt: skip
    assert [turn.id for turn in forest.turns] == list(range(6))
    assert len(forest.items) == 4 and forest.joints == ()


WHOLE = "def aux(n):\n    return n * 2\n\n\ndef f(n):\n    x = aux(n)\n\n    return x + 1\n"
HELPER, MAIN = "def aux(n):\n    return n * 2", "def f(n):\n    x = aux(n)\n    return x + 1"


def item(solution):
    return CodingItem("t", 'def f(n):\n    """Text."""\n', "f", "", ("n",), canonical_solution=solution)


def test_reference_answers_of_coding():
    assert code_references.answers(item(WHOLE), AGENTS) == {"aux": HELPER, "main": MAIN}
    assert code_references.answers(item(WHOLE), ("one",)) == {"one": f"{HELPER}\n{MAIN}"}
    assert code_references.answers(item("    return n + 1\n"), ("one",)) == {
        "one": "def f(n):\n    return n + 1"
    }
    # Of one function the helper gets all; not where it names itself, or where there are several.
    assert code_references.answers(item("    return n + 1\n"), AGENTS) == {
        "aux": "def aux(n):\n    return n + 1", "main": "def f(n):\n    value = aux(n)\n    return value",
    }  # fmt: skip
    assert code_references.answers(item("    return n and f(n - 1)\n"), AGENTS) is None
    two = "def g(n):\n    return n\n\ndef f(n):\n    return g(n)\n"
    assert code_references.answers(item(two), AGENTS) is None
    assert code_references.answers(item(""), ("one",)) is None
    with pytest.raises(ValueError, match="one or two agents"):
        code_references.answers(item(WHOLE), ("a", "b", "c"))


def test_reference_answers_of_one_who_writes_all_roles():
    def references(item):
        return {"aux": "x", "main": "y"}

    inner = SimpleNamespace(
        items=ITEMS, agents=AGENTS, normalise=None, reward_range=None, part_names=(), references=references
    )
    assert CentralisedTask(inner).references(ITEMS[0]) == {"team": "[aux]\nx\n[main]\ny"}
    del inner.references
    with pytest.raises(ValueError, match="no reference answers"):
        CentralisedTask(inner).references(ITEMS[0])
