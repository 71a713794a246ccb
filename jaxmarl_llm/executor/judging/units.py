"""Cuts `check(candidate)` into units that are judged one by one. Pure syntax work, nothing runs here."""

from __future__ import annotations

import ast
import dataclasses
import types

from ..errors import InputError

_BLOCKS = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.TryStar, ast.Match)
_ASSIGNMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_UNWRAPPED = (ast.Return, ast.Global, ast.Nonlocal)  # must stand in the function itself
PASSED, FAILED, HANDLED = "__unit_passed__", "__unit_failed__", "__unit_handled__"  # the tester binds them
OUTPUT = "__output__"  # and this, for texts that tests want in the report

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

    Each `except` of the tests begins with a call of HANDLED().

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
    """Parse and rewrite the tests; ValueError where they do not parse or define no `check(candidate)`.

    check() is the last definition of that name, an ordinary function that can be called with the candidate.
    """
    try:
        tree = ast.parse(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"tests of {entry_point!r} do not parse: {error}") from None
    check = check_function(tree)
    if check is None:
        raise InputError(f"tests of {entry_point!r} do not define check(candidate)")
    assertive = assertive_names(tree)
    statements = tuple(check.body)
    first = (check.args.posonlyargs + check.args.args)[0].arg
    named = _Named(tree, check)
    units = _counted(statements, {first, entry_point}, assertive, named)
    for handler in [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]:
        handler.body.insert(0, ast.parse(f"{HANDLED}()").body[0])
    check.body = [_guarded(statement, index) for index, statement in enumerate(statements)]
    code = compile(ast.fix_missing_locations(tree), "<tests>", "exec", dont_inherit=True)
    return Suite(code, units, statements)


def check_function(tree: ast.Module) -> ast.FunctionDef | None:
    """The check() that is called; None where there is none that takes the candidate and runs when called."""
    last = None
    for statement in tree.body:
        if getattr(statement, "name", None) == "check" or "check" in _bound(statement):
            last = statement
    if not isinstance(last, ast.FunctionDef):
        return None
    arguments = last.args
    given = arguments.posonlyargs + arguments.args
    callable_with_one = (
        given and len(given) - len(arguments.defaults) <= 1 and None not in arguments.kw_defaults
    )
    yields = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in _own_nodes(last))
    return last if callable_with_one and not yields else None


def _own_nodes(function: ast.FunctionDef):
    """The nodes of a function, without those of functions within it."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            pending.extend(ast.iter_child_nodes(node))


def assertive_names(tree: ast.AST) -> frozenset[str]:
    """The functions and classes of tests that hold an assert or a raise, or name one that does."""
    definitions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    names: frozenset[str] = frozenset()
    while True:
        more = names | {node.name for node in definitions if asserts(node, names)}
        if more == names:
            return names
        names = more


def asserts(tree: ast.AST, assertive: frozenset[str] = frozenset()) -> bool:
    """Whether running the tree may find a mistake: an assert, a raise, or the use of a function that has one.

    assertive: names of such functions; those whose name begins with "assert" are some, as in unittest.
    """
    for node in ast.walk(tree):
        name = getattr(node, "attr", None) or getattr(node, "id", "")
        if isinstance(node, (ast.Assert, ast.Raise)) or name in assertive or name.startswith("assert"):
            return True
    return False


def _counted(statements, names: set[str], assertive: frozenset[str], named: _Named) -> frozenset[int]:
    """Indices of distinct asserts, and of blocks, calls and assignments that assert, on the candidate's work.

    That is on `names`, on what was assigned from them, and on the variables that a statement names beside
    them: the candidate may have changed these in place, or its results may have been put into them.
    """
    units, seen = set(), set()
    for index, statement in enumerate(statements):
        mentioned = named.by(statement)
        if not mentioned & names:
            continue
        if isinstance(statement, (ast.Assert, ast.Expr)) and asserts(statement, assertive):
            text = ast.dump(judged(statement))
            if text not in seen:
                units.add(index)
            seen.add(text)
        elif isinstance(statement, _BLOCKS) and asserts(statement, assertive):
            units.add(index)
        elif isinstance(statement, _ASSIGNMENTS) and statement.value and asserts(statement.value, assertive):
            units.add(index)
        names = names | _bound(statement) | (mentioned & named.variables)
    return frozenset(units)


class _Named:
    """What statements of the tests name, also within the functions and classes that they name."""

    def __init__(self, tree: ast.Module, check: ast.FunctionDef):
        nodes = list(ast.walk(tree))
        self._definitions = {n.name: n for n in nodes if isinstance(n, _DEFINITIONS) and n is not check}
        self.variables = _stored(nodes)

    def by(self, statement: ast.stmt) -> set[str]:
        """Names in a statement, and in the definitions that it names, in turn."""
        names: set[str] = set()
        pending = [statement]
        while pending:
            new = {node.id for node in ast.walk(pending.pop()) if isinstance(node, ast.Name)} - names
            names |= new
            pending += [self._definitions[name] for name in new if name in self._definitions]
        return names


def judged(statement: ast.Assert | ast.Expr) -> ast.expr:
    """What is asserted, without the message."""
    return statement.test if isinstance(statement, ast.Assert) else statement.value


def _bound(statement) -> set[str]:
    """Names a statement gives a value to."""
    nodes = list(ast.walk(statement))
    return _stored(nodes) | {n.name for n in nodes if isinstance(n, ast.FunctionDef)}


def _stored(nodes) -> set[str]:
    """Names that nodes assign to, patterns of `match` included."""
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    captured = {n.name for n in nodes if isinstance(n, (ast.MatchAs, ast.MatchStar))}
    return stored | {name for name in captured if name}


def _guarded(statement, index):
    """The statement inside _GUARD."""
    if isinstance(statement, _UNWRAPPED):
        return statement
    guard = ast.parse(_GUARD.format(failed=FAILED, passed=PASSED, index=index)).body[0]
    guard.body = [statement]
    return ast.copy_location(guard, statement)
