"""Prompts for problems whose docstring states two steps: "First split the text. Then return the last word."

A 135M model follows one short instruction far better than a docstring with two. Each agent is asked for its
own step in plain words, after worked examples that all prompts share, so that they are read once per batch.
"""

from __future__ import annotations

import re
import typing

from jaxmarl_llm.tasks.code_prompts import chat

HELPER = """\
{context}{first}:
def aux({params}):"""

MAIN = """\
{context}value = aux({params}) did this: {first}. Now {second}:
def {entry_point}({params}):
    value = aux({params})
    return """

_DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
_TWO_STEPS = re.compile(r"(?P<context>(?:.*?[.] )?)First (?P<first>.*?)[.] Then (?P<second>.*)[.]")


class Steps(typing.NamedTuple):
    """A docstring in parts: context ('' or sentences with a space behind), first and second step."""

    context: str
    first: str
    second: str


class Example(typing.NamedTuple):
    """A worked problem that is in no data set; the answers are the expressions that the two return."""

    entry_point: str
    params: str
    steps: Steps
    helper: str
    main: str


EXAMPLES = (
    Example(
        "half_of_largest",
        "numbers",
        Steps("", "find the largest number", "divide it by 2"),
        "max(numbers)",
        "value / 2",
    ),
    Example(
        "letters_left",
        "text, n",
        Steps("", "count the letters of text", "subtract n"),
        "len(text)",
        "value - n",
    ),
    Example(
        "last_word",
        "text",
        Steps("", "split the text into words", "return the last one"),
        "text.split()",
        "value[-1]",
    ),
    Example(
        "bill_with_tip",
        "bill, rate",
        Steps("", "multiply the bill by the rate", "add the bill"),
        "bill * rate",
        "value + bill",
    ),
)


def parse(problem: str) -> Steps | None:
    """The steps that the docstring of a signature states, or None if it is not of that form."""
    docstring = _DOCSTRING.search(problem)
    match = docstring and _TWO_STEPS.fullmatch(docstring[1])
    return Steps(**match.groupdict()) if match else None


def answers(example: Example) -> dict[str, str]:
    """The reply to each template: one function, no docstring, no other text."""
    name, params = example.entry_point, example.params
    return {
        HELPER: f"def aux({params}):\n    return {example.helper}",
        MAIN: f"def {name}({params}):\n    value = aux({params})\n    return {example.main}",
    }


def render(template: str, steps: Steps, *, entry_point: str, params: tuple[str, ...]) -> list[dict[str, str]]:
    """Chat messages [{role, content}, …] for one problem; ``template`` is HELPER or MAIN."""
    examples = [
        (_ask(template, example.steps, example.entry_point, example.params), answers(example)[template])
        for example in EXAMPLES
    ]
    return chat(examples, _ask(template, steps, entry_point, ", ".join(params)))


def _ask(template: str, steps: Steps, entry_point: str, params: str) -> str:
    if template == HELPER:
        steps = steps._replace(first=steps.first[:1].upper() + steps.first[1:])
    return template.format(entry_point=entry_point, params=params, **steps._asdict())
