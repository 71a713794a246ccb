"""Prompts of the coding agents, short for a 135M model.

All agents of all methods, in a team or alone, read the same: the instruction, the worked examples
(`EXAMPLES`, whole problems), the whole problem, and the header of the function to write. Only the sentence
about the agent's role and the answers to the worked examples differ. A test checks this, so that methods can
be compared: no agent gets a part of the problem, or a line of the answer, that another agent does not get.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.roles import helper_functions

SYSTEM = "You write Python code only."

QUESTION = """\
{problem}

{role}
def {function}({arguments}):"""

# What an agent reads about its role. {helpers}: "the helper aux(text)", or all of several.
HELPER = "Write {function}, a helper for {entry_point}:"
MAIN = "Write {entry_point} with {helpers}:"
ALONE = "Write {entry_point}:"


class Example(typing.NamedTuple):
    """A worked problem; it is in no data set.

    parts: expressions over the parameters that helpers may return, at least one. combined: what the main
    function returns with the first part, the first two, .., as {0}, {1}, ..; one entry per part.
    """

    entry_point: str
    params: tuple[str, ...]
    problem: str
    parts: tuple[str, ...]
    combined: tuple[str, ...]


# Problems that name their steps and problems that do not. In the first a helper does everything and main
# returns its result: if all examples were "a helper, then one more operation", that would look like the rule.
# Every answer of main begins with the call, since a 135M model calls a helper more often if all examples do.
EXAMPLES = (
    Example(
        "is_question",
        ("text",),
        'def is_question(text: str) -> bool:\n    """Check that text ends with a question mark."""',
        ("text.endswith('?')",),
        ("{0}",),
    ),
    Example(
        "listed",
        ("words",),
        'def listed(words: list) -> str:\n    """First join words with \', \'. Then add \'.\' to the end."""',
        ("', '.join(words)",),
        ("{0} + '.'",),
    ),
    Example(
        "longer_length",
        ("left", "right"),
        'def longer_length(left: str, right: str) -> int:\n    """Return the length of the longer text."""',
        ("len(left)", "len(right)"),
        ("max({0}, len(right))", "max({0}, {1})"),
    ),
    Example(
        "job_cost",
        ("hours", "wage", "km", "fee"),
        "def job_cost(hours: int, wage: int, km: int, fee: int) -> int:\n"
        '    """Return hours times wage plus km times fee."""',
        ("hours * wage", "km * fee"),
        ("{0} + km * fee", "{0} + {1}"),
    ),
)


def render(item: CodingItem, agents: Sequence[str]) -> dict[str, list[dict[str, str]]]:
    """Chat messages [{role, content}, …] for one problem, by agent.

    agents: names in the order (helpers .., main), or one name of an agent that works alone.
    """
    questions = _questions(item.prompt.strip(), item.entry_point, item.arguments, item.passed, agents)
    shown = [(_example(e, agents), answers(number, agents)) for number, e in enumerate(EXAMPLES)]
    return {
        agent: chat([(question[agent], answer[agent]) for question, answer in shown], questions[agent])
        for agent in agents
    }


def answers(number: int, agents: Sequence[str]) -> dict[str, str]:
    """Each agent's answer to ``EXAMPLES[number]``: one function, no docstring, no other text.

    If there are more helpers than parts, some helpers repeat the first part, and main does not call them.
    Which helpers these are changes with the number, so that each helper is called in some example.
    """
    example, helpers = EXAMPLES[number], helper_functions(agents)
    params = ", ".join(example.params)
    shift = number if len(helpers) > len(example.parts) else 0
    part_of = [(k - shift) % len(helpers) for k in range(len(helpers))]
    texts, called = {}, {}
    for name, part in zip(helpers.values(), part_of, strict=True):
        has_part = part < len(example.parts)
        called |= {part: name} if has_part else {}
        texts[name] = f"def {name}({params}):\n    return {example.parts[part if has_part else 0]}"
    return dict(zip(agents, [*texts.values(), _main(example, params, called)], strict=True))


def _main(example: Example, params: str, called: dict[int, str]) -> str:
    """The main function, with a helper for each of the parts in ``called``, or without any."""
    header = f"def {example.entry_point}({params}):\n"
    if not called:
        return f"{header}    return {example.combined[-1].format(*example.parts)}"
    calls = {part: f"{called[part]}({params})" for part in sorted(called)}
    combined = example.combined[len(calls) - 1]
    names = ("value", "other")[: len(calls)]
    lines = [f"    {name} = {call}\n" for name, call in zip(names, calls.values(), strict=True)]
    return f"{header}{''.join(lines)}    return {combined.format(*names)}"


def _example(example: Example, agents: Sequence[str]) -> dict[str, str]:
    params = ", ".join(example.params)
    return _questions(example.problem, example.entry_point, params, params, agents)


def _questions(
    problem: str, entry_point: str, arguments: str, passed: str, agents: Sequence[str]
) -> dict[str, str]:
    """The question to each agent about one problem; ``arguments`` of headers, ``passed`` in main's calls."""
    helpers, fields = helper_functions(agents), {"problem": problem, "arguments": arguments}
    questions = {
        agent: QUESTION.format(
            role=HELPER.format(function=name, entry_point=entry_point), function=name, **fields
        )
        for agent, name in helpers.items()
    }
    calls = _listed([f"{name}({passed})" for name in helpers.values()])
    noun = "the helpers" if len(helpers) > 1 else "the helper"
    role = (MAIN if helpers else ALONE).format(entry_point=entry_point, helpers=f"{noun} {calls}")
    questions[agents[-1]] = QUESTION.format(role=role, function=entry_point, **fields)
    return questions


def _listed(words: Sequence[str]) -> str:
    """The words with commas, and "and" before the last."""
    *most, last = words or [""]
    return f"{', '.join(most)} and {last}" if most else last


def chat(examples: Sequence[tuple[str, str]], question: str) -> list[dict[str, str]]:
    """Messages: the instruction, worked examples (question, answer), and the question."""
    messages = [{"role": "system", "content": SYSTEM}]
    for example, answer in examples:
        messages += [{"role": "user", "content": example}, {"role": "assistant", "content": answer}]
    return [*messages, {"role": "user", "content": question}]
