"""Canonical forms of coding problems: equal forms differ by names, layout and docstrings alone."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable

from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.program_text.python_text import parse

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|[^\w\s]")


def canonical_solution(item: CodingItem) -> str:
    """The reference solution with its own names numbered in order of appearance; '' if the item has none.

    Functions are f0, f1, …, arguments and variables v0, v1, …; docstrings, annotations, decorators and
    imports are dropped. Names that the solution does not bind (builtins, modules), attributes, keywords of
    calls and constants stay. A solution that is only the function's body (HumanEval) is read behind the
    prompt. One that does not parse stays text, its spaces squeezed.
    """
    tree = solution_tree(item)
    if tree is None:
        return " ".join(item.canonical_solution.split())
    return ast.unparse(Renamer(tree).visit(tree))


def solution_tree(item: CodingItem) -> ast.Module | None:
    """The syntax tree of the reference solution, with the prompt in front if it is only a body; None if there
    is none or it does not parse."""
    if not item.canonical_solution.strip():
        return None
    alone = parse(item.canonical_solution)
    if alone is not None and any(getattr(node, "name", "") == item.entry_point for node in alone.body):
        return alone
    return parse(item.prompt + item.canonical_solution)


def canonical_prompt(item: CodingItem) -> str:
    """The words of the problem's docstring in lower case, separated by spaces.

    The entry point is f, its parameters are v0, v1, …, whole words only. Where the prompt has no docstring
    that parses, the words of the whole prompt.
    """
    names = {name.lstrip("*"): f"v{k}" for k, name in enumerate(item.params)} | {item.entry_point: "f"}
    words = (names.get(word, word.lower()) for word in tokens(docstring(item) or item.prompt))
    return " ".join(words)


def tokens(text: str) -> list[str]:
    """Words, numbers and single marks of a text, in order."""
    return _TOKEN.findall(text)


def docstring(item: CodingItem) -> str:
    """The docstring of the prompt's entry point; '' if it has none or does not parse."""
    function = prompt_function(item)
    return (ast.get_docstring(function) or "") if function else ""


def prompt_function(item: CodingItem) -> ast.FunctionDef | None:
    """The entry point as far as the prompt has it; its body may end with a ``pass`` that the prompt lacks."""
    tree = parse(item.prompt + "\n    pass\n") or parse(item.prompt)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)] if tree else []
    return next((node for node in functions if node.name == item.entry_point), None)


class Renamer(ast.NodeTransformer):
    """Numbers the names that a tree binds, in the order in which it is read.

    It also drops docstrings, annotations, decorators and imports.

    bound: further names that are to be numbered; builtins among them are not.
    """

    def __init__(self, tree: ast.AST, bound: Iterable[str] = ()):
        self._bound = {name for name in bound if not hasattr(builtins, name)}
        self._bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        self._bound |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not _is_read(n)}
        self._functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        self._names: dict[str, str] = {}

    def _name(self, name: str) -> str:
        if name not in self._functions | self._bound:
            return name
        kind = "f" if name in self._functions else "v"
        taken = sum(new_name.startswith(kind) for new_name in self._names.values())
        return self._names.setdefault(name, f"{kind}{taken}")

    def visit_FunctionDef(self, node):
        node.name, node.returns, node.decorator_list = self._name(node.name), None, []
        if len(node.body) > 1 and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        return self.generic_visit(node)

    def visit_ClassDef(self, node):
        node.name, node.decorator_list = self._name(node.name), []
        return self.generic_visit(node)

    def visit_arg(self, node):
        node.arg, node.annotation = self._name(node.arg), None
        return node

    def visit_Name(self, node):
        node.id = self._name(node.id)
        return node

    def visit_AnnAssign(self, node):
        if node.value is None:
            return None
        return self.generic_visit(ast.Assign([node.target], node.value, lineno=0))

    def visit_Import(self, node):
        return None

    def visit_ImportFrom(self, node):
        return None


def _is_read(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)
