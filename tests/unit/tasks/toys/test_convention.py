"""The convention task: both divisions of a problem are right, mixed ones are wrong, and both are noticed."""

import json

import pytest
from ml_collections import ConfigDict

from benchmarks.known_expert import KnownExpert
from configs import convention, sweep_convention
from jaxmarl_llm.config import sweeps, validate
from jaxmarl_llm.executor import Executor
from jaxmarl_llm.experts.types import Reply
from jaxmarl_llm.factory import tasks as factory
from jaxmarl_llm.protocols import Answer
from jaxmarl_llm.tasks.coding import data_files
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


@pytest.mark.slow
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


def judged(task, item, aux, main):
    (judgement,) = task.judge([item], {"aux": [aux], "main": [main]})
    return judgement


def _right_answers(item):
    """Ways to write the answers of the first convention, each with the other agent's plain one."""
    good, name, p = item.references("first"), item.problem.entry_point, item.param
    head, call = f"def {name}({p}):\n    ", f"value = aux({p})\n    return {item.second}"
    aux = [
        f"import math\n\nFIRST = 0\n\n\ndef aux({p}):\n    return {p}[FIRST + int(math.floor(0.5))]",
        f"def first(xs):\n    return xs[0]\n\n\ndef aux({p}):\n    return first({p})",
        f"import functools\n\n\n@functools.cache\ndef one():\n    return 0\n\n\ndef aux({p}):\n    return {p}[one()]",
        f"def aux({p}):\n    return None\n\n\ndef aux({p}):\n    return {p}[0]",  # the second counts
        f"aux = lambda {p}: {p}[0]",
        f"Here is my part:\n```python\n{good['aux']}\n```\nIt takes the first one.",
        f"I take the first item.\n\n{good['aux']}",
        f"class First:\n    def of(self, xs):\n        return xs[0]\n\n\ndef aux({p}):\n    return First().of({p})",
        f"def aux({p}):\n    \"\"\"Of:\n    ```\n    xs[0]\n    ```\n    \"\"\"\n    return {p}[0]",
    ]
    main = [
        f"from functools import partial\n\n\n{head}text = partial(str)\n    return text(aux({p}))",
        f"TEXT = str\n\n\n{head}return TEXT(aux({p}))",
        f"def text(x):\n    return str(x)\n\n\n{head}return text(aux({p}))",
        f"{head}return None\n\n\n{head}{call}",
        f"{name} = lambda {p}: str(aux({p}))",
        f"Sure!\n\n```\n{head}{call}\n```",
    ]
    return [(text, good["main"]) for text in aux] + [(good["aux"], text) for text in main]


def test_right_answers_are_right_however_they_are_written(task):
    item = next(each for each in task.items if each.task_id == "starter/basics/004")  # first item, as text
    assert (item.first, item.second) == (f"{item.param}[0]", "str(value)")
    for aux, main in _right_answers(item):
        judgement = judged(task, item, aux, main)
        assert judgement.total == judgement.parts["aux_first"] == judgement.parts["main_first"] == 1, (aux, main)


def test_the_names_that_both_agents_use_for_themselves_do_not_meet(task):
    item = next(each for each in task.items if each.task_id == "starter/basics/004")
    name, p = item.problem.entry_point, item.param
    helper = f"def own(xs):\n    return xs[0]\n\n\ndef aux({p}):\n    return own({p})"
    main = f"def own(x):\n    return str(x)\n\n\ndef {name}({p}):\n    return own(aux({p}))"
    assert judged(task, item, helper, main).total == 1
    # A main with an aux of its own needs nobody.
    alone = f"def aux(x):\n    return x[0]\n\n\n{item.references('first')['main']}"
    judgement = judged(task, item, item.references("first")["aux"], alone)
    assert (judgement.total, judgement.parts["main_alone"]) == (0, 1)


