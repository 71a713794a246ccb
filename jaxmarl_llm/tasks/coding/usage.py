"""Judge from the syntax tree how a main function uses the helper that its partner wrote.

Sources begin with the main function, followed by functions of its own, see `main_text`. A call counts in the
main function and in each of its own functions that it uses, directly or indirectly.
"""

from __future__ import annotations

import ast
import re
import textwrap

from jaxmarl_llm.tasks.coding.text import function_node
from jaxmarl_llm.tasks.program_text.python_text import bound, parse

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def main_text(program: str, entry_point: str) -> str:
    """A program with the last definition of its entry point first, as this module's functions expect it.

    A lambda becomes a function. A program of one function stays as it is, also if it does not parse.
    """
    tree = parse(program)
    body = tree.body if tree else []
    definitions = [statement for statement in body if entry_point in bound([statement])]
    if not definitions or (len(body) == 1 and isinstance(body[0], _SCOPES)):
        return program
    others = [statement for statement in body if statement not in definitions]
    try:
        return ast.unparse(ast.Module([_as_function(definitions[-1]), *others], []))
    except RecursionError:
        return program


def _as_function(statement: ast.stmt) -> ast.stmt:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda(args=arguments, body=value)):
            function = ast.parse(f"def {name}(): pass").body[0]
            function.args, function.body = arguments, [ast.Return(value)]
            return ast.fix_missing_locations(function)
    return statement


def calls_function(main_source: str, helper: str = "aux") -> bool:
    """Whether main calls `helper(...)`; False if main binds the name itself and so calls its own function."""
    return any(_calls(function, helper) for function in _reached(main_source, helper))


def _reached(main_source: str, helper: str) -> list[ast.stmt]:
    """The main function and its own functions that it uses, without those that bind the helper's name."""
    tree = parse(textwrap.dedent(main_source))
    if tree is None or not tree.body or not isinstance(tree.body[0], _SCOPES) or helper in bound(tree.body):
        return []
    own = {statement.name: statement for statement in reversed(tree.body) if isinstance(statement, _SCOPES)}
    reached, pending = [], [tree.body[0]]
    while pending:
        function = pending.pop()
        reached.append(function)
        named = [own.pop(node.id, None) for node in ast.walk(function) if isinstance(node, ast.Name)]
        pending += [other for other in named if other is not None and other is not tree.body[0]]
    return [function for function in reached if not _binds(function, helper)]


def is_thin_wrapper(main_source: str, helper: str = "aux") -> bool:
    """Whether main only passes the helper's result on (CoMLRL's rule).

    After the docstring the body is empty, or one `return` that contains a call of the helper, or exactly
    `v = helper(...)` and `return v`.
    """
    function = function_node(main_source)
    if function is None:
        return False
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    match body:
        case []:
            return True
        case [ast.Return(value=value)] if value is not None:
            return bool(_calls(value, helper))
        case [ast.Assign(targets=[ast.Name(id=name)], value=value), ast.Return(value=ast.Name(id=returned))]:
            return name == returned and _is_call(value, helper)
    return False


def ignores_result(main_source: str, helper: str = "aux") -> bool:
    """Whether the helper is called and no call's value is used.

    A call is unused if it is a statement of its own, or if its value only goes to names that are not read
    afterwards. (A plain assignment to the name in the same block ends its life; in a loop, "afterwards"
    includes the rest of the loop.)
    """
    calls = [
        _is_used(call, parents, function)
        for function in _reached(main_source, helper)
        for parents in [{child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}]
        for call in _calls(function, helper)
    ]
    return bool(calls) and not any(calls)


def ignores_result_comlrl(main_source: str, helper: str = "aux") -> bool:
    """CoMLRL's textual test, for the compat preset only: a line that is `aux (c)`, c one character.

    CoMLRL's pattern requires one white space before the bracket and exactly one character inside, so ordinary
    calls (`aux(x)`, `aux(x, y)`, `aux()`) never match and the penalty almost never applies.
    """
    pattern = re.compile(rf"{re.escape(helper)}\s\([^)]\)")
    return any(pattern.fullmatch(line.strip()) for line in main_source.split("\n"))


def _is_call(node: ast.AST, helper: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == helper


def _calls(tree: ast.AST, helper: str) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if _is_call(node, helper)]


def _binds(function: ast.stmt, name: str) -> bool:
    """Whether `name` is a parameter, a variable, an import or a definition inside `function`."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg) and node.arg == name:
            return True
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, _SCOPES) and node.name == name and node is not function:
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name) == name:
            return True
    return False


def _is_used(call: ast.Call, parents: dict, function: ast.stmt) -> bool:
    statement = parents[call]
    if isinstance(statement, ast.Expr):
        return False
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    elif isinstance(statement, ast.Assign):
        targets = statement.targets
    else:
        return True  # part of a larger expression or of a statement that consumes it
    names = [node for target in targets for node in _flatten(target)]
    if not all(isinstance(node, ast.Name) for node in names):
        return True  # stored in a container or an attribute
    return any(_is_read_after(name.id, statement, parents, function) for name in names)


def _flatten(target: ast.AST) -> list[ast.AST]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [node for element in target.elts for node in _flatten(element)]
    return [target.value] if isinstance(target, ast.Starred) else [target]


def _is_read_after(name: str, statement: ast.stmt, parents: dict, function: ast.stmt) -> bool:
    overwrite = _next_overwrite(name, statement, parents)
    inner_nodes = set(ast.walk(statement))
    for node in ast.walk(function):
        if not isinstance(node, ast.Name) or node.id != name or node in inner_nodes:
            continue
        # `v += 1` reads, though its name is marked as stored.
        if not isinstance(node.ctx, ast.Load) and not isinstance(parents[node], ast.AugAssign):
            continue
        if overwrite is not None:
            if _position(statement) < _position(node) <= _end(overwrite):
                return True
        elif _position(node) > _position(statement) or _share_loop(node, statement, parents):
            return True
    return False


def _next_overwrite(name: str, statement: ast.stmt, parents: dict) -> ast.stmt | None:
    """The first later statement of the same block that assigns `name` unconditionally."""
    for _, block in ast.iter_fields(parents[statement]):
        if isinstance(block, list) and statement in block:
            for later in block[block.index(statement) + 1 :]:
                if isinstance(later, ast.Assign):
                    if any(isinstance(t, ast.Name) and t.id == name for t in later.targets):
                        return later
    return None


def _share_loop(node: ast.AST, statement: ast.stmt, parents: dict) -> bool:
    return any(isinstance(above, _LOOPS) for above in _above(node, parents) & _above(statement, parents))


def _above(node: ast.AST, parents: dict) -> set[ast.AST]:
    ancestors = set()
    while node in parents:
        node = parents[node]
        ancestors.add(node)
    return ancestors


def _position(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.AST) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset
