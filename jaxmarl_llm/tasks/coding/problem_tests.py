"""Splits a coding problem's tests into a held-back part and a shown part, by syntax alone.

The pieces are the counted units of `check(candidate)`, as the executor counts them: distinct top-level asserts
on the candidate's results or on what it may have changed, and blocks with such asserts
(`executor.judging.units`).
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Sequence

from jaxmarl_llm.executor.judging import units
from jaxmarl_llm.tasks.program_text.python_text import parse
from jaxmarl_llm.utils.errors import UserError

HIDDEN = "if 'hidden':"  # first line of what is left of a unit that is not selected


def count_units(test: str, entry_point: str = "") -> int:
    """Count the units of `test`, 1 or more: the `total` of a report, unless only other statements fail.

    entry_point: used if the tests call the function by its own name, not as check()'s parameter.
    Errors: ValueError for text that does not parse or defines no check(candidate).
    """
    return _suite(test, entry_point).total


def split(test: str, held_back: float, entry_point: str = "") -> tuple[str, str | None]:
    """(used, held back): tests with a share of about 1 - `held_back` of the units, and with the others.

    The held-back units are evenly spaced and always the same: of eight, a share of 0.25 takes the 4th and the
    8th. If there are two units or more and the share is not 0, at least one unit is used and at least one is
    held back; else the second text is None. Units may repeat each other's cases: only equal asserts count as
    one unit.
    Errors: ValueError for a share outside [0, 1), and as in `count_units`.
    """
    if not 0 <= held_back < 1:
        raise UserError(f"held_back is {held_back!r}; allowed: a share in [0, 1)")
    total = count_units(test, entry_point)
    wanted = max(1, math.floor(held_back * total + 0.5)) if held_back else 0
    number = min(wanted, total - 1)
    if number == 0:
        return test, None
    held = [index for index in range(total) if (index + 1) * number // total > index * number // total]
    used = sorted(set(range(total)).difference(held))
    return select_units(test, used, entry_point), select_units(test, held, entry_point)


def revealed(test: str, number: int, entry_point: str = "") -> str:
    """Tests with the first `number` units; 0: all units; negative: that many from the end."""
    if type(number) is not int:
        raise UserError(f"number is {number!r}; allowed: a whole number")
    indices = range(count_units(test, entry_point))
    return select_units(test, indices[:number] if number > 0 else indices[number:], entry_point)


def select_units(test: str, indices: Sequence[int], entry_point: str = "") -> str:
    """The tests with the chosen units only; all other text stays, also what check() does between units.

    indices: which units, counted from 0; all of them give `test` itself. An assert that repeats a unit is
    selected with it. If a later statement may need what an unselected unit does (a name that it binds, a list
    that it changes), the unit stays without its asserts, under a line that does not show it (HIDDEN).
    Errors: ValueError for no index or one that does not exist, and as in `count_units`.
    """
    suite = _suite(test, entry_point)
    chosen = set(indices)
    if not chosen or not chosen <= set(range(suite.total)):
        raise UserError(f"indices is {indices!r}; allowed: one or more of 0 to {suite.total - 1}")
    if len(chosen) == suite.total:
        return test
    test = test.replace("\r\n", "\n").replace("\r", "\n")  # the parser's line ends
    tree, check = _read(test)
    shared = _shared(tree, check) - {parameter(test), entry_point}
    counted = sorted(suite.units)
    hide = _WithoutAsserts(units.assertive_names(tree))
    check.body = _reduced(check.body, counted, {counted[index] for index in chosen}, shared, hide)
    lines = test.split("\n")
    first = min(node.lineno for node in (check, *check.decorator_list))
    return "\n".join([*lines[: first - 1], ast.unparse(check), *lines[check.end_lineno :]])


def first_failure(failures: Sequence[str], test: str, entry_point: str) -> tuple[str, str]:
    """The first failed statement of a report, with the tested function's name, and how it failed.

    For what is left of hidden tests, only how they failed. The statement is '' there, and if a program ended.
    """
    shown = [line for line in failures if not line.startswith(HIDDEN)]
    line = shown[0] if shown else failures[0].removeprefix(HIDDEN).removeprefix(" -> ")
    statement, arrow, error = line.partition(" -> ")
    if not arrow:
        return "", line
    return re.sub(rf"\b{re.escape(parameter(test))}\b", entry_point, statement), error


def parameter(test: str) -> str:
    """The name of check()'s parameter for the candidate; ValueError as in `count_units`."""
    arguments = _read(test)[1].args
    return (arguments.posonlyargs + arguments.args)[0].arg


def _suite(test: str, entry_point: str) -> units.Suite:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a "\d" in a test's string is not ours to report
        return units.build(test, entry_point)


def _read(test: str) -> tuple[ast.Module, ast.FunctionDef]:
    """The module, and the check() in it that counts."""
    tree = parse(test)
    check = units.check_function(tree) if tree else None
    if tree is None or check is None:
        raise UserError(f"test is {test!r:.80}; allowed: text that defines check(candidate)")
    return tree, check


def _shared(tree: ast.Module, check: ast.FunctionDef) -> set[str]:
    """Names by which one statement of check() may change what another one sees."""
    fixed = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    changing = [node for node in (*tree.body, *check.body) if not isinstance(node, fixed)]
    return set().union(*map(_bound, changing))


def _reduced(
    body: list[ast.stmt], counted: list[int], chosen: set[int], shared: set[str], hide: ast.NodeTransformer
) -> list[ast.stmt]:
    """`body` without the unselected units; statements are given by their positions in `body`."""
    repeatable = (ast.Assert, ast.Expr)
    unit_of = {ast.dump(units.judged(body[i])): i for i in counted if isinstance(body[i], repeatable)}
    kept, needed = [], set()
    for index in reversed(range(len(body))):  # backwards, to know what later statements need
        statement = body[index]
        unit = index if index in counted else None
        if isinstance(statement, repeatable):
            unit = unit_of.get(ast.dump(units.judged(statement)))
        names = _mentioned(statement) & shared
        if unit is not None and unit not in chosen:
            if not names & needed:
                continue
            statement = ast.If(ast.Constant("hidden"), [hide.visit(statement)], [])
        needed |= names
        kept.append(statement)
    return kept[::-1]


class _WithoutAsserts(ast.NodeTransformer):
    """Replaces asserts by their expressions, to keep `:=` and changes of arguments."""

    def __init__(self, assertive: frozenset[str]):
        self._assertive = assertive

    def visit_Assert(self, node):
        return ast.Expr(node.test)

    def visit_Raise(self, node):
        return ast.Pass()

    def visit_Expr(self, node):
        call = node.value
        if isinstance(call, ast.Call) and units.asserts(call.func, self._assertive):
            call = ast.Tuple([*call.args, *(keyword.value for keyword in call.keywords)], ast.Load())
        return ast.Expr(call)


def _mentioned(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | _bound(tree)


def _bound(tree: ast.AST) -> set[str]:
    """Names that `tree` binds or deletes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(getattr(node, "name", None), str):  # definitions, imports, `except` and `case`
            names.add((getattr(node, "asname", None) or node.name).split(".")[0])
    return names
