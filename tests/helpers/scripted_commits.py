"""For tests: a writer that names the mutation and a rebuilder that does what a message says, without the diff."""

import ast
import io
import re
import tokenize
from collections.abc import Callable

_REPLACED = re.compile(r"(?:Use|Compare with|Call) (?P<new>\S+) instead of (?P<old>\S+) in (?P<function>\w+)")
_SET = re.compile(r"Set (?P<old>\S+) to (?P<new>\S+) in (?P<function>\w+)")
_SWAPPED = re.compile(r"Swap the arguments of (?P<call>\w+) in (?P<function>\w+)")
_NEGATED = re.compile(r"Remove the not from the if in (?P<function>\w+)")
_BEGIN = re.compile(r"Begin (?P<function>\w+) with: (?P<line>.+)")


def rebuilt(before: str, message: str) -> str:
    """The program after the change that a message names; the program as it is if it names none."""
    if match := _REPLACED.fullmatch(message) or _SET.fullmatch(message):
        return _token_replaced(before, **match.groupdict())
    if match := _SWAPPED.fullmatch(message):
        return _swapped(before, **match.groupdict())
    if match := _NEGATED.fullmatch(message):
        return _edited(before, match["function"], _without_not)
    if match := _BEGIN.fullmatch(message):
        return _edited(
            before, match["function"], lambda node: node.body.insert(0, ast.parse(match["line"]).body[0])
        )
    return before


def texts(request, spoken: int, message: Callable[[str], str]) -> str:
    """What either says to a request of a protocol; ``message(prompt)`` is the writer's text."""
    text = request.messages[-1]["content"]
    if request.agent == "writer":
        return message(text)
    _, said, rest = re.fullmatch(
        r"(writer wrote:\n)(.*?)\n\n(This is the program now:.*)", text, re.DOTALL
    ).groups()
    before = re.search(r"```python\n(.*?)```", rest, re.DOTALL)[1]
    return f"```python\n{rebuilt(before, said)}```"


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)


def _token_replaced(before: str, old: str, new: str, function: str) -> str:
    node, lines = _function(ast.parse(before), function), before.split("\n")
    places = [
        token
        for token in tokenize.generate_tokens(io.StringIO(before).readline)
        if token.string == old and node.lineno <= token.start[0] <= node.end_lineno
    ]
    (token,) = places  # a message that names two places says nothing
    line = lines[token.start[0] - 1]
    lines[token.start[0] - 1] = line[: token.start[1]] + new + line[token.end[1] :]
    return "\n".join(lines)


def _swapped(before: str, call: str, function: str) -> str:
    def swap(node):
        (found,) = (
            each
            for each in ast.walk(node)
            if isinstance(each, ast.Call)
            and call in (getattr(each.func, "id", ""), getattr(each.func, "attr", ""))
        )
        found.args[:2] = found.args[1::-1]

    return _edited(before, function, swap)


def _without_not(node: ast.FunctionDef) -> None:
    (statement,) = (each for each in ast.walk(node) if isinstance(each, ast.If))
    statement.test = statement.test.operand


def _edited(before: str, function: str, edit) -> str:
    tree = ast.parse(before)
    edit(_function(tree, function))
    return ast.unparse(tree) + "\n"
