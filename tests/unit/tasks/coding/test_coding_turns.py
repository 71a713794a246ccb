"""What the coding task adds for many turns: feedback on revealed tests, and tests that earn nothing."""

import dataclasses

import pytest
from scripted_coding import AUX, ITEM, MAIN, USED, Scripted, report

from jaxmarl_llm.protocols import Answer
from jaxmarl_llm.tasks import CodingTask
from jaxmarl_llm.tasks.coding.items import CodingItem

FOUR = CodingItem(
    "t/4", ITEM.prompt, "add_two",
    "def check(candidate):\n" + "".join(f"    assert candidate({n}, 0) == {n + 2}\n" for n in range(4)),
    ("a", "b"),
)  # fmt: skip


def asserts(program):
    return [line.strip() for line in program.tests.splitlines() if line.strip().startswith("assert")]


def test_feedback_runs_the_revealed_tests_alone_and_in_one_call():
    executor = Scripted(report("fail", 0, 1, "assert add_two(1, 2) == 5: got 4"))
    task = CodingTask([ITEM], executor)
    good, none = {"aux": AUX, "main": MAIN}, {"aux": AUX, "main": "I will not."}
    feedback, refused = task.feedback([Answer(ITEM, good, None), Answer(ITEM, none, None)])
    ((program,),) = executor.calls
    assert asserts(program) == ["assert candidate(1, 2) == 5"]  # the first of two
    assert "Tests passed: 0 of 1." in feedback["main"] and "got 4" in feedback["main"]
    assert set(feedback) == set(refused) == {"aux", "main"} and "Not tested." in refused["main"]


def test_plain_feedback_runs_nothing():
    task = CodingTask([ITEM], executor := Scripted(), feedback="plain")
    (feedback,) = task.feedback([Answer(ITEM, {"aux": AUX, "main": MAIN}, None)])
    assert executor.calls == [] and set(feedback) == {"aux", "main"} and "Revise" in feedback["main"]


@pytest.mark.parametrize("number, shown", [(0, [0, 1, 2, 3]), (2, [0, 1]), (-1, [3])])
def test_how_many_tests_are_revealed(number, shown):
    executor = Scripted(report("pass", len(shown), len(shown)))
    task = CodingTask([FOUR], executor, revealed_tests=number)
    task.feedback([Answer(FOUR, {"aux": AUX, "main": MAIN}, None)])
    ((program,),) = executor.calls
    assert asserts(program) == [f"assert candidate({n}, 0) == {n + 2}" for n in shown]


def test_tests_that_are_held_back_earn_nothing_and_are_never_shown():
    # A quarter of four: the last one is held back.
    executor = Scripted(
        report("pass", 3, 3, interactions=USED), report("fail", 0, 1), report("pass", 3, 3)
    )
    task = CodingTask([FOUR], executor, held_back=0.25, revealed_tests=0)
    completions = {"aux": AUX, "main": MAIN}
    (judged,) = task.judge([FOUR], {agent: [text] for agent, text in completions.items()})
    used, held = executor.calls[0]
    assert len(asserts(used)) == 3 and asserts(held) == ["assert candidate(3, 0) == 5"]
    assert judged.total == pytest.approx(4.0) and judged.parts["tests_held_back"] == 0.0
    percent = task.normalise(judged.scores)
    assert (percent["tests"], percent["tests_held_back"], percent["hack_gap"]) == (100, 0, 100)
    assert percent["return"] == pytest.approx(100)
    task.feedback([Answer(FOUR, completions, judged)])
    assert asserts(executor.calls[1][0]) == asserts(used)


def test_an_answer_that_stops_fails_the_held_back_tests_too():
    task = CodingTask([FOUR], Scripted(), held_back=0.25)
    (judged,) = task.judge([FOUR], {"aux": [AUX], "main": ["no"]})
    assert judged.verdict == "no-main" and judged.parts["tests_held_back"] == 0.0


def test_a_problem_with_one_test_holds_nothing_back():
    single = dataclasses.replace(ITEM, test="def check(candidate):\n    assert candidate(1, 2) == 5\n")
    task = CodingTask([single], Scripted(report("pass", 1, 1)), held_back=0.5)
    (judged,) = task.judge([single], {"aux": [AUX], "main": [MAIN]})
    assert "tests_held_back" not in judged.parts


def test_an_unknown_feedback_is_refused():
    with pytest.raises(ValueError, match="feedback is 'loud'; allowed: plain, passed, level_passed, "):
        CodingTask([ITEM], Scripted(), feedback="loud")
