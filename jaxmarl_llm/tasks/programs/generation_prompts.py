"""Prompts about functions to write from a docstring: the problem, results of attempts, and tests."""

from __future__ import annotations

from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.programs.prompts import SENTENCES, Messages, ProblemPrompt, fence, first_lines, user

_ASK = "Write this Python function. Answer with the whole function in one code block."
_TESTS = (
    "Write {most} different tests for this Python function, one to a line, each of the form\n"
    "assert {entry_point}(...) == ...\nAnswer with these lines only."
)
MOST_TESTS = 6  # tests that one model writes for a problem, as in LessonL's release


def asked(item: CodingItem) -> ProblemPrompt:
    """The problem as a task for an agent: write the function. No test is shown.

    There is no worked example: at temperature 0.7, none of the default model's 48 answers to eight starter
    problems was right with one example or with four; without examples four answers were right.
    """
    return ProblemPrompt(f"{_ASK}\n\n{fence(item.prompt, 'python')}", "python")


def lesson(text: str, status: str, score: float) -> str:
    """A lesson with the result of its program before it."""
    effects = {"ok": "passes all tests", "wrong": "fails tests", "build-error": "cannot be run"}
    return f"(B {effects.get(status, 'is no program')}) {text.strip()}"


def result(item: CodingItem, outcome: Outcome) -> str:
    """The result of a program, for its author: how many tests passed, but not which."""
    if outcome.status in ("ok", "wrong"):
        return f"It passes {_counted(outcome)}."
    return f"It cannot be run:\n{first_lines(outcome.log)}" if outcome.status == "build-error" else ""


def explain(item: CodingItem, outcome: Outcome) -> Messages | None:
    """Ask the author why its program fails; None if it passes or there is no program."""
    if outcome.status in ("ok", "no-program"):
        return None
    shown = f"Problem A:\n{fence(item.prompt, 'python')}\n\nProgram B:\n{fence(outcome.program, 'python')}"
    if outcome.status == "wrong":
        question = f"B passes {_counted(outcome)} of problem A. Why does it fail the others?"
    else:
        question = f"B cannot be run:\n{first_lines(outcome.log)}\nWhy?"
    return [user(f"{shown}\n\n{question} {SENTENCES}")]


def test_prompt(item: CodingItem) -> Messages:
    """Ask for tests of a problem; `generation_items.with_model_tests` reads the answer."""
    ask = _TESTS.format(most=MOST_TESTS, entry_point=item.entry_point)
    return [user(f"{ask}\n\n{fence(item.prompt, 'python')}")]


def _counted(outcome: Outcome) -> str:
    return f"{outcome.score:.0f} of {outcome.total} tests"
