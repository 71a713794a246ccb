"""Cuts `check(candidate)` into units that are judged one by one. Pure syntax work, nothing runs here."""

from __future__ import annotations

import ast
import dataclasses
import types

from ..errors import InputError

_BLOCKS = (ast.For, ast.While, ast.If, ast.With, ast.Try)
_UNWRAPPED = (ast.Return, ast.Global, ast.Nonlocal)  # must stand in the function itself
PASSED, FAILED = "__unit_passed__", "__unit_failed__"  # the tester binds these two functions

_GUARD = """
try:
    pass
except Exception as __error__:
    {failed}({index}, __error__)
else:
    {passed}({index})
"""


@dataclasses.dataclass(frozen=True)
class Suite:
    """Compiled tests. After each statement of check() the code calls PASSED(i), or FAILED(i, exception).

    units: indices of the statements that count. statements: all statements of check(), for messages.
    """

    code: types.CodeType
    units: frozenset[int]
    statements: tuple[ast.stmt, ...]

    @property
    def total(self) -> int:
        """How many units count: a check() without any is one unit."""
        return max(1, len(self.units))

    def describe(self, index: int) -> str:
        """One short line for a statement."""
        line = ast.unparse(self.statements[index]).splitlines()[0]
        return line if len(line) <= 160 else line[:157] + "..."


def build(tests: str, entry_point: str) -> Suite:
    """Parse and rewrite the tests; ValueError where they do not parse or define no `check(candidate)`."""
    try:
        tree = ast.parse(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"tests of {entry_point!r} do not parse: {error}") from None
    checks = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if not checks or not checks[-1].args.posonlyargs + checks[-1].args.args:
        raise InputError(f"tests of {entry_point!r} do not define check(candidate)")
    check = checks[-1]
    statements = tuple(check.body)
    first = (check.args.posonlyargs + check.args.args)[0].arg
    units = _counted(statements, {first, entry_point})
    check.body = [_guarded(statement, index) for index, statement in enumerate(statements)]
    code = compile(ast.fix_missing_locations(tree), "<tests>", "exec", dont_inherit=True)
    return Suite(code, units, statements)


def _counted(statements, names: set[str]) -> frozenset[int]:
    """Indices of distinct asserts, and of blocks with asserts, on `names` or what was computed from them."""
    units, seen = set(), set()
    for index, statement in enumerate(statements):
        if not _mentions(statement, names):
            continue
        if isinstance(statement, ast.Assert):
            text = ast.dump(statement.test)
            if text not in seen:
                units.add(index)
            seen.add(text)
        elif isinstance(statement, _BLOCKS) and any(isinstance(n, ast.Assert) for n in ast.walk(statement)):
            units.add(index)
        names = names | _bound(statement)
    return frozenset(units)


def _mentions(statement, names) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(statement))


def _bound(statement) -> set[str]:
    """Names a statement gives a value to."""
    nodes = list(ast.walk(statement))
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {n.name for n in nodes if isinstance(n, ast.FunctionDef)}


def _guarded(statement, index):
    """The statement inside _GUARD."""
    if isinstance(statement, _UNWRAPPED):
        return statement
    guard = ast.parse(_GUARD.format(failed=FAILED, passed=PASSED, index=index)).body[0]
    guard.body = [statement]
    return ast.copy_location(guard, statement)
