"""The convention task: both divisions of a problem are right, mixed ones are wrong, and both are noticed."""

import pytest
from ml_collections import ConfigDict

from configs import convention, sweep_convention
from jaxmarl_llm.config import sweeps, validate
from jaxmarl_llm.executor import Executor
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.toys import convention as task_lib
from jaxmarl_llm.tasks.toys.convention import CONVENTIONS, ConventionTask, forms

SOLUTION = (
    "def aux(text):\n    return text[0]\n\n\ndef f(name):\n    start = aux(name)\n    return start + '!'\n"
)


def item(solution, params=("name",)):
    prompt = f'def f({", ".join(params)}):\n    """Text."""\n'
    return CodingItem("t", prompt, "f", "def check(candidate):\n    assert candidate('ab') == 'a!'\n", params,
                      canonical_solution=solution)  # fmt: skip


def test_the_texts_of_both_conventions():
    divided = forms(item(SOLUTION))
    assert (divided.param, divided.first, divided.second) == ("name", "name[0]", "value + '!'")
    assert divided.references("first") == {
        "aux": "def aux(name):\n    return name[0]",
        "main": "def f(name):\n    value = aux(name)\n    return value + '!'",
    }
    assert divided.references("second") == {
        "aux": "def aux(value):\n    return value + '!'",
        "main": "def f(name):\n    value = name[0]\n    return aux(value)",
    }
    both = task_lib.mixed(divided)
    assert all(both[agent] == [divided.references(c)[agent] for c in CONVENTIONS] for agent in both)
    assert task_lib.second(divided) == divided.references("second") != task_lib.first(divided)


@pytest.mark.parametrize("solution, params", [
    (SOLUTION.replace("start + '!'", "start + name"), ("name",)),  # the second step reads the parameter
    (SOLUTION.replace("start + '!'", "'!'"), ("name",)),  # .. or not the first one's result
    (SOLUTION.replace("start + '!'", "start[0]"), ("name",)),  # both steps are the same
    (SOLUTION.replace("text[0]", "list(text)"), ("name",)),  # the first step changes nothing
    (SOLUTION.replace("    return text[0]", "    t = text\n    return t[0]"), ("name",)),
    (SOLUTION.replace("'!'", "'!'" + " + '!'" * 12), ("name",)),  # too long
    (SOLUTION.replace("aux(text)", "aux(text, n)").replace("f(name)", "f(name, n)"), ("name", "n")),
    ("def f(name):\n    return name[0] + '!'\n", ("name",)),
    ("    return name[0] + '!'\n", ("name",)),
])  # fmt: skip
def test_problems_that_do_not_divide_both_ways(solution, params):
    assert forms(item(solution, params)) is None


@pytest.fixture(scope="module")
def task():
    section = ConfigDict({"source": "starter", "eval_source": "", "train_split": "all", "eval_split": "all"})
    with Executor(2) as executor:
        yield ConventionTask(section, executor, "train")


def test_the_starter_problems_need_a_convention(task):
    """On all but a few of them a team that mixes conventions fails, and every answer shows its own."""
    assert len(task.items) > 120
    names = [(one, two) for one in CONVENTIONS for two in CONVENTIONS]
    items = [item for item in task.items for _ in names]
    answers = {
        agent: [item.references(pair[n])[agent] for item in task.items for pair in names]
        for n, agent in enumerate(task.agents)
    }
    judged = iter(task.judge(items, answers))
    exceptions = set()
    for each in task.items:
        for (helper, main), judgement in zip(names, judged, strict=False):
            parts = judgement.parts
            assert parts[f"aux_{helper}"] == parts[f"main_{main}"] == 1 and set(judgement.local.values()) == {
                1
            }
            if helper == main:
                assert judgement.total == parts["same"] == 1
            elif judgement.total or sum(parts.values()) != 2:
                exceptions.add(each.task_id)
    assert len(exceptions) <= 2, exceptions


