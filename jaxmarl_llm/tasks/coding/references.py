"""Reference answers of coding problems by role, made from their canonical solutions."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.program_text.python_text import parse
from jaxmarl_llm.utils.errors import UserError

HELPER = "aux"


def answers(item: CodingItem, agents: Sequence[str]) -> dict[str, str] | None:
    """Each agent's part of the canonical solution; None if that cannot be divided so.

    Args:
      item: the problem; its solution may be functions, or the body of the entry point alone (HumanEval).
      agents: one name, which gets everything, or two: the helper, which gets the function ``aux``, and the
        one that writes the entry point and what else there is. Of a solution that is one function the helper
        gets all, and main returns what the helper returns.

    Returns:
      {agent: text} without blank lines, at which a sampled answer may end.

    Raises:
      ValueError: for more agents: a canonical solution has one helper.
    """
    if len(agents) > 2:
        raise UserError(f"reference answers are for one or two agents, these are {tuple(agents)!r}")
    by_name = functions(item)
    if item.entry_point not in by_name:
        return None
    if len(agents) == 1:
        return {agents[0]: _joined(by_name.values())}
    if HELPER not in by_name and len(by_name) == 1:
        by_name |= _passed_on(item, by_name[item.entry_point])
    if HELPER not in by_name:
        return None
    helper = by_name.pop(HELPER)
    return {agents[0]: _joined([helper]), agents[1]: _joined(by_name.values())}


def _passed_on(item: CodingItem, source: str) -> dict[str, str]:
    """The helper's function with the whole solution, and the main function that passes its result on.

    {} where the solution names itself again, as in a recursion.
    """
    helper, count = re.subn(rf"\b{re.escape(item.entry_point)}\b", HELPER, source)
    if count != 1:
        return {}
    params = ", ".join(item.params)
    main = f"def {item.entry_point}({params}):\n    value = {HELPER}({params})\n    return value"
    return {HELPER: helper, item.entry_point: main}


def functions(item: CodingItem) -> dict[str, str]:
    """Source of the functions that the solution defines, by name, in order."""
    solution = item.canonical_solution
    tree = parse(solution) if solution.strip() else None
    if tree is None or not any(isinstance(node, ast.FunctionDef) for node in tree.body):
        solution = f"def {item.entry_point}({', '.join(item.params)}):\n{solution}"  # a body alone
        tree = parse(solution)
    nodes = [] if tree is None else [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_source_segment(solution, node) for node in nodes}


def _joined(sources) -> str:
    return re.sub(r"\n\s*\n", "\n", "\n".join(sources)).strip()
