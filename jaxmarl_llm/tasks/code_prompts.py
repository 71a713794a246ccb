"""Prompts of the coding agents: an instruction and one worked example each, short for a 135M model.

Problems that state two steps have prompts of their own, see `step_prompts`.
"""

from __future__ import annotations

SYSTEM = "You write Python code only."

HELPER = """\
{problem}

Write the helper:
def aux({params}):"""

MAIN = """\
{problem}

Fill in the return:
def {entry_point}({params}):
    value = aux({params})
    return """

SOLO = """\
{problem}

Complete this code:
def {entry_point}({params}):
"""

# The example is in no data set. Its answers show the format: one function, no docstring, no other text.
EXAMPLE = {
    "problem": '''\
def bill_with_tip(bill: float, rate: float) -> float:
    """Return the bill plus the tip."""''',
    "entry_point": "bill_with_tip",
    "params": "bill, rate",
}
ANSWERS = {
    HELPER: """\
def aux(bill, rate):
    tip = bill * rate
    return tip""",
    MAIN: """\
def bill_with_tip(bill, rate):
    value = aux(bill, rate)
    return bill + value""",
    SOLO: """\
def bill_with_tip(bill, rate):
    tip = bill * rate
    return bill + tip""",
}


def render(template: str, problem: str, *, entry_point: str, params: tuple[str, ...]) -> list[dict[str, str]]:
    """Chat messages [{role, content}, …] for one problem; ``template`` is HELPER, MAIN or SOLO."""
    asked = template.format(problem=problem.strip(), entry_point=entry_point, params=", ".join(params))
    return chat([(template.format(**EXAMPLE), ANSWERS[template])], asked)


def chat(examples: list[tuple[str, str]], asked: str) -> list[dict[str, str]]:
    """Messages: the instruction, worked examples (question, answer), and what is asked."""
    messages = [{"role": "system", "content": SYSTEM}]
    for question, answer in examples:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return [*messages, {"role": "user", "content": asked}]
