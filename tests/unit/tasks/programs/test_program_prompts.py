"""The prompts of program tasks: what each phase shows and hides, by outcome and threshold."""

import dataclasses

import pytest

from jaxmarl_llm.executor import Executor, Program
from jaxmarl_llm.tasks.coding import data_files
from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.program_text.answers import program, same_program
from jaxmarl_llm.tasks.programs import generation_prompts, optimisation_prompts, prompts
from jaxmarl_llm.tasks.programs.optimisation_items import OptimisationItem, load_items

ITEM = OptimisationItem("a/f", "scan", "python", "s", "f", "def f(x):\n    return A(x)\n", "TESTS", 9)
CPP = dataclasses.replace(ITEM, language="c++", source="int f(int x) { return A(x); }\n")
CODE = data_files.load_items("starter[:1]")[0]
PROGRAM = "def f(x):\n    return B(x)\n"
PYTHON, C = optimisation_prompts.asked(ITEM), optimisation_prompts.asked(CPP)


def last_text(messages):
    """The last message, which holds what differs between phases; all are chats that end with the user."""
    roles = [message["role"] for message in messages if message["role"] != "system"]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    return messages[-1]["content"]


def ok(score):
    return Outcome("ok", PROGRAM, score)


WRONG = Outcome("wrong", PROGRAM, log="SECRET")
BROKEN = Outcome("build-error", PROGRAM, log="l\n" * 6 + "7th\n8th")


@pytest.mark.parametrize("asked, tag, code", [(PYTHON, "python", ITEM.source), (C, "cpp", CPP.source)])
def test_the_first_prompt_and_its_example_have_one_form(asked, tag, code):
    messages = prompts.write(asked)
    question, answer = messages[0]["content"], messages[1]["content"]
    assert f"```{tag}\n{code}```" in last_text(messages) and "of f," in last_text(messages)
    assert answer.startswith(f"```{tag}\n") and answer.endswith("\n```")
    # Question and example differ in the name and the code only.
    assert question.replace("largest_rise", "f").split("```")[::2] == last_text(messages).split("```")[::2]


def test_no_example_is_a_problem():
    names = [item.entry_point for item in load_items("python")]
    assert "largest_rise" not in names


def test_the_python_example_is_right_and_new():
    question, answer = optimisation_prompts.example("python")
    before, after = (program(m["content"], "largest_rise", "python") for m in (question, answer))
    assert not same_program(before, after)
    spaces = [{}, {}]
    exec(before, spaces[0]), exec(after, spaces[1])
    for values in ([], [3], [1, 4, 2, 9, 0], [5, 4], [-3, -7, 2]):
        assert spaces[0]["largest_rise"](values) == spaces[1]["largest_rise"](values)


@pytest.mark.slow
def test_the_cpp_example_is_right(executor):
    question, answer = optimisation_prompts.example("c++")
    texts = [program(m["content"], "largest_rise", "c++") for m in (question, answer)]
    tests = (
        "def check(candidate):\n    assert candidate([]) == 0\n    assert candidate([5, 4]) == 0\n"
        "    assert candidate([3, 1, 4, 2, 9, 0]) == 8\n"
    )
    signature = "int largest_rise(const std::vector<int>& values)"
    texts[0] = "#include <algorithm>\n" + texts[0]  # a part of a program is shown
    fields = dict(language="c++", signature=signature)
    reports = executor.run([Program({"a": text}, "largest_rise", tests, **fields) for text in texts])
    if reports[0].verdict == "unsupported":
        pytest.skip(reports[0].failures[0])
    assert [report.verdict for report in reports] == ["pass", "pass"]


@pytest.fixture(scope="module")
def executor():
    with Executor(workers=1, min_level=1) as running:
        yield running


@pytest.mark.parametrize("score, word", [
    (1.1000001, "significantly faster"), (1.1, "slightly faster"), (1.0000001, "slightly faster"),
    (1.0, "no faster"), (0.9999, "slower"), (0.0, "slower"), (7.5, "significantly faster"),
])  # fmt: skip
def test_thresholds_hold_for_lessons_and_their_prompts(score, word):
    words = {"significantly faster", "slightly faster", "no faster", "slower"}
    lesson = optimisation_prompts.lesson("Use sets.", "ok", score)
    asked = last_text(optimisation_prompts.explain(ITEM, ok(score)))
    for text in (lesson, asked):
        assert {w for w in words if w in text} == {word}
    assert ("marginal" in lesson) == (word == "slightly faster")
    assert f"{score:.2f}" in asked and not any(c.isdigit() for c in lesson)  # the number is P3a's alone


