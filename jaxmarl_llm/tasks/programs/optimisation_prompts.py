"""Prompts about making programs faster: the problem, the result of an attempt, requests for lessons."""

from __future__ import annotations

from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.programs.optimisation_items import OptimisationItem
from jaxmarl_llm.tasks.programs.prompts import (
    LANGUAGE_NAMES,
    SENTENCES,
    Messages,
    ProblemPrompt,
    fence,
    first_lines,
    user,
)

SIGNIFICANT = 1.1  # a larger speed-up is called more than slight
_ASK = """\
Here is a {language} program:

{code}

Write it again so that it runs faster and gives the same results. Keep the name and the parameters of \
{entry_point}, and answer with the whole program in one code block."""

# A worked problem that is in no data set: small, safe steps, in the form of an answer.
_EXAMPLES = {
    "python": (
        "largest_rise",
        """\
def largest_rise(values):
    best = 0
    for i in range(len(values)):
        for j in range(i + 1, len(values)):
            if values[j] - values[i] > best:
                best = values[j] - values[i]
    return best""",
        """\
def largest_rise(values):
    best = 0
    for i, first in enumerate(values):
        for second in values[i + 1:]:
            if second - first > best:
                best = second - first
    return best""",
    ),
    "c++": (
        "largest_rise",
        """\
int largest_rise(const std::vector<int>& values) {
    int best = 0;
    for (size_t i = 0; i < values.size(); i++)
        for (size_t j = i + 1; j < values.size(); j++)
            best = std::max(best, values[j] - values[i]);
    return best;
}""",
        """\
#include <algorithm>
#include <vector>

int largest_rise(const std::vector<int>& values) {
    int best = 0, lowest = values.empty() ? 0 : values[0];
    for (int value : values) {
        best = std::max(best, value - lowest);
        lowest = std::min(lowest, value);
    }
    return best;
}""",
    ),
}


def example(language: str) -> tuple[dict[str, str], ...]:
    """A worked problem as a chat: question and answer."""
    name, slow, fast = _EXAMPLES[language]
    answer = {"role": "assistant", "content": fence(fast, language)}
    return (user(_question(name, slow, language)), answer)


def _question(entry_point: str, source: str, language: str) -> str:
    code = fence(source, language)
    return _ASK.format(language=LANGUAGE_NAMES[language], code=code, entry_point=entry_point)


def asked(item: OptimisationItem) -> ProblemPrompt:
    """The problem as a task for an agent: rewrite the code."""
    question = _question(item.entry_point, item.source, item.language)
    return ProblemPrompt(question, item.language, example(item.language))


def lesson(text: str, status: str, score: float) -> str:
    """A lesson with the result of its program before it. Speed-ups are not shown as numbers."""
    return f"({_effect(status, score)}) {text.strip()}"


def _effect(status: str, score: float) -> str:
    if status == "ok":
        return f"B is {_comparison(score)}" + (", a marginal gain" if 1 < score <= SIGNIFICANT else "")
    return {"wrong": "B gives wrong results", "build-error": "B does not compile"}.get(
        status, "B is no program"
    )


def _comparison(score: float) -> str:
    """Speed of B against A.

    Here a score of exactly 1.1 is a slight gain; LessonL's release calls it a degradation.
    """
    if score > SIGNIFICANT:
        return "significantly faster than A"
    if score > 1:
        return "slightly faster than A"
    return "no faster than A" if score == 1 else "slower than A"


def result(item: OptimisationItem, outcome: Outcome) -> str:
    """The result of a program, for its author: the speed-up as a number, without failed tests."""
    if outcome.status == "ok":
        return f"It is right, and {outcome.score:.2f} times as fast as the given program."
    if outcome.status == "wrong":
        return "It does not always give the results of the given program."
    if outcome.status == "build-error":
        return f"It does not compile:\n{first_lines(outcome.log)}"
    return ""


def explain(item: OptimisationItem, outcome: Outcome) -> Messages | None:
    """Ask the author for a lesson from the result of its program; None if it wrote no program."""
    if outcome.status == "no-program":
        return None
    language = LANGUAGE_NAMES[item.language]
    shown = [
        f"Code {name}:\n{fence(code, item.language)}"
        for name, code in (("A", item.source), ("B", outcome.program))
    ]
    if outcome.status == "ok":
        question = (
            f"A and B are {language} programs that give the same results. Run in the same way, B is "
            f"{_comparison(outcome.score)}: its speed is {outcome.score:.2f} times that of A. Why?"
        )
    elif outcome.status == "wrong":
        question = (
            f"B was meant to give the same results as A, a {language} program, and does not. "
            "What is different in B?"
        )
    else:
        question = (
            f"B was meant to be a faster {language} program than A, and does not compile:\n"
            f"{first_lines(outcome.log)}\nWhy does it not compile?"
        )
    return [user("\n\n".join([*shown, f"{question} {SENTENCES}"]))]
