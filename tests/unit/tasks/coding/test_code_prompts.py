"""Prompts of coding: equal information for every agent of every method, and worked examples that are true."""

import ast
import builtins
import re

import pytest

from jaxmarl_llm.executor import Executor
from jaxmarl_llm.tasks import CodingTask
from jaxmarl_llm.tasks.centralised import CentralisedTask
from jaxmarl_llm.tasks.coding import prompts as code_prompts
from jaxmarl_llm.tasks.coding.data_files import load_humaneval, load_starter
from jaxmarl_llm.tasks.coding.items import CodingItem, item_from_row
from jaxmarl_llm.tasks.coding.prompts import EXAMPLES, answers

TEAMS = (("main",), ("aux", "main"), ("left", "right"), ("a", "b", "c"), ("a", "b", "c", "d"))
CASES = {  # of every worked example, worked out by hand
    "listed": "candidate(['red', 'blue']) == 'red, blue.'",
    "is_question": "candidate('Who?') is True and candidate('Me.') is False",
    "longer_length": "candidate('red', 'green') == 5 and candidate('house', '') == 5",
    "job_cost": "candidate(2, 10, 30, 1) == 50",
}
ITEM = CodingItem("t/1", 'def add_two(a, b):\n    """Return a + b + 2."""\n', "add_two", "", ("a", "b"))


@pytest.fixture(scope="module")
def items():
    return [*load_starter(), *load_humaneval()]


def methods(items):
    """Tasks of every method: alone, teams of several sizes, and one who writes all roles."""
    teams = [CodingTask(items, None, agents) for agents in TEAMS]
    return [*teams, *(CentralisedTask(team) for team in teams if len(team.agents) > 1)]


def problem(question, tag=None):
    """A question without the sentence about the role and the header behind it."""
    text, *_ = question.split(f"\n[{tag}]\n" if tag else "\nWrite ")
    return text.strip("\n")


def test_every_agent_of_every_method_reads_the_same_problem_and_examples(items):
    shown = [e.problem for e in EXAMPLES]
    for task in methods(items):
        tag = getattr(task, "roles", (None,))[0]
        for item in items:
            for agent, messages in task.prompts(item).items():
                kinds = [m["role"] for m in messages]
                assert kinds == ["system", *["user", "assistant"] * 4, "user"], (item.task_id, agent)
                assert messages[0]["content"] == code_prompts.SYSTEM
                questions = [m["content"] for m in messages if m["role"] == "user"]
                assert [problem(q, tag) for q in questions] == [*shown, item.prompt.strip()], item.task_id


def test_prompts_of_an_agent_differ_in_the_last_message_only(items):
    """The common beginning is read once per batch."""
    for task in methods(items[:2]):
        one, other = (task.prompts(item) for item in items[:2])
        for agent in task.agents:
            assert one[agent][:-1] == other[agent][:-1] and one[agent] != other[agent]


@pytest.mark.parametrize("agents, asked", [
    (("main",), {"main": ("Write add_two:", "def add_two(a, b):")}),
    (("left", "right"), {
        "left": ("Write aux, a helper for add_two:", "def aux(a, b):"),
        "right": ("Write add_two with the helper aux(a, b):", "def add_two(a, b):"),
    }),
    (("a", "b", "c", "main"), {
        "a": ("Write aux1, a helper for add_two:", "def aux1(a, b):"),
        "b": ("Write aux2, a helper for add_two:", "def aux2(a, b):"),
        "c": ("Write aux3, a helper for add_two:", "def aux3(a, b):"),
        "main": (
            "Write add_two with the helpers aux1(a, b), aux2(a, b) and aux3(a, b):", "def add_two(a, b):"
        ),
    }),
])
def test_what_an_agent_reads_of_its_role(agents, asked):
    """All get the header of their own function, and no line of it. Helpers read nothing of each other."""
    prompts = code_prompts.render(ITEM, agents)
    assert {agent: messages[-1]["content"] for agent, messages in prompts.items()} == {
        agent: "\n".join([ITEM.prompt, *lines]) for agent, lines in asked.items()
    }


