"""What the coding agents are told: an instruction and one worked example each, short for a 135M model."""

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
def price_with_tax(price: float, rate: float) -> float:
    """Return the price plus the tax."""''',
    "entry_point": "price_with_tax",
    "params": "price, rate",
}
ANSWERS = {
    HELPER: """\
def aux(price, rate):
    tax = price * rate
    return tax""",
    MAIN: """\
def price_with_tax(price, rate):
    value = aux(price, rate)
    return price + value""",
    SOLO: """\
def price_with_tax(price, rate):
    tax = price * rate
    return price + tax""",
}


def render(template: str, *, problem: str, entry_point: str, params: tuple[str, ...]) -> list[dict[str, str]]:
    """Chat messages [{role, content}, …] for one problem; ``template`` is HELPER, MAIN or SOLO."""
    asked = template.format(problem=problem.strip(), entry_point=entry_point, params=", ".join(params))
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": template.format(**EXAMPLE)},
        {"role": "assistant", "content": ANSWERS[template]},
        {"role": "user", "content": asked},
    ]
