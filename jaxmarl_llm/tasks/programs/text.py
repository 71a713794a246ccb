"""Extract the whole program from an answer: one parser for all methods, text in, text out, no exceptions.

Published comparisons gave each method a parser of its own, with fences of different tags. Here a program is
looked for in four places, and the first that has something decides:

1. the fenced blocks, of any tag: the last that defines the entry point, wholly, and is not the program that
   was asked about, which answers often quote first; with the blocks before it that hold nothing but imports,
   helpers and constants. Else the last one that defines it, then the first that does so but is broken;
2. the text without its fence lines, if that defines it: an answer may lack one of the two fences;
3. the first fenced block;
4. the text itself, from where it begins to look like code.

In each, text that is no part of a program is left out: prose before and after it, and an unfinished last
statement.
"""

from __future__ import annotations

import ast
import hashlib
import re

from jaxmarl_llm.tasks.coding.text import longest_parsable, parse
from jaxmarl_llm.tasks.programs import cpp_text
from jaxmarl_llm.utils.errors import UserError

LANGUAGES = ("python", "c++")
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[^\n`]*$", re.MULTILINE)
_CODE_LINE = re.compile(
    r"(?:import\s+[\w.]+(?:\s+as\s+\w+)?(?:\s*,\s*[\w.]+(?:\s+as\s+\w+)?)*\s*(?:[#;].*)?$|from\s+[\w.]+\s+import\s"
    r"|(?:async\s+)?def\s+\w+\s*\(|class\s+\w+\s*[(:]|@\w|try:\s*$|[A-Za-z_]\w*(?:\s*:[^=]+)?\s*=[^=])"
)
_MOST_STARTS, _MOST_PLACES = 40, 8  # lines tried as a program's first one, and as its definition's
_BARE = (ast.Expr, ast.Assert)
_HELP = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def program(text: str, entry_point: str, language: str = "python", source: str = "") -> str:
    """The program in an answer that defines `entry_point`, ended by a line end; '' where there is no code.

    language: one of LANGUAGES; ValueError for another. source: the program that was asked about.

    Imports, helpers and constants stay. Of Python, the longest part that parses and defines the entry point
    counts, without prints, asserts and calls of it at the end; of C++, all up to the last closed brace. Code
    that never parses is returned unchanged, and the executor reports what is wrong with it.
    """
    _check(language)
    whole, looks = (_python, _python_loose) if language == "python" else (cpp_text.whole, cpp_text.loose)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    blocks = fenced(text)
    without_fences = _FENCE.sub("", text)
    defining = [(n, code) for n, block in enumerate(blocks) if (code := whole(block, entry_point, True))]
    if defining:
        new = [(n, code) for n, code in defining if not same_program(code, source, language)]
        place, code = (new or defining)[-1]
        helpers = [part for part in blocks[:place] if new and _helps(part, entry_point, language)]
        return "\n\n".join(part.strip("\n") for part in (*helpers, code)) + "\n"
    if code := whole(without_fences, entry_point, False):
        return code.strip("\n") + "\n"
    broken = [block for block in blocks if _names(block, entry_point, language)]
    loose = (broken or blocks or [looks(without_fences)])[0]
    return loose.strip("\n") + "\n" if loose.strip() else ""


def fenced(text: str) -> list[str]:
    """Contents of the fenced blocks of a text with Unix line ends; the last may lack its closing fence."""
    ends = list(_FENCE.finditer(text))
    blocks = []
    for opening, closing in zip(ends[::2], [*ends[1::2], None], strict=False):
        block = text[opening.end() : closing.start() if closing else len(text)].strip("\n")
        if block.strip():
            blocks.append(block)
    return blocks


def same_program(first: str, second: str, language: str = "python") -> bool:
    """Whether two programs are the same up to comments, white space and, in Python, docstrings."""
    return _normal_form(first, language) == _normal_form(second, language)


def digest(text: str, language: str = "python") -> str:
    """Hash of a program, equal for what `same_program` calls the same."""
    return hashlib.sha256(_normal_form(text, language).encode("utf-8", "surrogatepass")).hexdigest()


def _check(language: str) -> None:
    if language not in LANGUAGES:
        raise UserError(f"language is {language!r}; allowed: {', '.join(LANGUAGES)}")


def _names(text: str, entry_point: str, language: str) -> bool:
    """Whether a text seems to define the entry point, even if it does not parse."""
    word = "def" if language == "python" else r"[\w>&*]"
    return re.search(rf"{word}\s+[&*]?{re.escape(entry_point)}\s*\(", text) is not None


def _helps(text: str, entry_point: str, language: str) -> bool:
    """Whether a block holds nothing but what a program may need: imports, helpers, constants."""
    if _names(text, entry_point, language):
        return False
    if language == "c++":
        return cpp_text.declares(text)
    tree = parse(text)
    return tree is not None and bool(tree.body) and all(map(_is_help, tree.body))


def _is_help(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):
        return not any(isinstance(node, ast.Call) for node in ast.walk(statement.value))
    return isinstance(statement, _HELP)


def _python(text: str, entry_point: str, fence: bool) -> str:
    """The longest part that parses and defines the entry point; '' if none does. fence: it was in one."""
    lines = text.split("\n")
    defined = re.compile(
        rf"([ \t]*)(?:(?:async\s+)?def|class)\s+{re.escape(entry_point)}\b|{re.escape(entry_point)}\s*="
    )
    places = [(match[1] or "", i) for i, line in enumerate(lines) if (match := defined.match(line))]
    for indent, place in sorted(places, key=lambda pair: (pair[0] != "", pair[1]))[:_MOST_PLACES]:
        block = [line.removeprefix(indent) for line in lines]
        starts = [i for i in range(place) if _CODE_LINE.match(block[i]) or (fence and i == 0)]
        for start in [*starts[:_MOST_STARTS], place]:
            end = longest_parsable(block[start:])
            tree = parse("\n".join(block[start : start + end]))
            if end and tree and (last := _last_line(tree, entry_point)):
                return "\n".join(block[start : start + last])
    return ""


def _last_line(tree: ast.Module, entry_point: str) -> int:
    """The program's last line before demonstrations at its end; 0 if it does not define the entry point."""
    if not any(entry_point in _defined(statement) for statement in tree.body):
        return 0
    body = list(tree.body)
    while _demonstrates(body[-1], entry_point):
        body.pop()
    return body[-1].end_lineno


def _defined(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _demonstrates(statement: ast.stmt, entry_point: str) -> bool:
    """An assert, a call of print or of the entry point, or a bare expression (a word of prose may be one)."""
    if not isinstance(statement, _BARE):
        return False
    if isinstance(statement, ast.Assert) or not isinstance(statement.value, ast.Call):
        return True
    return getattr(statement.value.func, "id", None) in ("print", entry_point)


def _python_loose(text: str) -> str:
    """The text from the first line that looks like code on; '' without one."""
    lines = text.split("\n")
    starts = [
        i
        for i, line in enumerate(lines)
        if re.match(r"(?:async\s+)?def\s+\w+\s*\(|import\s|from\s.*import", line)
    ]
    return "\n".join(lines[starts[0] :]) if starts else ""


def _normal_form(text: str, language: str) -> str:
    _check(language)
    if language == "c++":
        return " ".join(cpp_text.tokens(text))
    tree = parse(text)
    try:
        return text.strip() if tree is None else ast.dump(_WithoutDocstrings().visit(tree))
    except RecursionError:
        return text.strip()


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node):
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node
