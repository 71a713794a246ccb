"""Questions to answer with one function call, or with none: three sets of the Berkeley leaderboard, BFCL v4.

``task.kind=jaxmarl_llm.tasks.function_calls.FunctionCalls`` with ``task.source`` simple_python (400
questions, one function each), multiple (200, several functions) or irrelevance (240, none of whose functions
helps). They are read from the files of the package `bfcl_eval`, which is not imported:
`pip install --no-deps bfcl-eval==2026.3.23`. All questions are for evaluation, none for training.

The checker is our own. A call is right if it is the only one, names the right function, has all required
arguments and no unknown one, and every argument has one of the values that the set lists. Required are the
arguments that the function's description requires (as in the package's own checker) and those that the set
does not mark as optional. Values are compared as texts up to case, spaces and the signs ,./-_*^, as numbers
by value, and as lists element by element. In irrelevance a text without a call is right. Calls are read in
the form that `tools.toolbox` describes to agents, not in that of the leaderboard's prompts, so results are
not comparable with its numbers.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tasks.tools import MARK, Tool, Toolbox
from jaxmarl_llm.tasks.tools.schemas import parameters, summary
from jaxmarl_llm.tasks.tools.toolbox import read_call
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

SETS = ("simple_python", "multiple", "irrelevance")
PACKAGE, MODULE = "bfcl-eval==2026.3.23", "bfcl_eval"
LEFT_OUT = ""  # as a possible value of an argument: it may be left out
_IGNORED = re.compile(r"[ ,./\-_*^]")


@dataclasses.dataclass(frozen=True)
class Question:
    """A question.

    Attributes:
      task_id: its name.
      messages: the chat that asks it.
      functions: descriptions of functions, as in the set.
      name, arguments: the right call, each argument with its allowed values; '' where no call is right.
    """

    task_id: str
    messages: tuple[Mapping[str, str], ...]
    functions: tuple[Mapping[str, Any], ...]
    name: str = ""
    arguments: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict, hash=False)

    def toolbox(self) -> Toolbox:
        """The functions as tools that agents only read about; they are never called."""
        return Toolbox([_tool(function) for function in self.functions])

    def required(self) -> Sequence[str]:
        """Arguments that the description of the right call's function requires."""
        schemas = (each["parameters"] for each in self.functions if each["name"] == self.name)
        return next(schemas, {}).get("required", ())


class FunctionCalls:
    """The task, for one agent, ``caller``; see the module. Parts: ``called``, 100 where the text has a call, else 0."""

    agents = ("caller",)
    part_names = ("called",)
    reward_range = (0.0, 1.0)

    def __init__(self, config, executor, split: str):
        if split == "train":
            raise UserError("these questions are for evaluations only, not for a training")
        name, chosen = sources.parse(config.source)
        if name not in SETS:
            raise UserError(
                f"task.source={config.source!r}: allowed are {', '.join(SETS)}, each with a slice"
            )
        self.items = read(name)[chosen]

    def prompts(self, item: Question) -> dict[str, list[dict[str, str]]]:
        """Chat messages: the question, the functions, and how to call one."""
        *before, last = (dict(message) for message in item.messages)
        last["content"] += f"\n\n{item.toolbox().describe()}\nIf none of them helps, answer without a call."
        return {"caller": [*before, last]}

    def judge(self, items: Sequence[Question], completions: dict[str, list[str]]) -> list[Judgement]:
        """1 for a right text, else 0."""
        return [
            Judgement({"called": 100.0 * (MARK in text)}, float(right(item, text)), "judged")
            for item, text in zip(items, completions["caller"], strict=True)
        ]


def right(item: Question, text: str) -> bool:
    """Whether a text is right."""
    if not item.name:
        return MARK not in text
    if text.count(MARK) != 1:
        return False
    try:
        call = read_call(text)
    except ValueError:
        return False
    return (
        call.name == item.name
        and isinstance(call.arguments, dict)
        and all(name in call.arguments for name in item.required())
        and _fields(call.arguments, item.arguments)
    )


def _fields(given: Mapping[str, Any], allowed: Mapping[str, Sequence[Any]]) -> bool:
    """Whether all fields have allowed values, and none is missing or unknown."""
    missing = [name for name, values in allowed.items() if name not in given and LEFT_OUT not in values]
    return not missing and all(
        name in allowed and any(_same(value, one) for one in allowed[name]) for name, value in given.items()
    )


def _same(given: Any, allowed: Any) -> bool:
    """Whether two values are the same; an object's fields each have several allowed ones."""
    if isinstance(allowed, dict):
        return isinstance(given, dict) and _fields(given, allowed)
    if isinstance(allowed, list):
        return isinstance(given, list) and len(given) == len(allowed) and all(map(_same, given, allowed))
    if isinstance(allowed, str):
        return isinstance(given, str) and _bare(given) == _bare(allowed)
    return isinstance(given, bool) == isinstance(allowed, bool) and given == allowed


def _bare(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')


def _tool(function: Mapping[str, Any]) -> Tool:
    own = parameters(function["parameters"])
    about = summary(function.get("description"))
    return Tool(function["name"], about, own.types, str, own.optional, details=own.details)


def read(name: str) -> list[Question]:
    """The questions of a set of the installed package. UserError where it is missing."""
    spec = importlib.util.find_spec(MODULE)
    folders = (
        [pathlib.Path(place) / "data" for place in spec.submodule_search_locations or ()] if spec else []
    )
    if not (folder := next(filter(pathlib.Path.is_dir, folders), None)):
        raise UserError(
            f"the questions of {name!r} are in a package that is not installed: pip install --no-deps {PACKAGE}"
        )
    answers = folder / "possible_answer" / f"BFCL_v4_{name}.json"
    lines = files.read_text(folder / f"BFCL_v4_{name}.json")
    return questions(lines, files.read_text(answers) if answers.exists() else "")


def questions(lines: str, answers: str) -> list[Question]:
    """Questions from the lines of a set, and from its answers; irrelevance has no answers."""
    rows = map(json.loads, answers.splitlines())
    call_of = {row["id"]: next(iter(row["ground_truth"][0].items())) for row in rows}
    made = []
    for row in map(json.loads, lines.splitlines()):
        call = call_of.get(row["id"], ("", {}))
        made.append(Question(row["id"], tuple(row["question"][0]), tuple(row["function"]), *call))
    return made
