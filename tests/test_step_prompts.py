"""Prompts for two-step problems: how docstrings are read, and worked examples that are true."""

import pytest

from jaxmarl_llm.executor import Executor
from jaxmarl_llm.tasks import step_prompts
from jaxmarl_llm.tasks.code_data import load_humaneval, load_starter
from jaxmarl_llm.tasks.code_items import CodingItem
from jaxmarl_llm.tasks.coding import CodingTask
from jaxmarl_llm.tasks.step_prompts import EXAMPLES, HELPER, MAIN, Steps

PROBLEM = '''\
def area(a: int, b: int) -> int:
    """Both are metres. First add a to b. Then square it, e.g. 2. to 4."""
'''
CASES = {  # of every worked example, worked out by hand
    "half_of_largest": "candidate([3, 8, 5]) == 4",
    "letters_left": "candidate('house', 2) == 3",
    "last_word": "candidate('red blue') == 'blue'",
    "bill_with_tip": "candidate(10, 0.5) == 15",
}


def test_steps_of_a_docstring():
    assert step_prompts.parse(PROBLEM) == Steps("Both are metres. ", "add a to b", "square it, e.g. 2. to 4")
    quoted = 'def f(d: dict) -> int:\n    """First look up "n" in d. Then add 1."""\n'
    assert step_prompts.parse(quoted) == Steps("", 'look up "n" in d', "add 1")


@pytest.mark.parametrize(
    "docstring", ["Return a + b.", "First add a to b.", "First a. Then b", "Then a. First b."]
)
def test_other_docstrings_have_no_steps(docstring):
    assert step_prompts.parse(f'def f(a, b):\n    """{docstring}"""\n') is None
    assert step_prompts.parse("def f(a, b):\n") is None


def test_each_agent_is_asked_for_its_own_step():
    item = CodingItem("t", PROBLEM, "area", "", ("a", "b"))
    prompts = CodingTask([item], None, agents=("left", "right")).prompts(item)
    helper, main = prompts["left"][-1]["content"], prompts["right"][-1]["content"]
    assert helper == "Both are metres. Add a to b:\ndef aux(a, b):"
    assert main == (
        "Both are metres. value = aux(a, b) did this: add a to b. Now square it, e.g. 2. to 4:\n"
        "def area(a, b):\n    value = aux(a, b)\n    return "
    )
    for messages in prompts.values():
        assert [m["role"] for m in messages] == ["system", *["user", "assistant"] * len(EXAMPLES), "user"]


def test_every_starter_problem_is_asked_in_steps_and_no_other():
    assert all(step_prompts.parse(item.prompt) for item in load_starter())
    assert not any(step_prompts.parse(item.prompt) for item in load_humaneval())


def test_worked_examples_are_right_and_earn_the_highest_reward():
    items, helpers, mains = [], [], []
    for example in EXAMPLES:
        test = f"def check(candidate):\n    assert {CASES[example.entry_point]}\n"
        params = tuple(example.params.split(", "))
        items.append(CodingItem(example.entry_point, "", example.entry_point, test, params))
        helpers.append(step_prompts.answers(example)[HELPER])
        mains.append(step_prompts.answers(example)[MAIN])
    with Executor(workers=2) as executor:
        judgements = CodingTask(items, executor).judge(items, {"aux": helpers, "main": mains})
    assert [j.total for j in judgements] == [4.0] * len(EXAMPLES)


def test_worked_examples_are_in_no_data_set():
    names = {item.entry_point for item in [*load_starter(), *load_humaneval()]}
    assert not names & {example.entry_point for example in EXAMPLES}
