"""The coding task: with an executor that follows a script, and with the real one on all references."""

import pytest
from scripted_coding import AUX, ITEM, MAIN, TEST, USED, Scripted, report

from jaxmarl_llm.executor import Executor
from jaxmarl_llm.tasks import CodingTask, Judgement
from jaxmarl_llm.tasks.centralised import CentralisedTask
from jaxmarl_llm.tasks.coding.data_files import load_humaneval, load_starter
from jaxmarl_llm.tasks.coding.items import CodingItem

OTHER = CodingItem("t/2", "import math\n\n\ndef area(r):\n    '''Area.'''\n", "area",
                   "def check(candidate):\n    assert candidate(0) == 0", ("r",), prelude="import math")
AREA = "def area(r):\n    return math.pi * r * r"


def named(entry_point):
    return CodingItem("t/9", f"def {entry_point}(x):\n", entry_point, TEST, ("x",))


def test_one_batch_in_order_with_stopped_answers_between():
    executor = Scripted(
        report("pass", 2, 2, interactions=USED), report("fail", 1, 2, "assert area(0) == 0: got 1")
    )
    task = CodingTask([ITEM, OTHER], executor)
    judgements = task.judge([ITEM, ITEM, OTHER, OTHER], {
        "aux": [AUX, AUX, "I cannot.", "def aux(r:\n    return r"],
        "main": [MAIN, "I will not.", AREA, AREA],
    })
    (programs,) = executor.calls  # one call for the whole batch, with what is worth running
    assert [p.entry_point for p in programs] == ["add_two", "area"]
    assert [dict(p.sources) for p in programs] == [{"aux": AUX, "main": MAIN}, {"main": AREA}]
    assert [j.verdict for j in judgements] == ["pass", "no-main", "fail", "syntax"]
    # 1 + .5 + 1 + 1.5; .4; .6 + .5 + 1/2; .4 + .6
    assert [j.total for j in judgements] == pytest.approx([4.0, 0.4, 1.6, 1.0])
    assert judgements[2] == Judgement(
        parts={"structure": 0.6, "syntax": 0.5, "tests": 0.5, "cooperation": 0.0}, total=1.6, verdict="fail",
        failures=("assert area(0) == 0: got 1",), program_source=f"import math\n\n\n{AREA}",
        local={"aux": 0.0, "main": 1.0},
    )
    assert judgements[0].interactions == USED
    assert judgements[0].program_source == f"{AUX}\n\n\n{MAIN}"
    assert judgements[1].program_source == ""
    assert all(tuple(j.parts) == task.part_names and sum(j.parts.values()) == j.total for j in judgements)


def test_score_is_parts_with_total_and_normalise_is_percent():
    task = CodingTask([ITEM], Scripted(report("pass", 2, 2, interactions=USED)))
    (scores,) = task.score([ITEM], {"aux": [AUX], "main": [MAIN]})
    assert scores == {"structure": 1.0, "syntax": 0.5, "tests": 1.0, "cooperation": 1.5, "total": 4.0}
    assert task.normalise(scores) == dict.fromkeys((*task.part_names, "return"), 100)
    assert task.reward_range == (0.0, 4.0)


def test_nothing_worth_running_runs_nothing():
    executor = Scripted()
    (judgement,) = CodingTask([ITEM], executor).judge([ITEM], {"aux": [""], "main": [""]})
    assert (judgement.total, judgement.verdict, executor.calls) == (0.0, "no-main", [])


def test_compat_reaches_the_reward():
    ignores = "def add_two(a, b):\n    aux(a, b)\n    return a + b + 2"
    answer = {"aux": [AUX], "main": [ignores]}
    tasks = [CodingTask([ITEM], Scripted(report("pass", 2, 2)), cooperation="paper", compat=compat)
             for compat in (False, True)]
    totals = [task.judge([ITEM], answer)[0].total for task in tasks]
    assert totals == [3.5, 4.0]


def test_one_agent_alone():
    task = CodingTask([ITEM], Scripted(report("pass", 2, 2)), agents=("solo",))
    (judgement,) = task.judge([ITEM], {"solo": ["def add_two(a, b):\n    return a + b + 2"]})
    assert judgement.total == pytest.approx(2.1)
    assert task.reward_range == (0.0, 2.1)
    assert task.normalise(judgement.scores)["return"] == pytest.approx(100.0)


@pytest.mark.parametrize("items, agents, message", [
    ([], ("aux", "main"), "items is empty"),
    ([ITEM], (), "agents is .*allowed: 1 to 8 different names"),
    ([ITEM], ("a", "a"), "agents is .*allowed: 1 to 8 different names"),
    ([ITEM], tuple("abcdefghi"), "agents is .*allowed: 1 to 8 different names"),
    ([named("aux")], ("aux", "main"), "'t/9': entry point 'aux' is a helper"),
    ([named("aux2")], ("a", "b", "main"), "'t/9': entry point 'aux2' is a helper"),
])
def test_bad_arguments(items, agents, message):
    with pytest.raises(ValueError, match=message):
        CodingTask(items, None, agents)