def test_prefixes_of_lessons_from_failures():
    assert optimisation_prompts.lesson(" z ", "wrong", 0.0) == "(B gives wrong results) z"
    assert optimisation_prompts.lesson("z", "build-error", 0.0) == "(B does not compile) z"
    assert generation_prompts.lesson("z", "wrong", 3.0) == "(B fails tests) z"
    assert generation_prompts.lesson("z", "build-error", 0.0) == "(B cannot be run) z"


def test_prompts_for_lessons_show_what_they_may():
    for outcome in (ok(2.0), WRONG, BROKEN):
        text = last_text(optimisation_prompts.explain(ITEM, outcome))
        assert "A(x)" in text and "B(x)" in text and "one or two sentences" in text
        assert "SECRET" not in text  # no failing test
    broken = last_text(optimisation_prompts.explain(ITEM, BROKEN))
    assert "7th" in broken and "8th" not in broken
    assert "C++" in last_text(optimisation_prompts.explain(CPP, ok(2.0)))
    assert optimisation_prompts.explain(ITEM, Outcome("no-program")) is None


def test_lessons_are_numbered_one_line_each():
    text = last_text(prompts.write_with_lessons(PYTHON, ["(good) one\ntwo", "(bad) three"]))
    assert "\n1. (good) one two\n2. (bad) three\n" in text and "A(x)" in text
    assert "other programs" not in text
    assert prompts.write_with_lessons(PYTHON, []) == prompts.write(PYTHON)


def test_lessons_about_other_programs_are_told_as_such():
    text = last_text(prompts.write_with_lessons(PYTHON, ["one"], ["two", "three"]))
    own, others = text.split("A is the code below"), text.split("A is not the code below")
    assert len(own) == len(others) == 2
    assert "\n1. one\n" in own[1] and "1. one" not in others[1] and "\n2. two\n3. three\n" in others[1]
    alone = last_text(prompts.write_with_lessons(PYTHON, [], ["two"]))
    assert "A is the code below" not in alone and "\n1. two\n" in alone and "A(x)" in alone


def test_reflexion_shows_program_result_and_reflection():
    result = optimisation_prompts.result(ITEM, ok(1.53))
    text = last_text(prompts.improve(PYTHON, PROGRAM, result, "Loops cost."))
    assert "A(x)" in text and "B(x)" in text and "1.53" in text and "Loops cost." in text
    nothing = last_text(prompts.improve(PYTHON, "", "", " "))
    assert "held no code" in nothing and "thoughts" not in nothing


def test_mapcoder_repairs_its_own_program_by_its_plan():
    result = optimisation_prompts.result(ITEM, BROKEN)
    text = last_text(prompts.repair(PYTHON, "PLAN", PROGRAM, result))
    assert "PLAN" in text and "B(x)" in text and "7th" in text and "8th" not in text
    assert "PLAN" in last_text(prompts.follow(PYTHON, "PLAN\n"))
    recall = prompts.recall(PYTHON)
    assert len(recall) == 1 and "A(x)" in last_text(recall)
    assert "SECRET" not in optimisation_prompts.result(ITEM, WRONG)


def test_a_mixture_sees_programs_and_no_results():
    text = last_text(prompts.aggregate(PYTHON, [PROGRAM, "", "def f(x):\n    return C(x)"]))
    assert "Answer 1:" in text and "Answer 2:" in text and "Answer 3" not in text
    assert "B(x)" in text and "C(x)" in text
    assert prompts.aggregate(PYTHON, ["", " "]) == prompts.write(PYTHON)


def test_generation_counts_tests_and_shows_none():
    asked = generation_prompts.asked(CODE)
    assert CODE.prompt.strip() in last_text(prompts.write(asked))
    wrong = Outcome("wrong", PROGRAM, 3.0, total=7, log="assert f(1) == 'SECRET'")
    text = last_text(generation_prompts.explain(CODE, wrong))
    assert "3 of 7 tests" in text and "SECRET" not in text and "B(x)" in text
    assert generation_prompts.result(CODE, wrong) == "It passes 3 of 7 tests."
    assert "7th" in last_text(generation_prompts.explain(CODE, BROKEN))
    assert generation_prompts.explain(CODE, ok(7.0)) is None
    assert generation_prompts.explain(CODE, Outcome("no-program")) is None
    tests = last_text(generation_prompts.test_prompt(CODE))
    assert "6 " in tests and f"assert {CODE.entry_point}(" in tests and CODE.prompt.strip() in tests
