"""jaxmarl_llm/tasks/programs/optimisation.py: joint answers by hand, with a scripted judge."""

import math

import pytest
from scripted_programs import ITEMS, Judge

from jaxmarl_llm.executor import Executor, Limits, TimingPlan, available_level
from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.programs.optimisation import OptimisationTask
from jaxmarl_llm.tasks.programs.timed_judge import TimedJudge

(ITEM,) = ITEMS
NAME = ITEM.entry_point


def answer(number):
    return f"Sure:\n```python\ndef {NAME}(values):\n    return {number}\n```\n"


@pytest.fixture
def task():
    return OptimisationTask(ITEMS, Judge(), ("a", "b"))


def test_a_joint_answer(task):
    judged = task.judge([ITEM, ITEM], {"a": [answer(4.0), answer(0)], "b": [answer(0.5), "I cannot."]})
    first, second = judged
    # log 4 = 1.386; 0.5 is slower than 2/3, where the reward ends: log(2/3) = -0.405. Mean 0.490.
    assert first.local == pytest.approx({"a": 1.386294, "b": -0.405465}, abs=1e-6)
    assert first.total == pytest.approx(0.490414, abs=1e-6)
    # Of slow-downs nothing counts here: (1.386 + 0) / 2.
    wanted = {"log_speedup": 0.693147, "correct": 1.0, "compiles": 1.0, "best": 4.0}
    assert first.parts == pytest.approx(wanted, abs=1e-6)
    assert first.verdict == "pass" and first.outcomes["a"].score == 4.0
    assert first.outcomes["a"].program == f"def {NAME}(values):\n    return 4.0\n"
    # Wrong: log(1/2) = -0.693; no program: log(1/4) = -1.386. Mean -1.040.
    assert second.total == pytest.approx(-1.039721, abs=1e-6)
    assert second.parts == {"log_speedup": 0.0, "correct": 0.0, "compiles": 0.5, "best": 0.0}
    assert second.verdict == "wrong"
    ((items, programs),) = task._judge.asked  # one call, answers in order
    assert items == [ITEM] * 4 and [p[-4:] for p in programs] == ["4.0\n", "0.5\n", "n 0\n", ""]


@pytest.mark.parametrize("numbers, verdict", [
    ((1.01, 0), "pass"), ((1.0, 0), "no-faster"), ((0.9, "x"), "no-faster"), ((0, "x"), "wrong"),
    (("x", "x"), "build-error"),
])  # fmt: skip
def test_verdicts(task, numbers, verdict):
    (judged,) = task.judge([ITEM], {agent: [answer(n)] for agent, n in zip("ab", numbers, strict=True)})
    assert judged.verdict == verdict


def test_no_program_at_all(task):
    (judged,) = task.judge([ITEM], {"a": ["no"], "b": [""]})
    assert judged.verdict == "no-program" and judged.scores["total"] == math.log(1 / 4)
    assert task.reward_range == (math.log(1 / 4), math.log(10))


def test_normalise_is_linear_and_in_percent(task):
    most = math.log(10)
    scores = {"log_speedup": most / 4, "correct": 0.5, "compiles": 1.0, "best": 2.5, "total": most}
    assert task.normalise(scores) == pytest.approx(
        {"log_speedup": 25.0, "correct": 50.0, "compiles": 100.0, "best": 25.0, "return": 100.0}
    )
    assert task.normalise({"total": 0.0}) == {"return": 0.0}
    assert task.normalise({"total": math.log(0.5)})["return"] == pytest.approx(-30.103, abs=1e-3)  # -log10(2)
    assert set(task.part_names) | {"total"} == set(scores)


def test_bad_teams_and_batches(task):
    with pytest.raises(ValueError, match="agents is"):
        OptimisationTask(ITEMS, Judge(), ())
    with pytest.raises(ValueError, match="agents is"):
        OptimisationTask(ITEMS, Judge(), ("a", "a"))
    with pytest.raises(ValueError, match="items is empty"):
        OptimisationTask([], Judge(), ("a",))
    with pytest.raises(ValueError, match="expected"):
        task.judge([ITEM], {"a": ["x"]})


def test_the_contract_of_program_tasks(task):
    assert task.good(Outcome("ok", "x", 1.1)) and not task.good(Outcome("ok", "x", 1.09))
    assert not task.good(Outcome("wrong", "x"))
    assert not task.solved(Outcome("ok", "x", 10.0)) and task.source(ITEM) == ITEM.source
    assert task._judge.required == [ITEM]
    (again,) = task.remeasure([ITEM], ["x"])
    assert again.score == 1.5 and task._judge.remeasured == [([ITEM], ["x"])]
    prompts = task.prompts(ITEM)
    assert list(prompts) == ["a", "b"] and prompts["a"] == prompts["b"] != []
    outcome = Outcome("ok", "def g(): pass", 1.2)
    with_lessons = task.write_with_lessons(ITEM, [("Use bisect.", "ok", 1.2)])
    assert "significantly faster than A) Use bisect." in with_lessons[-1]["content"]
    for messages in (
        task.explain(ITEM, outcome), task.improve(ITEM, outcome, "r"), task.recall(ITEM),
        task.follow(ITEM, "p"), task.repair(ITEM, "p", outcome), task.aggregate(ITEM, [outcome]),
    ):  # fmt: skip
        assert messages[-1]["role"] == "user" and ITEM.source.strip() in messages[-1]["content"]


def test_with_a_real_judge():
    """The package's own rewrites of a small problem, written by three agents."""
    if available_level()[0] < 2:
        pytest.skip(available_level()[1])
    kinds = {rewrite.kind: rewrite.source for rewrite in ITEM.rewrites}
    plan = TimingPlan(min_pairs=7, max_pairs=7, min_seconds=1e-4)
    with Executor(workers=2, limits=Limits(cpu_seconds=5)) as executor:
        task = OptimisationTask(ITEMS, TimedJudge(executor, plan), ("a", "b", "c"))
        texts = {"a": [kinds["wrong"]], "b": [f"```\n{ITEM.source}```"], "c": ["def f(:"]}
        (judged,) = task.judge(ITEMS, texts)
    assert [judged.outcomes[a].status for a in "abc"] == ["wrong", "ok", "build-error"]
    assert judged.verdict == "no-faster" and judged.parts["compiles"] == pytest.approx(2 / 3)
