"""The two operations of a reference solution, apart from constants and the names of arguments.

A solution of two steps is a function `aux` and an entry point that first assigns its result to a variable.
Two problems share a pair of operations if the bodies of both functions are equal after this normalisation:

- names are numbered in the order of appearance;
- constants are replaced by their kind, except in subscripts, where they say what is taken (`x[0]` and `x[-1]`
  are two operations);
- a constant factor or summand stands on the right; subtracting a constant becomes adding one, dividing by one
  becomes multiplying by one, a square becomes a power, and adding a value to itself becomes a product.

The pair has no order: upper case, then reversed, is the same function as reversed, then upper case.
"""

from __future__ import annotations

import ast
import copy

from jaxmarl_llm.tasks.coding.canonical import Renamer, solution_tree
from jaxmarl_llm.tasks.coding.items import CodingItem

HELPER = "aux"


def operations(item: CodingItem) -> tuple[str, str] | None:
    """The operation of `aux` and that of the entry point, in this order; None for a solution of another form.

    Each is the text of a function f0 whose inputs and variables are v0, v1, …
    """
    tree = solution_tree(item)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)} if tree else {}
    if set(functions) != {HELPER, item.entry_point}:
        return None
    helper, main = functions[HELPER].body, functions[item.entry_point].body
    return _canonical(helper), _canonical(main[1:] if _calls_helper(main[0]) else main)


def operation_pair(item: CodingItem) -> tuple[str, str] | None:
    """The two operations in alphabetical order, which splits must not share; None as in
    `operations`."""
    pair = operations(item)
    return pair and tuple(sorted(pair))


def _calls_helper(statement: ast.stmt) -> bool:
    """Whether a statement is `x = aux(…)`: what follows it is the second operation."""
    value = getattr(statement, "value", None)
    return isinstance(statement, ast.Assign) and isinstance(value, ast.Call) and _is_helper(value.func)


def _is_helper(function: ast.expr) -> bool:
    return isinstance(function, ast.Name) and function.id == HELPER


def _canonical(body: list[ast.stmt]) -> str:
    function = ast.parse("def f(): pass").body[0]
    function.body = [_Constants().visit(copy.deepcopy(statement)) for statement in body]
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return ast.unparse(Renamer(function, bound=read).visit(function))


class _Constants(ast.NodeTransformer):
    """Replaces constants by their kind, and writes equal operations with constants in one way."""

    def visit_Constant(self, node):
        kind = "NUMBER" if isinstance(node.value, int | float) else type(node.value).__name__.upper()
        return ast.Constant(kind)

    def visit_Subscript(self, node):
        node.value = self.visit(node.value)
        if not isinstance(node.slice, ast.Constant | ast.Slice | ast.UnaryOp):
            node.slice = self.visit(node.slice)
        return node

    def visit_UnaryOp(self, node):
        if not isinstance(node.op, ast.USub):
            return self.generic_visit(node)
        operand = self.visit(node.operand)  # -x is x times a constant
        return operand if _is_number(operand) else ast.BinOp(operand, ast.Mult(), ast.Constant("NUMBER"))

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult | ast.Add) and _is_number(node.left):
            node.left, node.right = node.right, node.left
        if isinstance(node.op, ast.Sub | ast.Div) and _is_number(node.right):
            node.op = ast.Add() if isinstance(node.op, ast.Sub) else ast.Mult()
        if isinstance(node.op, ast.Mult | ast.Add) and ast.dump(node.left) == ast.dump(node.right):
            node.op = ast.Pow() if isinstance(node.op, ast.Mult) else ast.Mult()
            node.right = ast.Constant("NUMBER")
        return node


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "NUMBER"
