"""Python programs in a text: what parses, what it defines, and which lines around it do not belong to it."""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Iterator, Sequence

_UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)
_CODE_LINE = re.compile(
    r"(?:import\s+[\w.]+(?:\s+as\s+\w+)?(?:\s*,\s*[\w.]+(?:\s+as\s+\w+)?)*\s*(?:[#;].*)?$|from\s+[\w.]+\s+import\s"
    r"|(?:async\s+)?def\s+\w+\s*\(|class\s+\w+\s*[(:]|@\w|try:\s*$|[A-Za-z_]\w*(?:\s*:[^=]+)?\s*=[^=])"
)
# A comment, or a string; a string of three quotes may be open at the end.
_QUOTED = re.compile(
    r"#[^\n]*|(\"\"\"|''')(?:\\.|(?!\1).)*(?:\1|\Z)|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
_MOST_STARTS, _MOST_INDENTS = 40, 4  # lines tried as a part's first one, and indents as the program's margin
_BARE = (ast.Expr, ast.Assert)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_HELP = (ast.Import, ast.ImportFrom, *_DEFINITIONS)


def parse(text: str) -> ast.Module | None:
    """Syntax tree of `text`; None where Python cannot parse it, also for null bytes or nesting depth."""
    return _parse(text)[0]


def syntax_error(text: str) -> str:
    """Where and why Python cannot parse a text, '' if it can, such as ``is no Python (line 2: invalid syntax)``."""
    tree, error = _parse(text)
    if tree is not None:
        return ""
    return f"is no Python (line {error.lineno}: {error.msg})" if error and error.lineno else "is no Python"


def _parse(text: str) -> tuple[ast.Module | None, SyntaxError | None]:
    """(tree, None), or (None, the error if it is a syntax error)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a "\d" in a completion is not ours to report
            return ast.parse(text), None
    except _UNPARSABLE as error:
        return None, error if isinstance(error, SyntaxError) else None


def longest_parsable(lines: list[str]) -> int:
    """The largest number of first `lines` that parse together; 0 if none do."""
    end = len(lines)
    while end > 0:
        tree, error = _parse("\n".join(lines[:end]))
        if tree is not None:
            break
        # Prefixes that still contain the offending line fail at the same place: jump before it.
        end = min(end - 1, error.lineno - 1 if error and error.lineno else end - 1)
    return end


def ends_in_string(text: str) -> bool:
    """Whether the text ends within a string of three quotes."""
    error = _parse(text)[1]
    return error is not None and "unterminated triple-quoted" in str(error.msg)


def names(text: str, entry_point: str) -> bool:
    """Whether a text seems to define the entry point, even if it does not parse."""
    return re.search(rf"\b(?:def|class)\s+{re.escape(entry_point)}\s*[(:]", text) is not None


def defines(program: str, name: str) -> bool:
    """Whether a program binds the name at its top level before demonstrations, or, if broken, seems to."""
    tree = parse(program)
    return names(program, name) if tree is None else _last_line(tree, name) > 0


def bound(statements: Sequence[ast.stmt]) -> set[str]:
    """Names that statements bind in their own scope: definitions, imports, assignments, also within `if`.

    An annotation without a value (``x: int``) binds nothing.
    """
    bindings: set[str] = set()
    nodes = list(_of_scope(statements))
    annotated = {node.target for node in nodes if isinstance(node, ast.AnnAssign) and node.value is None}
    for node in nodes:
        if isinstance(node, _DEFINITIONS):
            bindings.add(node.name)
        elif isinstance(node, ast.alias):
            bindings.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in annotated:
            bindings.add(node.id)
    return bindings


def _of_scope(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The nodes and those below them, without what is inside functions, classes and comprehensions."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        inner = (*_DEFINITIONS, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
        if not isinstance(node, inner):
            pending.extend(ast.iter_child_nodes(node))


def complete(text: str, entry_point: str) -> str:
    """The text, if all of it is one program that defines the entry point, without demonstrations; else ''."""
    tree = parse(text)
    return "\n".join(text.split("\n")[: _last_line(tree, entry_point)]) if tree else ""


def whole(text: str, entry_point: str, fence: bool) -> str:
    """The last part that parses and defines the entry point, after the helping parts before it.

    Parts are the longest runs of lines that parse together and begin with a line that looks like code;
    between them is prose, or broken code. Indented programs count only if no program is at the margin. '' if
    no part defines the entry point. fence: the text was in a fenced block, so its first line is code.
    """
    lines = text.split("\n")
    parts = list(_parts(lines, fence))
    if program := _program(lines, parts, entry_point):
        return program
    inside = {i for start, end in parts for i in range(start, end)}  # a nested function is not the program
    starts = re.compile(rf"([ \t]+)(?:(?:async\s+)?def|class)\s+{re.escape(entry_point)}\b")
    indents = [m[1] for i, line in enumerate(lines) if i not in inside and (m := starts.match(line))]
    for indent in list(dict.fromkeys(indents))[:_MOST_INDENTS]:
        moved = [line.removeprefix(indent) for line in lines]
        if program := _program(moved, list(_parts(moved, fence)), entry_point):
            return program
    return ""


def _parts(lines: list[str], fence: bool) -> Iterator[tuple[int, int]]:
    """(first line, line after the last) of the parts of a text that parse."""
    place = tried = 0
    while place < len(lines) and tried < _MOST_STARTS:
        end = 0
        if _CODE_LINE.match(lines[place]) or (fence and place == 0):
            end, tried = longest_parsable(lines[place:]), tried + 1
        if end:
            yield place, place + end
        place += max(end, 1)


def _program(lines: list[str], parts: list[tuple[int, int]], entry_point: str) -> str:
    """The last part that defines the entry point, with the helping parts before it; '' without one."""
    helpers, program = [], ""
    for start, end in parts:
        code = "\n".join(lines[start:end])
        tree = parse(code)
        if tree and (length := _last_line(tree, entry_point)):
            program = joined([*helpers, "\n".join(lines[start : start + length])])
        elif helps(code, "\n".join(helpers)):
            helpers.append(code)
    return program


def joined(programs: Sequence[str]) -> str:
    """Several programs joined into one; `from __future__` lines of all come first, as Python requires."""
    first, rest = [], []
    for place, program in enumerate(programs):
        tree, lines = parse(program), program.strip("\n").split("\n")
        for node in tree.body if tree and place else ():
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                shift = len(program) - len(program.lstrip("\n"))
                rows = range(node.lineno - 1 - shift, (node.end_lineno or node.lineno) - shift)
                first += [lines[row] for row in rows]
                lines = [line for row, line in enumerate(lines) if row not in rows]
        rest.append("\n".join(lines))
    return "\n\n".join(["\n".join(first), *rest] if first else rest)


def _last_line(tree: ast.Module, entry_point: str) -> int:
    """The program's last line before demonstrations at its end; 0 if no entry point is defined up to there."""
    body = list(tree.body)
    while body and _demonstrates(body[-1], entry_point):
        body.pop()
    return body[-1].end_lineno or 0 if entry_point in bound(body) else 0


def _demonstrates(statement: ast.stmt, entry_point: str) -> bool:
    """An assert, a call of print or of the entry point, or a bare expression (a word of prose may be one)."""
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None  # the parser reads "Note: this" as an annotation
    if not isinstance(statement, _BARE):
        return False
    if isinstance(statement, ast.Assert) or not isinstance(statement.value, ast.Call):
        return True
    return getattr(statement.value.func, "id", None) in ("print", entry_point)


def helps(text: str, before: str = "") -> bool:
    """Whether a text has only imports, helpers and constants that use these and those in `before`."""
    tree, earlier = parse(text), parse(before)
    if tree is None or not tree.body:
        return False
    known = bound(tree.body) | bound(earlier.body if earlier else []) | set(dir(builtins))
    return all(_is_help(statement, known) for statement in tree.body)


def _is_help(statement: ast.stmt, known: set[str]) -> bool:
    if isinstance(statement, (ast.If, ast.Try)):  # around imports
        inner = [node for node in ast.walk(statement) if isinstance(node, ast.stmt) and node is not statement]
        return all(isinstance(node, (*_HELP, ast.Pass, ast.Assign)) for node in inner)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return isinstance(statement, _HELP)
    nodes = list(ast.walk(statement))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    return statement.value is not None and used <= known and not any(isinstance(n, ast.Call) for n in nodes)


def loose(text: str) -> str:
    """The text from the first line that looks like code on; '' without one."""
    lines = text.split("\n")
    starts = [
        i
        for i, line in enumerate(lines)
        if re.match(r"(?:async\s+)?def\s+\w+\s*\(|class\s+\w+\s*[(:]|@\w|import\s|from\s.*import", line)
    ]
    return "\n".join(lines[starts[0] :]) if starts else ""


def tokenises(text: str) -> bool:
    """Whether Python can tokenize whole lines of a program; brackets need not match.

    Python's own tokenizer differs in strictness by version. Here strings that do not end on their line are
    refused, as are signs that no program has outside of strings and comments; a string of three quotes may be
    open.

    >>> [tokenises(text) for text in ("x = foo(", "return a ? b", "s = 'it", "# it's $5", "} else {")]
    [True, False, False, True, True]
    """
    return re.search(r"[\"'$?`]|!(?!=)", _QUOTED.sub("", text)) is None
