"""Signatures of the functions that problems ask for, read from their prompts and written as text."""

from __future__ import annotations

import ast
import copy
import re

from jaxmarl_llm.tasks.coding.text import function_node
from jaxmarl_llm.tasks.program_text.python_text import parse
from jaxmarl_llm.utils.errors import UserError

_IMPORT = re.compile(r"(?:import|from)\s+\w")


def read_signature(prompt: str, entry_point: str) -> tuple[tuple[str, ...], str]:
    """Parameter names of the entry point, and the prelude before it (only its imports where it does not
    parse).

    ValueError if the prompt has no `def entry_point(` at the left margin, or one that does not parse.
    """
    start = _start(prompt, entry_point)
    if start is None:
        raise UserError(f"prompt has no 'def {entry_point}('")
    function = _function(prompt, start)
    if function is None:
        raise UserError(f"the signature of {entry_point!r} in the prompt does not parse")
    return _parameter_names(function.args), _prelude(prompt[:start])


def arguments_of(prompt: str, entry_point: str) -> ast.arguments | None:
    """The arguments of the entry point; None where the prompt has no signature that parses."""
    start = _start(prompt, entry_point)
    function = None if start is None else _function(prompt, start)
    return function and function.args


def arguments_text(arguments: ast.arguments) -> str:
    """An argument list without its annotations."""
    plain = copy.deepcopy(arguments)
    for node in ast.walk(plain):
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(plain)


def passed_text(arguments: ast.arguments) -> str:
    """The arguments of a call that passes on all of a function's own arguments."""
    by_name = {arg.arg for arg in arguments.kwonlyargs}
    return ", ".join(f"{name}={name}" if name in by_name else name for name in _parameter_names(arguments))


def _parameter_names(arguments: ast.arguments) -> tuple[str, ...]:
    names = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [arg.arg for arg in arguments.kwonlyargs]
    names += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return tuple(names)


def _prelude(text: str) -> str:
    if parse(text) is None:
        text = "\n".join(line for line in text.split("\n") if _IMPORT.match(line) and parse(line) is not None)
    return text.strip()


def _start(prompt: str, entry_point: str) -> int | None:
    """Where the entry point's ``def`` is."""
    start = re.search(rf"^def[ \t]+{re.escape(entry_point)}[ \t]*\(", prompt, re.MULTILINE)
    return start and start.start()


def _function(prompt: str, start: int) -> ast.FunctionDef | None:
    """The function that begins there, as far as its signature; None if that does not parse."""
    lines = prompt[start:].split("\n")
    for end in range(1, len(lines) + 1):
        signature = "\n".join(lines[:end])
        function = function_node(signature + "\n    pass") or function_node(signature)
        if function is not None:
            return function
    return None
