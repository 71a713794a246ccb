"""Extract the function that a model meant from its text; never raises."""

from __future__ import annotations

import ast
import re
import textwrap

from jaxmarl_llm.tasks.program_text.python_text import longest_parsable, parse

_FENCE = re.compile(r"```(?:python3?|py)?[ \t]*")
_RETURN_LINE = re.compile(r"^[ \t]*(?:def\b.*:[ \t]*)?return\b", re.MULTILINE)


def clean(text: str) -> str:
    """`text` with Unix line ends, without Markdown fences. Prose stays: extraction by name drops it."""
    return _FENCE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def extract_function(text: str, name: str) -> str:
    """The function `name` out of a completion, without decorators, imports and neighbours; '' if absent.

    Of several definitions the first complete one counts, with those at the left margin before indented ones.
    A definition is complete if it parses and returns something. Lines after its last parsable line are
    dropped, so prose or a truncated line after a finished function does no harm. If no definition is
    complete, the first one is returned unchanged: it may have a `return` and still not parse, which the
    reward counts as structure without syntax.
    """
    lines = clean(text).split("\n")
    start = re.compile(rf"([ \t]*)def[ \t]+{re.escape(name)}[ \t]*\(")
    starts = [(match[1], i) for i, line in enumerate(lines) if (match := start.match(line))]
    first = ""
    for indent, i in sorted(starts, key=lambda pair: (pair[0] != "", pair[1])):
        block = [line.removeprefix(indent) for line in lines[i:]]
        source = _whole_definition(block)
        if source:
            return source
        first = first or _indented_block(block)
    return first


def _whole_definition(lines: list[str]) -> str:
    """The function at lines[0] in the longest prefix of `lines` that parses; '' if it returns nothing."""
    tree = parse("\n".join(lines[: longest_parsable(lines)]))
    if not tree or not tree.body:
        return ""
    function = tree.body[0]
    return "\n".join(lines[: function.end_lineno]) if _returns(function) else ""


def _indented_block(lines: list[str]) -> str:
    """lines[0] and the blank or indented lines that follow it."""
    end = 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " \t"):
        end += 1
    return "\n".join(lines[:end]).rstrip()


def function_node(source: str) -> ast.FunctionDef | None:
    """Syntax tree of the function `source` begins with; None where it does not parse or begins otherwise."""
    tree = parse(textwrap.dedent(source))
    if tree is None or not tree.body or not isinstance(tree.body[0], ast.FunctionDef):
        return None
    return tree.body[0]


def has_return(source: str) -> bool:
    """Whether the function itself returns a value; for text that does not parse, whether a line does."""
    function = function_node(source)
    return bool(_RETURN_LINE.search(source)) if function is None else _returns(function)


def _returns(function: ast.AST) -> bool:
    pending = list(getattr(function, "body", []))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            pending.extend(ast.iter_child_nodes(node))
    return False
