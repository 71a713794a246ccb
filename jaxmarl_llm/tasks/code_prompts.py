"""What the coding agents are told: an instruction and two worked examples, short for a 135M model.

An agent is shown the form of its own part, never what its partner was told or answers.
"""

from __future__ import annotations

import typing

SYSTEM = "You write Python code only."

HELPER = """\
{problem}

Write the helper for the first step:
def aux({params}):"""

MAIN = """\
{problem}

Fill in the second step:
def {entry_point}({params}):
    value = aux({params})
    return """

SOLO = """\
{problem}

Complete this code:
def {entry_point}({params}):
"""


class Example(typing.NamedTuple):
    """A problem that is in no data set; ``answers`` has the reply to each template."""

    problem: str
    entry_point: str
    params: str
    answers: dict[str, str]


# The answers show the format: one function, no docstring, no other text.
EXAMPLES = (
    Example(
        '''\
def last_word(text: str) -> str:
    """First split the text into words. Then return the last one."""''',
        "last_word",
        "text",
        {
            HELPER: "def aux(text):\n    return text.split()",
            MAIN: "def last_word(text):\n    value = aux(text)\n    return value[-1]",
            SOLO: "def last_word(text):\n    words = text.split()\n    return words[-1]",
        },
    ),
    Example(
        '''\
def bill_with_tip(bill: float, rate: float) -> float:
    """First multiply the bill by the rate. Then add the bill."""''',
        "bill_with_tip",
        "bill, rate",
        {
            HELPER: "def aux(bill, rate):\n    return bill * rate",
            MAIN: "def bill_with_tip(bill, rate):\n    value = aux(bill, rate)\n    return value + bill",
            SOLO: "def bill_with_tip(bill, rate):\n    tip = bill * rate\n    return tip + bill",
        },
    ),
)


def render(template: str, *, problem: str, entry_point: str, params: tuple[str, ...]) -> list[dict[str, str]]:
    """Chat messages [{role, content}, …] for one problem; ``template`` is HELPER, MAIN or SOLO."""
    messages = [{"role": "system", "content": SYSTEM}]
    for example in EXAMPLES:
        answer = {"role": "assistant", "content": example.answers[template]}
        messages += [_ask(template, *example[:3]), answer]
    return [*messages, _ask(template, problem.strip(), entry_point, ", ".join(params))]


def _ask(template: str, problem: str, entry_point: str, params: str) -> dict[str, str]:
    content = template.format(problem=problem, entry_point=entry_point, params=params)
    return {"role": "user", "content": content}
