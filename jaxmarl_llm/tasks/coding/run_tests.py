"""The tool ``run_tests`` of coding: agents try a program on the tests that they may see, before they answer.

An agent writes one of several functions, so it tries a whole program of its own: the tested function, and
stand-ins for the functions of its partners that it uses. The partners' real functions are never run for it.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxmarl_llm.executor import Program
from jaxmarl_llm.tasks.coding import problem_tests, sources
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.program_text.python_text import syntax_error
from jaxmarl_llm.tasks.tools import Tool

NAME = "run_tests"
ORIGIN = "tools.of_task"
_ABOUT = (
    "Runs Python code that defines the tested function, and whatever it calls, on some tests of the problem; says how "
    "many pass and which fails first"
)


def tool(executor, shown: Callable[[CodingItem], str]) -> Tool:
    """The tool; ``shown(item)`` are the tests that agents may see, without those held back."""

    def run_tests(item: CodingItem, program: str) -> str:
        return run(executor, item, program, shown(item))

    return Tool(NAME, _ABOUT, {"program": str}, run_tests, of_item=True, at_once=True, origin=ORIGIN)


def run(executor, item: CodingItem, program: str, tests: str) -> str:
    """How many of the tests a program passes, and the first failure, as text for the agent."""
    source = sources.source(program, item.entry_point)
    if not source:
        wrong = syntax_error(program)
        return f"error: the program {wrong or f'does not define {item.entry_point}, which the tests call'}"
    (report,) = executor.run([Program({"program": source}, item.entry_point, tests, item.prelude)])
    lines = [f"passed {report.passed} of {report.total}"]
    if report.failures:
        statement, error = problem_tests.first_failure(report.failures, tests, item.entry_point)
        lines.append(f"first failure: {f'{statement} -> ' if statement else ''}{error}")
    return "\n".join(lines)