@pytest.mark.parametrize("completions, message", [
    ({"aux": [AUX]}, r"agents \['aux'\], expected \['aux', 'main'\]"),
    ({"aux": [AUX], "main": [MAIN], "third": [""]}, "third"),
    ({"aux": [AUX, AUX], "main": [MAIN]}, "agent 'aux' gave 2 completions for 1 items"),
])
def test_bad_completions(completions, message):
    with pytest.raises(ValueError, match=message):
        CodingTask([ITEM], None).judge([ITEM], completions)


@pytest.fixture(scope="module")
def executor():
    with Executor(workers=2) as executor:
        yield executor


@pytest.mark.slow
def test_every_starter_solution_earns_everything(level):
    """The references define aux and the entry point: both agents answer with them and earn 4 of 4."""
    items = load_starter("all", "steps")
    with Executor(workers=2, min_level=1, level=level) as executor:
        task = CodingTask(items, executor)
        answers = [task.references(item) for item in items]
        texts = {agent: [answer[agent] for answer in answers] for agent in task.agents}
        judgements = task.judge(items, texts)
    short = {i.task_id: j for i, j in zip(items, judgements, strict=True) if j.total != 4.0}
    assert short == {}


@pytest.mark.parametrize("agents, wrapped, number", [
    (("main",), False, 1), (("aux", "main"), True, 1), (("aux", "main"), False, 1),
])  # fmt: skip
def test_demonstrations_pass_whoever_gives_them(executor, agents, wrapped, number):
    """A method that is warmed up on answers which the judge calls wrong is none to compare with."""
    items = load_starter("train")[::5]
    task = CodingTask(items, executor, agents)
    task = CentralisedTask(task, "team") if wrapped else task
    answers = [task.references(item) for item in items]
    kept = [item for item, answer in zip(items, answers, strict=True) if answer]
    texts = {agent: [answer[agent] for answer in answers if answer] for agent in task.agents}
    judgements = task.judge(kept, texts)
    assert len(kept) > 0.9 * len(items)
    assert [i.task_id for i, j in zip(kept, judgements, strict=True) if j.parts["tests"] < number] == []


def test_a_lone_agent_has_no_demonstration_that_the_papers_parsing_cuts(executor):
    items = load_starter("train", "goal")
    task = CodingTask(items, executor, ("main",), parsing="paper")
    answers = [task.references(item) for item in items]
    kept = [item for item, answer in zip(items, answers, strict=True) if answer]
    assert {item.task_id.split("/")[1] for item in kept} == {"single"}  # of one function each
    judgements = task.judge(kept, {"main": [task.references(item)["main"] for item in kept]})
    assert {judgement.parts["tests"] for judgement in judgements} == {1.0}


@pytest.mark.slow
def test_starter_tests_refuse_an_answer_that_returns_nothing(executor):
    items = load_starter()
    mains = [f"def {i.entry_point}(*args):\n    return None" for i in items]
    judgements = CodingTask(items, executor).judge(items, {"aux": [""] * len(items), "main": mains})
    assert [i.task_id for i, j in zip(items, judgements, strict=True) if j.parts["tests"] > 0] == []


def test_humaneval_solutions_earn_everything_alone(executor):
    items = load_humaneval()
    texts = [item.prompt + item.canonical_solution for item in items]
    judgements = CodingTask(items, executor, agents=("solo",)).judge(items, {"solo": texts})
    short = {i.task_id: j for i, j in zip(items, judgements, strict=True) if j.total != pytest.approx(2.1)}
    assert short == {}


