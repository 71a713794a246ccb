"""Canonical forms of coding problems: equal forms differ only in names, layout and docstrings."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable

from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.program_text.python_text import parse

# Letters of scripts without spaces between words (Thai, Lao, Burmese, Khmer, kana, Chinese): each is a word.
_LETTER = (
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_TOKEN = re.compile(rf"{_LETTER}|(?:(?!{_LETTER})[^\W\d])(?:(?!{_LETTER})\w)*|\d+(?:\.\d+)?|[^\w\s]")

_METHODS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_METHODS, ast.ClassDef)
_TYPES = [kind for kind in vars(builtins).values() if isinstance(kind, type)]
# Attributes of values of Python's own types; `value` and `name` of some exceptions do not count.
_OF_TYPES = {name for kind in _TYPES if not issubclass(kind, Exception) for name in dir(kind)}


def canonical_solution(item: CodingItem) -> str:
    """The reference solution with its own names numbered in order of appearance; '' if the item has none.

    See `Renamer`. Names that the solution does not bind (builtins, modules, attributes of foreign values and
    keywords of calls to them) and constants stay. A solution that is only the function's body (HumanEval) is
    read after the prompt. A solution that does not parse stays text, with its spaces squeezed.
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

    The entry point becomes f and its parameters v0, v1, …, as whole words only. If the prompt has no
    docstring with a word, or does not parse, the words of the whole prompt are used. In a prompt without
    comments the entry point keeps its name, since only the name says what to do.
    """
    names = {name.lstrip("*"): f"v{k}" for k, name in enumerate(item.params)} | {item.entry_point: "f"}
    text = docstring(item)
    if re.search(r"\w", text) is None:
        text = item.prompt
        names |= {} if re.search(r"#.*\w", text) else {item.entry_point: item.entry_point}
    return " ".join(names.get(word, word.lower()) for word in tokens(text))


def tokens(text: str) -> list[str]:
    """Words, numbers and single marks of a text, in order."""
    return _TOKEN.findall(text)


def docstring(item: CodingItem) -> str:
    """The docstring of the prompt's entry point, or the first text after its imports; '' if it has none or does
    not parse."""
    function = prompt_function(item)
    texts = [node for node in function.body if _is_text(node)] if function else []
    return texts[0].value.value if texts else ""


def prompt_function(item: CodingItem) -> ast.FunctionDef | None:
    """The entry point as given in the prompt; a ``pass`` may be added to its body."""
    tree = parse(item.prompt + "\n    pass\n") or parse(item.prompt)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)] if tree else []
    return next((node for node in functions if node.name == item.entry_point), None)


class Renamer(ast.NodeTransformer):
    """Numbers the names that a tree binds, in the order in which it is read.

    Functions and classes are f0, f1, …, variables v0, …, and the methods and attributes of the tree's own classes
    a0, … (except those that Python's types also have). Imported names become what they stand for, such as
    ``math.sqrt``. Docstrings, annotations, decorators and imports are dropped.

    bound: further names to number; builtins among them are not numbered.
    """

    def __init__(self, tree: ast.AST, bound: Iterable[str] = ()):
        nodes = list(ast.walk(tree))
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        self._members = {member for node in classes for member in _members(node)}
        self._attributes = {_written(member) for member in self._members}
        if classes:
            self._attributes |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and not _is_read(n)}
        self._attributes -= _OF_TYPES
        self._bound = {name for name in bound if not hasattr(builtins, name)}
        self._bound |= {name for n in nodes if n not in self._members for name in _binds(n)}
        self._functions = {n.name for n in nodes if isinstance(n, _DEFINITIONS) and n not in self._members}
        self._imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}" if node.module else alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        self._imported |= {
            alias.asname: alias.name
            for node in nodes
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.asname
        }
        self._names: dict[tuple[str, str], str] = {}

    def _numbered(self, kind: str, name: str) -> str:
        taken = sum(of_kind == kind for of_kind, _ in self._names)
        return self._names.setdefault((kind, name), f"{kind}{taken}")

    def _name(self, name: str) -> str:
        if name in self._functions:
            return self._numbered("f", name)
        return self._numbered("v", name) if name in self._bound else self._imported.get(name, name)

    def _attribute(self, name: str) -> str:
        return self._numbered("a", name) if name in self._attributes else name

    def visit_FunctionDef(self, node):
        node.name = (self._attribute if node in self._members else self._name)(node.name)
        node.returns, node.decorator_list = None, []
        _drop_docstring(node)
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node):
        node.name, node.decorator_list = self._name(node.name), []
        _drop_docstring(node)
        return self.generic_visit(node)

    def visit_Module(self, node):
        _drop_docstring(node)
        return self.generic_visit(node)

    def visit_arg(self, node):
        node.arg, node.annotation = self._name(node.arg), None
        return node

    def visit_Name(self, node):
        node.id = (self._attribute if node in self._members else self._name)(node.id)
        return node

    def visit_Attribute(self, node):
        self.generic_visit(node)
        node.attr = self._attribute(node.attr)
        return node

    def visit_Call(self, node):
        if isinstance(node.func, ast.Attribute):
            own = node.func.attr in self._attributes
        else:
            own = getattr(node.func, "id", "") in self._functions | self._bound
        self.generic_visit(node)
        for keyword in node.keywords if own else ():
            if keyword.arg is not None:
                rename = self._name if keyword.arg in self._bound else self._attribute
                keyword.arg = rename(keyword.arg)
        return node

    def visit_ExceptHandler(self, node):
        node.name = node.name and self._name(node.name)
        return self.generic_visit(node)

    visit_MatchAs = visit_MatchStar = visit_ExceptHandler

    def visit_MatchMapping(self, node):
        node.rest = node.rest and self._name(node.rest)
        return self.generic_visit(node)

    def visit_MatchClass(self, node):
        node.kwd_attrs = [self._attribute(name) for name in node.kwd_attrs]
        return self.generic_visit(node)

    def visit_Global(self, node):
        node.names = [self._name(name) for name in node.names]
        return node

    visit_Nonlocal = visit_Global

    def visit_AnnAssign(self, node):
        if node.value is None:  # a class field keeps its place; elsewhere it is only an annotation
            return ast.Expr(self.visit(node.target)) if node.target in self._members else None
        return self.generic_visit(ast.Assign([node.target], node.value, lineno=0))

    def visit_Import(self, node):
        return None

    def visit_ImportFrom(self, node):
        return None


def _members(node: ast.ClassDef) -> list[ast.AST]:
    """The methods of a class, and the names that its body assigns."""
    targets = [
        target
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in getattr(statement, "targets", [getattr(statement, "target", None)])
    ]
    methods = [statement for statement in node.body if isinstance(statement, _METHODS)]
    return methods + [target for target in targets if isinstance(target, ast.Name)]


def _written(member: ast.AST) -> str:
    return member.id if isinstance(member, ast.Name) else member.name


def _binds(node: ast.AST) -> list[str]:
    """Variables that a node binds by itself."""
    match node:
        case ast.arg(arg=name):
            return [name]
        case ast.Name(id=name) if not _is_read(node):
            return [name]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
    return []


def _drop_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    node.body = [statement for statement in node.body if not _is_text(statement)] or node.body


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)


def _is_read(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)
