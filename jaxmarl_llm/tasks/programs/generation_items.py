"""Coding problems with two sets of tests: those that a search uses, and all tests of the data."""

from __future__ import annotations

import ast
import dataclasses
import logging
import re

from jaxmarl_llm.tasks.coding import problem_tests
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.program_text.python_text import parse
from jaxmarl_llm.tasks.programs.generation_prompts import MOST_TESTS

_log = logging.getLogger("jaxmarl_llm.tasks")


@dataclasses.dataclass(frozen=True)
class GenerationItem(CodingItem):
    """One problem. search: the tests that score programs; `test` holds all tests of the data.

    origin: where `search` comes from: 'given' (the data), 'generated' (a model, so tests may be wrong), or
        'fallback' (the data, because the model wrote no usable tests).
    """

    search: str = ""
    origin: str = "given"


def with_given_tests(item: CodingItem, held_back: float) -> GenerationItem:
    """The item with its own tests as search tests, except a share of `held_back`.

    ValueError for a share outside [0, 1).
    """
    if isinstance(item, GenerationItem) and item.search:
        return item
    fields = {field.name: getattr(item, field.name) for field in dataclasses.fields(CodingItem)}
    return GenerationItem(**fields, search=problem_tests.split(item.test, held_back, item.entry_point)[0])


def with_model_tests(item: CodingItem, asserts: str, held_back: float = 0.5) -> GenerationItem:
    """The item with search tests from an answer to `generation_prompts.test_prompt`.

    These are the lines `assert entry_point(…) == …` of the answer that parse, without repetitions, MOST_TESTS
    at most. If there are none, the search uses the data's tests as in `with_given_tests`, and a warning is
    logged.
    """
    lines = asserts_in(asserts, item.entry_point)
    if not lines:
        _log.warning("%s: no test in %.60r; the search goes by given tests", item.task_id, asserts)
        return dataclasses.replace(with_given_tests(item, held_back), origin="fallback")
    search = "def check(candidate):\n" + "".join(f"    {line}\n" for line in lines)
    return dataclasses.replace(with_given_tests(item, 0.0), search=search, origin="generated")


def asserts_in(text: str, entry_point: str) -> list[str]:
    """The lines of a text that compare a call of the function with a value by ==, in order, each once."""
    asserts = []
    for line in text.splitlines():
        line = re.sub(r"^\s*(?:[-*]\s+|\d+[.)]\s+)?`?(?=assert\b)", "", line).rstrip("` \t")
        tree = parse(line) if line.startswith("assert ") else None
        if tree and len(tree.body) == 1 and _compares(tree.body[0], entry_point):
            asserts.append(ast.unparse(tree.body[0]))
    return list(dict.fromkeys(asserts))[:MOST_TESTS]


def _compares(statement: ast.stmt, entry_point: str) -> bool:
    """Whether it is `assert entry_point(…) == …` with one call of the function and literals only."""
    test = statement.test if isinstance(statement, ast.Assert) else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    call = test.left
    if not isinstance(call, ast.Call) or getattr(call.func, "id", None) != entry_point:
        return False
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    calls = sum(isinstance(node, ast.Call) for node in ast.walk(statement))
    return names == {entry_point} and calls == 1
