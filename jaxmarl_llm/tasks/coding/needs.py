"""What the tests of a problem need: undefined names, and modules that the sandbox does not have."""

from __future__ import annotations

import ast
import builtins
import importlib
import symtable
import sys
from collections.abc import Collection, Iterator

from jaxmarl_llm.tasks.program_text.python_text import bound, parse

_KNOWN = frozenset((*dir(builtins), "__name__", "__builtins__"))
_GUARDS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def undefined(test: str, prelude: str, entry_point: str) -> list[str]:
    """Names that a test uses but that the test, its prelude and Python do not define, in alphabetical order.

    The candidate's names do not count: what a test uses has to come from the data. [] if an ``import *`` may
    define any name, and for text that does not parse.
    """
    trees = [tree for tree in (parse(test), parse(prelude)) if tree is not None]
    starred = [_starred(tree) for tree in trees]
    if len(trees) < 2 or None in starred:
        return []
    try:
        table = symtable.symtable(test, "<test>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return []
    known = _KNOWN.union(*(names for names in starred if names), *(bound(tree.body) for tree in trees))
    used, defined = set(), {entry_point}
    for scope in _scopes(table):
        for symbol in scope.get_symbols():
            if scope is table or symbol.is_global():
                used |= {symbol.get_name()} if symbol.is_referenced() else set()
                defined |= {symbol.get_name()} if symbol.is_assigned() or symbol.is_imported() else set()
    return sorted(used - defined - known)


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _scopes(child)


def _starred(tree: ast.Module) -> set[str] | None:
    """Names that `from module import *` of the standard library brings in; None for another module."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            if (node.module or "").partition(".")[0] not in sys.stdlib_module_names:
                return None
            module = importlib.import_module(node.module or "")
            names |= set(getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"]))
    return names


def foreign_modules(text: str, allowed: Collection[str] = ()) -> list[str]:
    """Top-level modules that a text imports and that are neither the standard library's nor ``allowed``.

    An import inside a `try` that catches its failure does not count.
    """
    tree = parse(text)
    if tree is None:
        return []
    guarded = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and any(map(_catches, node.handlers))
        for statement in node.body
        for inner in ast.walk(statement)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and node not in guarded:
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node not in guarded:
            names.add("." * node.level + (node.module or "").partition(".")[0])
    return sorted(names - set(allowed) - set(sys.stdlib_module_names))


def _catches(handler: ast.ExceptHandler) -> bool:
    kinds = ast.walk(handler.type) if handler.type else ()
    return handler.type is None or any(getattr(kind, "id", None) in _GUARDS for kind in kinds)
