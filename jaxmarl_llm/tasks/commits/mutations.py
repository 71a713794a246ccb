"""Mutants of a program: one place changed, with the message of the commit that fixes it. Text in, text out.

A mutant is the program *before* a commit; the program itself is the one *after* it. A message names the
function and what replaces what. Only mutants with exactly one such place are made, so the message and the
mutant together determine the program.
"""

import ast
import dataclasses
import io
import tokenize
from collections.abc import Iterator

from jaxmarl_llm.tasks.program_text.python_text import parse

KINDS = ("operator", "boundary", "condition", "constant", "call", "arguments", "negation", "branch")
_OPERATORS = {"+": "-", "-": "+", "*": "+", "//": "*", "/": "*", "%": "//", "**": "*"}
_BOUNDARIES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_CONDITIONS = {"==": "!=", "!=": "==", "and": "or", "or": "and"}
_PAIRS = (
    ("min", "max"), ("any", "all"), ("upper", "lower"), ("startswith", "endswith"), ("lstrip", "rstrip"),
    ("ceil", "floor"), ("sum", "len"), ("append", "remove"), ("find", "rfind"), ("title", "capitalize"),
    ("keys", "values"), ("sorted", "list"), ("union", "intersection"),
)  # fmt: skip
_CALLS = dict(_PAIRS) | {second: first for first, second in _PAIRS}
_KEYWORDS_BEFORE_A_SIGN = frozenset(
    ("return", "in", "and", "or", "not", "if", "else", "lambda", "yield", "is")
)
_Token = tokenize.TokenInfo


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A program with one place changed.

    kind: one of `KINDS`. before: its text. message: of the commit that restores the program.
    """

    kind: str
    before: str
    message: str


def mutants(program: str) -> list[Mutant]:
    """All mutants of a program of functions, in the order of its text and of the kinds; [] if it does not parse."""
    tree = parse(program)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)] if tree else []
    made = [one for function in functions for one in _of_function(program, function)]
    unlike = {one.before: one for one in made if parse(one.before) is not None}
    return list(unlike.values())


def _of_function(program: str, function: ast.FunctionDef) -> Iterator[Mutant]:
    lines = program.split("\n")
    tokens = [t for t in _tokens(program) if function.lineno <= t.start[0] <= (function.end_lineno or 0)]
    for place, token in enumerate(tokens):
        if change := _changed(tokens, place):
            kind, old = change
            if sum(t.string == old for t in tokens):  # the message would be ambiguous
                continue
            yield Mutant(kind, _spliced(lines, token, old), _message(kind, token.string, old, function.name))
    yield from _swapped(lines, function)
    yield from _negated(lines, function)
    yield from _without_branch(lines, function)


def _tokens(program: str) -> list[_Token]:
    """The tokens of a program, without those inside of f-strings, which newer Python versions split."""
    tokens, depth = [], 0
    for token in tokenize.generate_tokens(io.StringIO(program).readline):
        name = tokenize.tok_name[token.type]
        depth += (name == "FSTRING_START") - (name == "FSTRING_END")
        if not depth:
            tokens.append(token)
    return tokens


def _changed(tokens: list[_Token], place: int) -> tuple[str, str] | None:
    """The kind of the mutation of a token, and the new token; None if there is none."""
    token = tokens[place]
    before, after = tokens[max(0, place - 1)], tokens[min(place + 1, len(tokens) - 1)]
    text = token.string
    if token.type == tokenize.OP:
        if text in _OPERATORS and _ends_operand(before):
            return "operator", _OPERATORS[text]
        if text in _BOUNDARIES:
            return "boundary", _BOUNDARIES[text]
    if text in _CONDITIONS:
        return "condition", _CONDITIONS[text]
    if token.type == tokenize.NUMBER and text.isdecimal():
        return "constant", str(int(text) + 1)
    if token.type == tokenize.NAME and text in _CALLS and after.string == "(" and before.string != "def":
        return "call", _CALLS[text]
    return None


def _ends_operand(token: _Token) -> bool:
    """Whether an operator after this token is binary, not the sign of a number or of arguments."""
    if token.type == tokenize.NAME:
        return token.string not in _KEYWORDS_BEFORE_A_SIGN
    return token.type in (tokenize.NUMBER, tokenize.STRING) or token.string in (")", "]", "}")


def _message(kind: str, right: str, wrong: str, function: str) -> str:
    verb = {"boundary": "Compare with", "constant": "Set", "call": "Call"}.get(kind, "Use")
    if kind == "constant":
        return f"{verb} {wrong} to {right} in {function}"
    return f"{verb} {right} instead of {wrong} in {function}"


def _spliced(lines: list[str], token: _Token, text: str) -> str:
    (row, start), (_, end) = token.start, token.end
    line = lines[row - 1]
    return "\n".join([*lines[: row - 1], line[:start] + text + line[end:], *lines[row:]])


def _swapped(lines: list[str], function: ast.FunctionDef) -> Iterator[Mutant]:
    """Calls with their first two arguments swapped, for names that the function calls once."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    names = [_called(call) for call in calls]
    for call, name in zip(calls, names, strict=True):
        if not name or names.count(name) > 1 or len(call.args) < 2:
            continue
        first, second = call.args[:2]
        on_one_line = first.lineno == second.end_lineno and lines[first.lineno - 1].isascii()
        starred = any(isinstance(each, ast.Starred) for each in (first, second))
        if starred or not on_one_line:
            continue
        row, line = first.lineno - 1, lines[first.lineno - 1]
        a, b = (line[each.col_offset : each.end_col_offset] for each in (first, second))
        between = line[first.end_col_offset : second.col_offset]
        if a == b or between.strip() != ",":
            continue
        new = f"{line[: first.col_offset]}{b}{between}{a}{line[second.end_col_offset :]}"
        yield Mutant("arguments", _with(lines, row, new), f"Swap the arguments of {name} in {function.name}")


def _called(call: ast.Call) -> str:
    """The name of the called function, the last part of a dotted one."""
    return getattr(call.func, "id", "") or getattr(call.func, "attr", "")


def _negated(lines: list[str], function: ast.FunctionDef) -> Iterator[Mutant]:
    """The only ``if`` statement of a function with its condition negated."""
    statements = [node for node in ast.walk(function) if isinstance(node, ast.If)]
    if len(statements) != 1:
        return
    test = statements[0].test
    line = lines[test.lineno - 1]
    if test.end_lineno != test.lineno or not line.isascii() or "not (" in line:
        return
    row, condition = test.lineno - 1, line[test.col_offset : test.end_col_offset]
    new = f"{line[: test.col_offset]}not ({condition}){line[test.end_col_offset :]}"
    yield Mutant("negation", _with(lines, row, new), f"Remove the not from the if in {function.name}")


def _without_branch(lines: list[str], function: ast.FunctionDef) -> Iterator[Mutant]:
    """A function without its first statement, a one-line branch."""
    first = function.body[0]
    if not isinstance(first, ast.If) or first.orelse or len(first.body) > 1 or len(function.body) < 2:
        return
    if isinstance(first.body[0], ast.If | ast.For | ast.While) or first.end_lineno is None:
        return
    kept = [*lines[: first.lineno - 1], *lines[first.end_lineno :]]
    text = " ".join(ast.unparse(first).split())
    yield Mutant("branch", "\n".join(kept), f"Begin {function.name} with: {text}")


def _with(lines: list[str], row: int, line: str) -> str:
    return "\n".join([*lines[:row], line, *lines[row + 1 :]])
