"""Extract the whole program from an answer: one parser for all methods, text in, text out, no exceptions.

Published comparisons gave each method its own parser, with fences of different tags. Here a program is
searched in five places, and the first place with a result decides:

1. the whole text, if it is one Python program that defines the entry point;
2. the fenced blocks, of any tag: the last block that wholly defines the entry point and is not the program in
   the question, which answers often quote first; it is joined with earlier blocks of only imports, helpers
   and constants. Else the last block that defines the entry point, then the first that does so but is broken.
   A fence inside a string of three quotes does not end a block;
3. the text outside of blocks, if it defines the entry point: an answer may lack one of the two fences;
4. the first fenced block;
5. the text itself, from where it begins to look like code.

In each place, text that is not part of a program is left out: prose before, between and after its parts, and
an unfinished last statement.
"""

from __future__ import annotations

import ast
import hashlib
import re

from jaxmarl_llm.tasks.program_text import cpp_text, python_text
from jaxmarl_llm.utils.errors import UserError

LANGUAGES = ("python", "c++")
BAD_LINE = -0.5  # as in Q* for MBPP (arXiv 2406.14283)
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[^\n`]*$", re.MULTILINE)


def program(text: str, entry_point: str, language: str = "python", source: str = "") -> str:
    """The program in an answer that defines `entry_point`, with a final line end; '' if there is no code.

    language: one of LANGUAGES; ValueError for another. source: the program in the question.

    Imports, decorators, helpers, classes and constants are kept. Two definitions of one name are both kept,
    so the last one counts, as in Python. In Python all that parses is kept, without prints, asserts and calls
    of the entry point at the end; in C++, all up to the last closed brace. Code that never parses is returned
    unchanged, and the executor reports its errors.
    """
    _check(language)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if language == "python" and (code := python_text.complete(text, entry_point)):
        return code.strip("\n") + "\n"
    syntax = python_text if language == "python" else cpp_text
    blocks = fenced(text)
    without_fences = _FENCE.sub("", text)
    defining = [
        (n, code) for n, block in enumerate(blocks) if (code := syntax.whole(block, entry_point, True))
    ]
    if defining:
        new = [(n, code) for n, code in defining if not same_program(code, source, language)]
        place, code = (new or defining)[-1]
        helpers = _helpers(blocks[:place], entry_point, language) if new else []
        return syntax.joined([part.strip("\n") for part in (*helpers, code)]) + "\n"
    for outside in (text, without_fences):
        if code := syntax.whole(outside, entry_point, False):
            return code.strip("\n") + "\n"
    broken = [block for block in blocks if _names(block, entry_point, language)]
    loose = (broken or blocks or [syntax.loose(without_fences)])[0]
    return loose.strip("\n") + "\n" if loose.strip() else ""


def fenced(text: str) -> list[str]:
    """Contents of the fenced blocks of a text with Unix line ends; the last may lack its closing fence."""
    fences = list(_FENCE.finditer(text))
    blocks = []
    while fences:
        opening, *fences = fences
        contents = [text[opening.end() : fence.start()] for fence in fences] or [text[opening.end() :]]
        number = next((n for n, content in enumerate(contents) if not python_text.ends_in_string(content)), 0)
        fences = fences[number + 1 :]
        if contents[number].strip():
            blocks.append(contents[number].strip("\n"))
    return blocks


def line_reward(before: str, line: str) -> float:
    """The immediate reward of an answer's next line: `BAD_LINE` if it is code that does not tokenise, else 0.

    Once a fenced block has begun, only text in blocks is code; fences are not code.
    """
    fences = len(_FENCE.findall(before))
    if _FENCE.search(line) or (fences and fences % 2 == 0) or python_text.tokenises(line):
        return 0.0
    return BAD_LINE


def same_program(first: str, second: str, language: str = "python") -> bool:
    """Whether two programs are the same up to comments, white space and, in Python, docstrings."""
    return _normal_form(first, language) == _normal_form(second, language)


def digest(text: str, language: str = "python") -> str:
    """Hash of a program, equal for programs that `same_program` calls the same."""
    return hashlib.sha256(_normal_form(text, language).encode("utf-8", "surrogatepass")).hexdigest()


def _check(language: str) -> None:
    if language not in LANGUAGES:
        raise UserError(f"language is {language!r}; allowed: {', '.join(LANGUAGES)}")


def _names(text: str, entry_point: str, language: str) -> bool:
    """Whether a text seems to define the entry point, even if it does not parse."""
    if language == "c++":
        return re.search(rf"[\w>&*]\s+[&*]?{re.escape(entry_point)}\s*\(", text) is not None
    return python_text.names(text, entry_point)


def _helpers(blocks: list[str], entry_point: str, language: str) -> list[str]:
    """The blocks of only imports, helpers and constants."""
    helpers: list[str] = []
    for block in blocks:
        if _names(block, entry_point, language):
            continue
        if language == "c++":
            helps = cpp_text.declares(block)
        else:
            helps = python_text.helps(block, python_text.joined(helpers))
        helpers += [block] if helps else []
    return helpers


def _normal_form(text: str, language: str) -> str:
    _check(language)
    if language == "c++":
        return " ".join(cpp_text.tokens(text))
    tree = python_text.parse(text)
    try:
        return text.strip() if tree is None else ast.dump(_WithoutDocstrings().visit(tree))
    except RecursionError:
        return text.strip()


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node):
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node