def test_rules_of_cooperation_on_what_really_happens(executor):
    (item,) = (i for i in load_starter("all", "steps") if i.entry_point == "sum_plus_one")
    helper = "def aux(numbers):\n    return sum(numbers)"
    helpers = [helper] * 5 + [f"{helper} + 1"]
    mains = [
        "def sum_plus_one(numbers):\n    total = aux(numbers)\n    return total + 1",
        "def sum_plus_one(numbers):\n    total = aux(numbers)\n    return sum(numbers) + 1 + 0 * total",
        "def sum_plus_one(numbers):\n    if not numbers == numbers:\n        return aux(numbers)\n"
        "    return sum(numbers) + 1",
        "def sum_plus_one(numbers):\n    total = aux(numbers)\n    return total * total",
        "def sum_plus_one(numbers):\n    return 1 if not numbers else aux(numbers) * 10",
        "def sum_plus_one(numbers):\n    return aux(numbers)",
    ]
    answers = {"aux": helpers, "main": mains}
    parts = {
        rule: [j.parts for j in CodingTask([item], executor, cooperation=rule).judge([item] * 6, answers)]
        for rule in ("paper", "observed", "influence")
    }
    tests = [p["tests"] for p in parts["influence"]]
    assert tests[:3] == [1, 1, 1] and tests[5] == 1
    paid = {rule: [p["cooperation"] for p in rows] for rule, rows in parts.items()}
    # used; result ignored; never called; wrong; right by chance at best; passed on
    assert paid["influence"] == pytest.approx([1.5, 0, 0, 1.5 * tests[3], 1.5 * tests[4], 1.5])
    assert paid["observed"][:3] == [1.5, 1.0, 0.0] and paid["observed"][5] == 0.5
    assert paid["paper"][:3] == [1.5, 1.5, 1.5] and paid["paper"][5] == 0.5
    with pytest.raises(ValueError, match="cooperation is 'guess'; allowed: influence, observed, paper"):
        CodingTask([item], executor, cooperation="guess")


SUM = CodingItem(
    "t/sum", 'def spread(numbers):\n    """Largest less smallest, plus one."""\n', "spread",
    "def check(candidate):\n    assert candidate([5, 1]) == 5\n    assert candidate([2, 9, 4]) == 8\n",
    ("numbers",),
)  # fmt: skip
LARGEST = "def aux1(numbers):\n    return max(numbers)"
SMALLEST = "def aux2(numbers):\n    return min(numbers)"
ON_FIRST = "def aux2(numbers):\n    return aux1(numbers) - min(numbers)"


@pytest.mark.parametrize("aux1, aux2, main, structure, cooperation", [
    (LARGEST, SMALLEST, "return aux1(numbers) - aux2(numbers) + 1", 1.0, 1.5),  # both used
    (LARGEST, SMALLEST, "return aux1(numbers) - min(numbers) + 1", 1.0, 0.75),  # one never called
    (LARGEST, SMALLEST, "n = aux2(numbers)\n    return aux1(numbers) - min(numbers) + 1 + 0 * n", 1.0, 0.75),
    (LARGEST, "no function", "return aux1(numbers) - min(numbers) + 1", 0.8, 0.75),  # 0.4 / 2 + 0.6
    (LARGEST, SMALLEST, "return max(numbers) - min(numbers) + 1", 1.0, 0.0),
    # main uses what the second makes of the first: the first is no cooperation of main's
    (LARGEST, ON_FIRST, "return aux2(numbers) + 1", 1.0, 0.75),
])
def test_a_team_of_three(executor, aux1, aux2, main, structure, cooperation):
    task = CodingTask([SUM], executor, ("left", "right", "main"))
    texts = {"left": [aux1], "right": [aux2], "main": [f"def spread(numbers):\n    {main}"]}
    (judgement,) = task.judge([SUM], texts)
    assert judgement.parts == pytest.approx(
        {"structure": structure, "syntax": 0.5, "tests": 1.0, "cooperation": cooperation}
    )
    assert judgement.local == {"left": 1.0, "right": float(aux2.startswith("def")), "main": 1.0}
    assert task.reward_range == (0.0, 4.0)
    assert task.normalise(judgement.scores)["return"] == pytest.approx(25 * judgement.total)


def test_one_who_writes_the_functions_of_three(executor):
    task = CentralisedTask(CodingTask([SUM], executor, ("left", "right", "main")))
    text = f"[left]\n{LARGEST}\n[right]\n{SMALLEST}\n[main]\n"
    mains = ["def spread(n):\n    return aux1(n) - aux2(n) + 1", "def spread(n):\n    return 1"]
    judgements = task.judge([SUM] * 2, {"team": [text + main for main in mains]})
    assert [j.total for j in judgements] == [4.0, 1.5]


def test_the_real_executor_on_good_and_bad_answers(executor):
    (item,) = (i for i in load_starter("all", "steps") if i.entry_point == "sum_plus_one")
    helper = "def aux(numbers):\n    return sum(numbers)"
    mains = [
        "def sum_plus_one(numbers):\n    total = aux(numbers)\n    return total + 1",
        "def sum_plus_one(numbers):\n    return aux(numbers)",  # wrong by one everywhere
        "def sum_plus_one(numbers):\n    return undefined",
        "import os\nexit()\n\ndef sum_plus_one(numbers):\n    while numbers:\n        pass\n    return 1",
    ]
    judgements = CodingTask([item], executor).judge([item] * 4, {"aux": [helper] * 4, "main": mains})
    assert [j.total for j in judgements] == [4.0, 1.5, 1.5, 1.5]
    assert [j.verdict for j in judgements] == ["pass", "fail", "error", "load-error"]
    assert judgements[1].failures and judgements[0].failures == ()