def test_parsing_as_in_the_paper_takes_the_function_alone(task):
    section = {"source": "starter", "eval_source": "", "train_split": "all", "parsing": "paper"}
    paper = ConventionTask(ConfigDict(section), task._executor, "train")
    item = next(each for each in paper.items if each.task_id == "starter/basics/004")
    totals = [judged(paper, item, *texts).total for texts in _right_answers(item)]
    # Only what has all in one function, the first of two, with or without prose.
    assert totals == [0, 0, 0, 0, 0, 1, 1, 0, 1] + [0, 0, 0, 0, 0, 1]


SECTION = {
    "source": "starter:steps", "train_split": "all", "feedback": "level_feedback", "revealed_tests": 1,
}  # fmt: skip


@pytest.mark.parametrize("mode, helper_reads, main_reads", [
    ("plain", "Revise aux. Answer with code only.", "Revise {name}. Answer with code only."),
    ("level_feedback", "aux: found.\nTests passed: 0 of 1.\nFailed: assert {name}(", "uses aux.\nTests passed: 0"),
])  # fmt: skip
def test_a_team_of_two_conventions_reads_which_test_failed(task, mode, helper_reads, main_reads):
    advised = ConventionTask(ConfigDict(SECTION | {"feedback": mode}), task._executor, "train")
    item = next(each for each in advised.items if each.task_id == "starter/basics/004")
    answer = {"aux": item.references("first")["aux"], "main": item.references("second")["main"]}
    (read,) = advised.feedback([Answer(item, answer, None)])
    assert helper_reads.format(name=item.entry_point) in read["aux"]
    assert main_reads.format(name=item.entry_point) in read["main"]
    assert item.references("first")["aux"] not in read["main"]  # a partner's answer is not shown


def test_an_expert_of_known_skill_advises_one_convention(task):
    """The factory puts the expert in the place of the feedback; right advice is the first convention's answers."""
    team, agents = convention.get_config("aligned"), ("aux", "main")
    fields = {"train.turns": 2, "task.feedback": "expert_edits", "expert.model": "skill-1", "expert.key_variable": ""}
    team.update_from_flattened_dict(fields)
    validate(team)
    problems = data_files.load_items("starter", "all")

    class Local:
        """Answers as the server of `known_expert` does."""

        def ask(self, requests):
            known = KnownExpert(problems)
            texts = [known.answer("skill-1", request.messages[-1]["content"]) for request in requests]
            return [Reply(text, 1, 1) for text in texts]

    built = factory.build_task(team, task._executor, "train", Local())
    item = built.items[0]
    (read,) = built.feedback([Answer(item, dict.fromkeys(agents, ""), None)])
    right = {agent: read[agent].partition("\n")[2].rpartition("\n\n")[0] for agent in agents}
    (judgement,) = built.judge([item], {agent: [right[agent]] for agent in agents})
    assert judgement.total == judgement.parts["aux_first"] == judgement.parts["main_first"] == 1


def row(task_id, canonical, test):
    prompt = 'def f(name):\n    """Text."""\n'
    fields = {"task_id": task_id, "prompt": prompt, "entry_point": "f", "canonical_solution": canonical}
    return json.dumps({**fields, "test": test}) + "\n"


def test_rows_whose_tests_are_wrong_are_refused_or_dropped(task, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path / "cache"))
    good = "def check(candidate):\n    assert candidate('ab') == 'a!'\n"
    path = tmp_path / "rows.jsonl"
    path.write_text(
        row("good", SOLUTION, good)
        + row("wrong", SOLUTION, good.replace("a!", "b!"))
        + row("raises", SOLUTION, "TABLE = {}['x']\n\n" + good)
    )
    section = {"source": str(path), "train_split": "all", "bad_rows": "refuse"}
    with pytest.raises(ValueError) as refused:
        ConventionTask(ConfigDict(section), task._executor, "train")
    first, *lines = str(refused.value).split("\n")
    assert first == f"{path}: 2 bad row(s)" and "line 2 (wrong): canonical_solution does not pass" in lines[0]
    assert "line 3 (raises): tests of 'f' fail by themselves: KeyError: 'x'" in lines[1]
    kept = ConventionTask(ConfigDict(section | {"bad_rows": "drop"}), task._executor, "train")
    assert [each.task_id for each in kept.items] == ["good"]


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
