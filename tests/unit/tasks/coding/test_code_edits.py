"""tasks/code_edits.py: what the expert is told and not told, and how its answer is read."""

import json

import pytest

from jaxmarl_llm.tasks.coding import expert_edits
from jaxmarl_llm.tasks.coding.expert_edits import PERFECT, parse_edits, request_messages
from jaxmarl_llm.tasks.coding.items import CodingItem

ITEM = CodingItem(
    "t/1",
    'def area(a: int, b: int) -> int:\n    """Multiply a by b, {really}."""\n',
    "area",
    "def check(candidate):\n    assert candidate(3, 7) == 21\n",
    ("a", "b"),
    canonical_solution="    return a * b  # canonical",
)
TEAM = ("helper", "caller")
AUX = "def aux(a, b):\n    return a + b"
MAIN = "def area(a, b):\n    return aux(a, b)"


def asked(completions, agents=TEAM) -> str:
    system, user = request_messages(ITEM, completions, agents)
    assert (system["role"], user["role"]) == ("system", "user")
    return user["content"]


def test_the_expert_sees_the_problem_and_every_agents_function():
    text = asked({"caller": f"Sure!\n```python\n{MAIN}\n```\nDone.", "helper": AUX})
    assert ITEM.prompt.strip() in text
    assert f"helper was to write the function aux, a helper of area, and wrote:\n\n{AUX}\n" in text
    assert f"caller was to write the function area, and wrote:\n\n{MAIN}\n" in text
    assert "Sure" not in text and "```" not in text
    assert PERFECT in text and 'the keys "helper" and "caller"' in text


def test_the_expert_sees_neither_tests_nor_solution_nor_reward():
    text = asked({"caller": MAIN, "helper": AUX}).lower()
    for secret in ("check(", "21", "canonical", "reward", "score", "a * b"):
        assert secret not in text


def test_where_the_function_is_missing_all_that_was_written_is_shown():
    text = asked({"caller": "I cannot.", "helper": " \n"})
    assert "and wrote:\n\nI cannot.\n" in text and "and wrote:\n\n(nothing)\n" in text
    assert len(asked({"caller": "x" * 100_000, "helper": AUX})) < 10_000


def test_one_agent_alone_has_no_helper():
    text = asked({"solo": MAIN}, ("solo",))
    assert "solo was to write the function area, and wrote:" in text
    assert "a helper of" not in text and "aux(...)" not in text


@pytest.mark.parametrize("completions", [{}, {"helper": ""}, {"helper": "", "caller": "", "other": ""}])
def test_one_completion_per_agent(completions):
    with pytest.raises(ValueError, match="completions come from agents .*, expected"):
        request_messages(ITEM, completions, TEAM)


def test_the_example_that_is_shown_can_be_read():
    for agents in (TEAM, ("solo",)):
        edits = parse_edits(asked(dict.fromkeys(agents, ""), agents), agents)
        assert set(edits) == set(agents) and edits[agents[-1]] == "def area(...):\n    ..."


BOTH = {"helper": AUX, "caller": MAIN}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(BOTH),
        f"Here:\n```json\n{json.dumps(BOTH, indent=2)}\n```\nI hope {{that}} helps.",
        f'{{"helper": "def aux(): return 1", "caller": ""}}\nBetter: {json.dumps(BOTH)}',
        json.dumps(BOTH).replace("\\n", "\n"),  # line breaks in strings, which JSON forbids
        json.dumps({"edits": BOTH, "why": "it was wrong"}),
        json.dumps(BOTH | {"confidence": 3}),
        json.dumps(BOTH) + ' {"helper": 3, "caller": ""} {"helper": ""} {} {"helper": [',
        json.dumps({name: f"```python\n{code}\n```" for name, code in BOTH.items()}),
        f"{PERFECT} Well, no: {json.dumps(BOTH)}",
    ],
)
def test_edits_of_both(text):
    assert parse_edits(text, TEAM) == BOTH


def test_agents_without_a_suggestion_are_left_out():
    assert parse_edits(json.dumps({"helper": None, "caller": MAIN}), TEAM) == {"caller": MAIN}
    assert parse_edits('{"helper": "", "caller": " "}', TEAM) == {}
    # braces in the code are no objects of their own
    code = 'def aux():\n    return {"helper": "x", "caller": "y"}'
    assert parse_edits(json.dumps({"helper": code, "caller": ""}), TEAM) == {"helper": code}


@pytest.mark.parametrize("text", [PERFECT, "no changes\n needed", f"I looked at it.\n**{PERFECT}**"])
def test_nothing_to_change(text):
    assert parse_edits(text, TEAM) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is wrong.",
        '{"helper": "x"}',
        '{"helper": 1, "caller": 2}',
        '{"helper": "def aux():',
        "[1]",
        "null",
        '{"helper":' * 20_000,
        "{" * 100_000,
    ],
)
def test_garbage_is_none(text):
    assert parse_edits(text, TEAM) is None


def test_half_surrogates_become_text_that_can_be_encoded():
    edits = parse_edits('{"helper": "a\\ud800", "caller": ""}', TEAM)
    assert edits["helper"].encode() == b"a?"


def test_any_text_can_be_read():
    text = "x" + json.dumps(BOTH) + PERFECT
    for end in range(len(text)):
        parse_edits(text[:end], TEAM)
    assert expert_edits.SYSTEM
