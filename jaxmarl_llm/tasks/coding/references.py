"""Reference answers of coding problems by role, made from their canonical solutions."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import re
import textwrap
from collections.abc import Iterable, Sequence

from jaxmarl_llm.tasks.coding.canonical import prompt_function
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.signature import arguments_text, passed_text
from jaxmarl_llm.tasks.program_text.python_text import bound, complete, parse
from jaxmarl_llm.utils.errors import UserError

HELPER = "aux"
_IMPORTS = (ast.Import, ast.ImportFrom)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MUTABLE = (ast.Name, ast.Call, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


@dataclasses.dataclass(frozen=True, eq=False)
class _Statement:
    """A statement at the top level of a solution, the names that it binds, and the names that it mentions."""

    node: ast.stmt
    source: str
    binds: frozenset[str]
    mentions: frozenset[str]

    @property
    def is_loose(self) -> bool:
        """Whether any other statement may depend on it: it binds no name, or unknown names."""
        future = isinstance(self.node, ast.ImportFrom) and self.node.module == "__future__"
        return future or not self.binds or "*" in self.binds


def answers(item: CodingItem, agents: Sequence[str]) -> dict[str, str] | None:
    """Each agent's part of the canonical solution; None if it cannot be divided in this way.

    Args:
      item: the problem; its solution may be a program, or the body of the entry point alone (HumanEval).
      agents: one name, which gets everything, or two names: the helper gets the function ``aux`` and what it
        needs; the other agent gets the entry point and the rest. If the solution has one function, the helper
        gets all of it, and main returns the helper's result.

    Returns:
      {agent: text} without blank lines, since a sampled answer may end at one.

    Raises:
      ValueError: for more than two agents: a canonical solution has one helper.
    """
    if len(agents) > 2:
        raise UserError(f"reference answers are for one or two agents, these are {tuple(agents)!r}")
    statements = _statements(item)
    if not statements:
        return None
    if len(agents) == 1:
        return {agents[0]: _joined(statements)}
    prelude = parse(item.prelude)
    if prelude is not None and HELPER in bound(prelude.body):
        return None  # both agents would have that statement
    defined = any(HELPER in statement.binds for statement in statements)
    parts = (_divided if defined else _passed_on)(statements, item.entry_point)
    return parts and dict(zip(agents, parts, strict=True))


def is_one_function(text: str) -> bool:
    """Whether a text is a plain function and nothing else."""
    tree = parse(text)
    match tree.body if tree else []:
        case [ast.FunctionDef(decorator_list=[])]:
            return True
    return False


def _divided(statements: Sequence[_Statement], entry_point: str) -> tuple[str, str] | None:
    """The helper with what it needs, and the rest with what the rest needs.

    None if the parts would behave differently in two processes: they share a state, or call each other while
    they are loaded.
    """
    helpers = [s for s in statements if HELPER in s.binds]
    functions = {HELPER, entry_point}
    if len(helpers) != 1 or not isinstance(helpers[0].node, _FUNCTIONS):
        return None
    if any(s.mentions & functions for s in statements if not isinstance(s.node, (*_FUNCTIONS, ast.ClassDef))):
        return None
    rest = [s for s in statements if s is not helpers[0]]
    of_helper = _needed([s for s in rest if entry_point not in s.binds], helpers)
    of_main = _needed(rest, [s for s in rest if entry_point in s.binds])
    main = [s for s in rest if s in of_main or s not in of_helper]
    shared = [s for s in main if s in of_helper]
    if not _may_be_shared(shared, statements):
        return None
    return _joined(s for s in statements if s in helpers or s in of_helper), _joined(main)


def _needed(statements: Sequence[_Statement], by: Sequence[_Statement]) -> list[_Statement]:
    """The statements that others need, directly or indirectly."""
    chosen = [s for s in statements if s.is_loose]
    names = frozenset().union(*(s.mentions for s in (*by, *chosen)))
    while more := [s for s in statements if s not in chosen and s.binds & names]:
        chosen += more
        names = names.union(*(s.mentions for s in more))
    return chosen


def _may_be_shared(shared: Sequence[_Statement], statements: Sequence[_Statement]) -> bool:
    """Whether each agent may have its own copy: of imports, functions, and values that nothing changes."""
    known = {name for s in statements if isinstance(s.node, _IMPORTS) for name in s.binds} | set(
        dir(builtins)
    )
    inner = [node for s in statements for node in ast.walk(s.node)]
    changed = {name for node in inner if isinstance(node, ast.Global) for name in node.names}
    return all(_is_fixed(s, known) and not s.binds & changed for s in shared)


def _is_fixed(statement: _Statement, known: set[str]) -> bool:
    """Whether nothing changes a statement's values later; ``known``: names of modules and builtins."""
    if isinstance(statement.node, ast.Assign | ast.AnnAssign):
        return statement.node.value is None or not _any(statement.node.value, _MUTABLE)
    if isinstance(statement.node, ast.Expr):
        return statement.mentions <= known  # such as sys.setrecursionlimit(9999)
    return isinstance(statement.node, (*_IMPORTS, *_FUNCTIONS))


