"""Public problems from an installed package, `modelco`: MBPP, and GSM8K as functions that return a number.

The package is not imported, its files are read (`tasks.installed_data`). It has no signatures and no
solutions, so the signature of an MBPP problem is made from the call in its example.
"""

from __future__ import annotations

import ast
import builtins

from jaxmarl_llm.tasks import installed_data
from jaxmarl_llm.tasks.coding.items import CodingItem, item_from_row

SOURCES = ("mbpp", "gsm8k")
_TASK, _EXAMPLE = "here is your task:", "Your code should pass this test case:"
_ANSWER = "solution"  # name of a function for a problem in words


def load(source: str, split: str = "all") -> list[CodingItem]:
    """The items of one of SOURCES; splits and errors are those of `installed_data.rows`.

    Rows without tests are left out.
    """
    make = {"mbpp": _function, "gsm8k": _number}[source]
    needed = {"id", "input", "test" if source == "mbpp" else "output"}
    items = []
    for own_split, row in installed_data.rows(source, needed):
        if "assert" not in row.get("test", "assert"):
            continue  # two problems of MBPP have no tests
        fields = {"task_id": f"{source}/{row['id']}", "split": own_split, **make(row)}
        items.append(item_from_row(fields))
    return [item for item in items if split in ("all", item.split)]


def _function(row: dict) -> dict:
    """The fields of an MBPP row: the docstring is the task and its example, which calls the function."""
    task, _, example = row["input"].partition(_EXAMPLE)
    call = _call(example.strip())
    parameters = ", ".join(f"arg{number}" for number, _ in enumerate(call.args, 1))
    text = f"{task.partition(_TASK)[2].strip()}\nExample: {example.strip()}"
    return {
        "prompt": f"def {call.func.id}({parameters}):\n    {_docstring(text)}\n",
        "entry_point": call.func.id,
        "test": row["test"],
    }


def _call(example: str) -> ast.Call:
    """The call of the requested function in an example such as ``assert set(f(1)) == {1}``."""
    calls = [node for node in ast.walk(ast.parse(example)) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Name)]
    own = [call for call in named if not hasattr(builtins, call.func.id)]
    return (own or named)[0]  # in one problem the function has a builtin's name


def _number(row: dict) -> dict:
    """The fields of a GSM8K row: a function without parameters that returns the answer."""
    answer = float(str(row["output"]).replace(",", ""))
    return {
        "prompt": f"def {_ANSWER}():\n    {_docstring(row['input'] + chr(10) + 'Return the answer, a number.')}\n",
        "entry_point": _ANSWER,
        "test": f"def check(candidate):\n    assert abs(candidate() - {answer:g}) < 1e-6\n",
    }


def _docstring(text: str) -> str:
    """A text as a docstring's source, with its lines indented by four spaces."""
    escaped = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"').replace("\r", "")
    lines = [line.strip() for line in escaped.split("\n")]
    body = "\n    ".join(lines)
    return f'"""{body}\n    """'