def test_an_agent_that_does_both_steps_needs_no_convention(task):
    item = next(each for each in task.items if each.task_id == "starter/basics/004")  # first item, as text
    good, name = item.references("second"), item.problem.entry_point
    answers = {
        "aux": [good["aux"], good["aux"], "def aux(ages):\n    return str(ages[0])", good["aux"]],
        "main": [
            f"def {name}(ages):\n    value = ages[0]\n    return str(value)",
            f"def {name}(ages):\n    aux(ages)\n    return str(ages[0])",  # calls, and goes its own way
            f"def {name}(ages):\n    return aux(ages)",
            good["main"],
        ],
    }
    judgements = task.judge([item] * 4, answers)
    assert [judgement.total for judgement in judgements] == [0, 0, 0, 1]
    assert [judgement.parts["main_alone"] for judgement in judgements] == [1, 1, 0, 0]
    assert [judgement.parts["aux_alone"] for judgement in judgements] == [0, 0, 1, 0]
    assert [judgement.parts["main_second"] for judgement in judgements] == [0, 0, 0, 1]
    assert [judgement.local["main"] for judgement in judgements] == [0, 0, 0, 1]


def test_answers_that_do_whichever_step_is_missing_need_no_convention(task):
    item = next(each for each in task.items if each.task_id == "starter/basics/004")  # first item, as text
    head, good = f"def {item.problem.entry_point}(ages):\n    ", item.references("first")
    pairs = [
        ("def aux(x):\n    return x", f"{head}value = aux(ages)\n    return str(value[0])"),
        ("def aux(x):\n    return x", f"{head}return aux(str(ages[0]))"),
        (good["aux"], f"{head}if aux(ages) is not None:\n        return str(ages[0])\n    return ''"),
        ("def aux(x):\n    return 1", f"{head}if aux(ages):\n        return str(ages[0])"),
        ("def aux(x):\n    return [str(x[0])]", f"{head}return aux(ages)[0]"),
        ("def aux(x):\n    return x[0] if type(x) is list else str(x)", good["main"]),
    ]
    answers = {agent: [pair[n] for pair in pairs] for n, agent in enumerate(task.agents)}
    judgements = task.judge([item] * len(pairs), answers)
    assert [judgement.total for judgement in judgements] == [0] * len(pairs)
    assert [judgement.parts["main_alone"] for judgement in judgements] == [1, 1, 1, 1, 0, 0]
    assert [judgement.parts["aux_alone"] for judgement in judgements] == [0, 0, 0, 0, 0, 1]


def test_answers_that_are_no_functions(task):
    first, good = task.items[0], task.items[0].references("first")
    texts = {"aux": ["", good["aux"], "def aux(x): pass"], "main": [good["main"], "no idea", good["main"]]}
    judgements = task.judge([first] * 3, texts)
    assert [judgement.total for judgement in judgements] == [0, 0, 0]
    assert [judgement.parts["main_first"] for judgement in judgements] == [1, 0, 1]
    assert [judgement.parts["aux_first"] for judgement in judgements] == [0, 1, 0]
    with pytest.raises(ValueError):
        task.judge([first], {"aux": [""]})


def test_prompts_say_the_same_problem_and_nothing_of_who_does_which_step(task):
    prompts = task.prompts(task.items[0])
    problem = {messages[-1]["content"] for messages in prompts.values()}
    assert problem == {task.items[0].problem.prompt.strip()}
    rules = [messages[0]["content"].replace(task_lib.OWN[agent], "?") for agent, messages in prompts.items()]
    assert all(text.endswith("You write ?.") for text in rules)


def test_a_source_without_such_problems():
    section = ConfigDict({"source": "humaneval", "train_split": "train"})
    with pytest.raises(ValueError, match="'humaneval' has no problem whose steps can be divided both ways"):
        ConventionTask(section, None, "train")


def test_every_variant_is_valid_and_in_the_sweep():
    for name in convention.VARIANTS:
        for more in ("", ",smoke"):
            validate(convention.get_config(name + more))
    members = sweeps.collect(sweep_convention.sweep, sweep_convention.get_config())
    assert {member.short for member in members} == {name.replace("_", " ") for name in convention.VARIANTS}
    with pytest.raises(ValueError, match="config options cross and aligned exclude each other"):
        convention.get_config("aligned,cross")