@pytest.mark.parametrize("style", ["examples", "published"])
@pytest.mark.parametrize("signature, calls", [
    ("scale(x, by=2)", "candidate(3) == 6 and candidate(3, by=4) == 12"),
    ("scale(x: int, *, by: int)", "candidate(3, by=4) == 12"),
    ("scale(x, /, *more, by=2)", "candidate(3, by=4) == 12 and candidate(3, 1, 1) == 6"),
])
def test_headers_have_the_signature_of_the_problem(style, signature, calls):
    """Both agents complete the header that they read, and main calls the helper as it reads."""
    prompt, test = f'def {signature}:\n    """x times by."""\n', f"def check(candidate):\n    assert {calls}\n"
    row = {"task_id": "t", "prompt": prompt, "entry_point": "scale", "test": test}
    with Executor(workers=1) as executor:
        task = CodingTask([item_from_row(row)], executor, prompts=style)
        texts = {agent: messages[-1]["content"] for agent, messages in task.prompts(task.items[0]).items()}
        header, own = (re.findall(r"^def (?:aux|scale)\(.*:$", text, re.M)[-1] for text in texts.values())
        (call,) = re.findall(r"helper (?:function )?(aux\(.*?\))", texts["main"])
        answers = {"aux": [f"{header}\n    return x * by"], "main": [f"{own}\n    value = {call}\n    return value"]}
        (judged,) = task.judge(task.items, answers)
    assert judged.verdict == "pass", (answers, judged.failures)


def test_one_who_writes_all_roles_reads_the_problem_once():
    question = CentralisedTask(CodingTask([ITEM], None)).prompts(ITEM)["team"][-1]["content"]
    assert question == (
        f"{ITEM.prompt}\n[aux]\nWrite aux, a helper for add_two:\ndef aux(a, b):\n"
        "[main]\nWrite add_two with the helper aux(a, b):\ndef add_two(a, b):"
    )


def test_a_problem_with_braces_is_quoted_as_it_is():
    item = CodingItem("t", 'def f(d):\n    """f({"a": 1}) is {}."""\n', "f", "", ("d",))
    prompts = code_prompts.render(item, ("aux", "main"))
    assert all('f({"a": 1}) is {}.' in messages[-1]["content"] for messages in prompts.values())


# What the answers earn of 4 (2.1 alone): where a helper has no part to write, main cannot use it.
@pytest.mark.parametrize("agents, unused", [
    (("main",), (0, 0, 0, 0)), (("aux", "main"), (0, 0, 0, 0)), (("a", "b", "main"), (1, 1, 0, 0)),
    (("a", "b", "c", "main"), (2, 2, 1, 1)),
])
def test_worked_examples_pass_their_tests_and_use_the_helpers(agents, unused):
    items, texts = [], {agent: [] for agent in agents}
    for number, example in enumerate(EXAMPLES):
        test = f"def check(candidate):\n    assert {CASES[example.entry_point]}\n"
        items.append(CodingItem(example.entry_point, "", example.entry_point, test, example.params))
        for agent, text in answers(number, agents).items():
            texts[agent].append(text)
    with Executor(workers=2) as executor:
        judgements = CodingTask(items, executor, agents).judge(items, texts)
    assert [j.verdict for j in judgements] == ["pass"] * 4
    called = [{row.callee for row in j.interactions} for j in judgements]
    assert tuple(len(agents) - 1 - len(callees) for callees in called) == unused
    assert set().union(*called) == set(agents[:-1])  # each is called in some example


def test_an_example_in_which_the_helper_does_all_and_others_in_which_it_does_a_part():
    returned = [answers(n, ("aux", "main"))["main"].split("return ")[1] for n in range(4)]
    assert [text == "value" for text in returned] == [True, False, False, False]
    assert all("value" in text for text in returned)


def test_no_worked_example_is_a_problem_of_a_data_set(items):
    for number, example in enumerate(EXAMPLES):
        alone, team = answers(number, ("main",)), answers(number, ("aux", "main"))
        sources = {numbered(alone["main"]), numbered(f"{team['aux']}\n\n\n{team['main']}")}
        for item in items:
            assert example.entry_point != item.entry_point
            assert docstring(example.problem) != docstring(item.prompt)
            if item.canonical_solution.startswith("def"):
                assert numbered(item.canonical_solution) not in sources, (example, item.task_id)


def docstring(text):
    return text.split('"""')[1].strip() if '"""' in text else ""


def numbered(source):
    """The same source with its parameters and variables numbered, and the main function called f."""
    names, tree = {}, ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.name, node.returns = ("aux" if node.name == "aux" else "f"), None
        elif isinstance(node, ast.arg):
            node.arg, node.annotation = names.setdefault(node.arg, f"v{len(names)}"), None
        elif isinstance(node, ast.Name) and node.id != "aux" and not hasattr(builtins, node.id):
            node.id = names.setdefault(node.id, f"v{len(names)}")
    return ast.unparse(tree)


def test_prompts_of_the_starter_set_are_short(items):
    """Characters, of which a token holds about three: configs/coding.py allows 768 tokens."""
    for task in methods(items[:1])[:2]:
        for item in load_starter():
            for messages in task.prompts(item).values():
                assert sum(len(m["content"]) for m in messages) < 1800