def _passed_on(statements: Sequence[_Statement], entry_point: str) -> tuple[str, str] | None:
    """The helper with the whole solution, and a main function that returns the helper's result.

    None if the solution has several functions, uses its own name again, as in a recursion, or has defaults
    that main cannot write down.
    """
    (function, *others) = [s for s in statements if isinstance(s.node, _FUNCTIONS)] or [None]
    if others or function is None or not isinstance(function.node, ast.FunctionDef):
        return None
    arguments = function.node.args
    defaults = [default for default in (*arguments.defaults, *arguments.kw_defaults) if default is not None]
    again = [
        s for s in statements if entry_point in s.mentions or (entry_point in s.binds and s is not function)
    ]
    if again or entry_point not in function.binds or re.search(rf"\b{HELPER}\b", _joined(statements)):
        return None
    if any(_any(default, (ast.Name, ast.Call)) for default in defaults):
        return None
    start = re.compile(rf"^(def[ \t]+){re.escape(entry_point)}\b", re.MULTILINE)  # decorators may precede it
    renamed = dataclasses.replace(function, source=start.sub(rf"\g<1>{HELPER}", function.source, count=1))
    helper = _joined(renamed if s is function else s for s in statements)
    header, call = f"def {entry_point}({arguments_text(arguments)}):", f"{HELPER}({passed_text(arguments)})"
    return helper, f"{header}\n    value = {call}\n    return value"


def _any(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> bool:
    return any(isinstance(inner, kinds) for inner in ast.walk(node))


def _statements(item: CodingItem) -> list[_Statement]:
    """The solution's statements without demonstrations and texts; [] if it does not define the entry point."""
    program = _program(item)
    tree = parse(program)
    return [
        _Statement(
            node,
            _source(program, node),
            frozenset(bound([node])),
            frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name)),
        )
        for node in (tree.body if tree else [])
        if not _is_text(node) and not (isinstance(node, ast.If) and "__name__" in ast.unparse(node.test))
    ]


def _program(item: CodingItem) -> str:
    """The solution as a program; '' if it is not a program."""
    solution = item.canonical_solution.replace("\r\n", "\n").replace("\r", "\n")
    if not solution.strip():
        return ""
    header = "\n".join([f"def {item.entry_point}({item.arguments}):", *_begun(item), ""])
    bodies = (solution, textwrap.indent(textwrap.dedent(solution), "    "))
    programs = (complete(text, item.entry_point) for text in (solution, *(header + body for body in bodies)))
    return next(filter(None, programs), "")


def _begun(item: CodingItem) -> list[str]:
    """Lines of the entry point's body in the prompt, such as imports before or after the docstring."""
    function, lines = prompt_function(item), item.prompt.split("\n")
    inner = function.body if function else []
    written = [node for node in inner if not isinstance(node, ast.Pass) and not _is_text(node)]
    return [line for node in written for line in lines[node.lineno - 1 : node.end_lineno]]


def _source(program: str, node: ast.stmt) -> str:
    """The statement's text with its decorators, without blank lines."""
    source = ast.get_source_segment(program, node) or ""
    if decorators := getattr(node, "decorator_list", []):
        source = "\n".join(program.split("\n")[decorators[0].lineno - 1 : node.end_lineno])
    return _without_blank_lines(source)


def _without_blank_lines(source: str) -> str:
    """The same statement without blank lines; escapes in strings, dropped in docstrings."""
    if source.strip() and _blank(source) & _in_strings(source):
        escaped = ast.unparse(ast.parse(source))
        source = source if _blank(escaped) & _in_strings(escaped) else escaped
    kept = _in_strings(source)
    return "\n".join(
        line for number, line in enumerate(source.split("\n"), 1) if line.strip() or number in kept
    )


def _blank(source: str) -> set[int]:
    return {number for number, line in enumerate(source.split("\n"), 1) if not line.strip()}


def _in_strings(source: str) -> set[int]:
    """Numbers of the lines inside strings, except docstrings."""
    tree = ast.parse(source)
    texts = {node.value for node in ast.walk(tree) if _is_text(node)}
    strings = [n for n in ast.walk(tree) if isinstance(n, ast.Constant | ast.JoinedStr) and n not in texts]
    return {number for node in strings for number in range(node.lineno, node.end_lineno + 1)}


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is only a string, such as a docstring, or an ellipsis."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _joined(statements: Iterable[_Statement]) -> str:
    return "\n".join(statement.source for statement in statements).strip()
