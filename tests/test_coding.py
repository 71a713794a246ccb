"""The coding task: with an executor that follows a script, and with the real one on all references."""

import pytest

from jaxmarl_llm.executor import Executor, Report
from jaxmarl_llm.tasks import CodingTask, Judgement, code_prompts
from jaxmarl_llm.tasks.code_data import load_humaneval, load_starter
from jaxmarl_llm.tasks.code_items import CodingItem

TEST = "def check(candidate):\n    assert candidate(1, 2) == 5\n    assert candidate(0, 0) == 2\n"
ITEM = CodingItem("t/1", 'def add_two(a, b):\n    """Return a + b + 2."""\n', "add_two", TEST, ("a", "b"))
OTHER = CodingItem("t/2", "import math\n\n\ndef area(r):\n    '''Area.'''\n", "area",
                   "def check(candidate):\n    assert candidate(0) == 0", ("r",), prelude="import math")
AUX = "def aux(a, b):\n    return a + b"
MAIN = "def add_two(a, b):\n    v = aux(a, b)\n    return v + 2"
AREA = "def area(r):\n    return math.pi * r * r"


class Scripted:
    """An executor that gives out prepared reports and remembers what it was asked."""

    def __init__(self, *reports):
        self.reports, self.calls = list(reports), []

    def run(self, programs):
        self.calls.append(list(programs))
        return [self.reports.pop(0) for _ in programs]


def report(verdict, passed, total, *failures):
    return Report(verdict, passed, total, failures, {}, 2, 0.0, 0.0)


def test_one_batch_in_order_with_stopped_answers_between():
    executor = Scripted(report("pass", 2, 2), report("fail", 1, 2, "assert area(0) == 0: got 1"))
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
    assert judgements[0].program_source == f"{AUX}\n\n\n{MAIN}"
    assert judgements[1].program_source == ""
    assert all(tuple(j.parts) == task.part_names and sum(j.parts.values()) == j.total for j in judgements)


def test_score_is_parts_with_total_and_normalise_is_percent():
    task = CodingTask([ITEM], Scripted(report("pass", 2, 2)))
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
    totals = [CodingTask([ITEM], Scripted(report("pass", 2, 2)), compat=compat).judge([ITEM], answer)[0].total
              for compat in (False, True)]
    assert totals == [3.5, 4.0]


def test_prompts_of_a_team():
    prompts = CodingTask([ITEM], None, agents=("left", "right")).prompts(ITEM)
    assert list(prompts) == ["left", "right"]
    for messages in prompts.values():  # one worked example before the question
        assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
        assert "code only" in messages[0]["content"] and "add_two" not in messages[1]["content"]
    helper, main = (messages[-1]["content"] for messages in prompts.values())
    for text in (helper, main):
        assert ITEM.prompt.strip() in text and "{" not in text
    assert "def aux(a, b):" in helper and "aux(a, b)" not in helper.replace("def aux(a, b):", "")
    assert "value = aux(a, b)" in main and "def aux" not in main and main.endswith("    return ")


def test_worked_examples_earn_the_highest_reward():
    """What the agents are shown must be what is asked of them."""
    helper, main = code_prompts.ANSWERS[code_prompts.HELPER], code_prompts.ANSWERS[code_prompts.MAIN]
    test = "def check(candidate):\n    assert candidate(10, 0.5) == 15.0\n"
    item = CodingItem("t", code_prompts.EXAMPLE["problem"], "bill_with_tip", test, ("bill", "rate"))
    task = CodingTask([item], Scripted(report("pass", 1, 1)))
    (judgement,) = task.judge([item], {"aux": [helper], "main": [main]})
    assert judgement.total == pytest.approx(4.0)


def test_a_problem_with_braces_is_quoted_as_it_is():
    item = CodingItem("t", 'def f(d):\n    """f({"a": 1}) is {}."""\n', "f", TEST, ("d",))
    prompts = CodingTask([item], None).prompts(item)
    assert all('f({"a": 1}) is {}.' in messages[-1]["content"] for messages in prompts.values())


def test_one_agent_alone():
    task = CodingTask([ITEM], Scripted(report("pass", 2, 2)), agents=("solo",))
    assert "aux" not in task.prompts(ITEM)["solo"][-1]["content"]
    (judgement,) = task.judge([ITEM], {"solo": ["def add_two(a, b):\n    return a + b + 2"]})
    assert judgement.total == pytest.approx(2.1)
    assert task.reward_range == (0.0, 2.1)
    assert task.normalise(judgement.scores)["return"] == pytest.approx(100.0)


@pytest.mark.parametrize("items, agents, message", [
    ([], ("aux", "main"), "items is empty"),
    ([ITEM], (), "agents is .*allowed: one name, or two"),
    ([ITEM], ("a", "a"), "agents is .*allowed: one name, or two"),
    ([ITEM], ("a", "b", "c"), "agents is .*allowed: one name, or two"),
    ([CodingItem("t/9", "def aux(x):\n", "aux", TEST, ("x",))], ("aux", "main"), "'t/9': entry point 'aux'"),
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


def test_every_starter_solution_earns_everything(level):
    """The references define aux and the entry point: both agents answer with them and earn 4 of 4."""
    items = load_starter("all", "steps")
    texts = [item.canonical_solution for item in items]
    with Executor(workers=2, min_level=1, level=level) as executor:
        judgements = CodingTask(items, executor).judge(items, {"aux": texts, "main": texts})
    short = {i.task_id: j for i, j in zip(items, judgements, strict=True) if j.total != 4.0}
    assert short == {}


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


def test_the_observed_rule_tells_reading_from_using(executor):
    (item,) = (i for i in load_starter("all", "steps") if i.entry_point == "sum_plus_one")
    helper = "def aux(numbers):\n    return sum(numbers)"
    mains = [
        "def sum_plus_one(numbers):\n    total = aux(numbers)\n    return total + 1",
        "def sum_plus_one(numbers):\n    total = aux(numbers)\n    return sum(numbers) + 1 + 0 * total",
        "def sum_plus_one(numbers):\n    if not numbers == numbers:\n        return aux(numbers)\n"
        "    return sum(numbers) + 1",
    ]
    answers = {"aux": [helper] * 3, "main": mains}
    by_text = CodingTask([item], executor).judge([item] * 3, answers)
    by_facts = CodingTask([item], executor, cooperation="observed").judge([item] * 3, answers)
    assert [j.total for j in by_text] == [4.0, 4.0, 4.0]
    assert [j.total for j in by_facts] == [4.0, 3.5, 2.5]
    assert by_facts[0].interactions[0][:3] == ("main", "aux", "aux") and by_facts[0].interactions[0].used
    with pytest.raises(ValueError, match="cooperation is 'guess'; allowed: paper, observed"):
        CodingTask([item], executor, cooperation="guess")


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
    assert [j.verdict for j in judgements] == ["pass", "fail", "error", "timeout-cpu"]
    assert judgements[1].failures and judgements[0].failures == ()
