"""A toolbox for tests, and calls of its tools as agents write them."""

import json

from jaxmarl_llm.tasks.tools import Toolbox
from jaxmarl_llm.tasks.tools.toolbox import of_function


def add(a: int, b: int = 1) -> int:
    """Adds two numbers.

    And more that agents do not read.
    """
    return a + b


def share(part: float, whole: float) -> float:
    """Divides."""
    return part / whole


def passed(item, text: str, strict: bool = False) -> str:
    """Says whether a text is the problem's."""
    return f"{item == text}{' strictly' if strict else ''}"


BOX = Toolbox([of_function(add), of_function(share), of_function(passed)])


def call(name, /, **arguments):
    return f'I think. <tool_call>{json.dumps({"name": name, "arguments": arguments})}</tool_call>'
