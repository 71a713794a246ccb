"""Tools as functions with typed arguments; calls are read in texts, and whatever is wrong with one is a text, too.

A call is a JSON object between two tags, as Hermes and Qwen models write it,

    <tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>
"""

import dataclasses
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

MARK, MARK_END = "<tool_call>", "</tool_call>"  # a text that holds the first one calls a tool
FIELD = "tools.functions"
TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false"}
LONGEST = 2000  # characters of a result that an agent reads
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Tool:
    """A function that agents may call.

    Attributes:
      name: what a call names.
      about: what it does, a sentence.
      parameters: name -> type, one of `TYPES`; all are required but those of ``optional``.
      call: called with the arguments by name, and with ``item=``, the problem, if ``of_item``.
      optional: names of parameters that may be left out.
      of_item: whether the result depends on the problem, such as the result of its tests.
    """

    name: str
    about: str
    parameters: Mapping[str, type]
    call: Callable[..., Any]
    optional: tuple[str, ...] = ()
    of_item: bool = False

    def describe(self) -> str:
        """A line: name, parameters with their types, and what it does."""
        shown = [
            f"{name}: {TYPES[kind]}{' (may be left out)' if name in self.optional else ''}"
            for name, kind in self.parameters.items()
        ]
        return f"{self.name}({', '.join(shown)}): {self.about}"


class Call(NamedTuple):
    """A call as it was written: the tool's name, and the arguments, by name if they are an object."""

    name: str
    arguments: Any


def read_call(text: str) -> Call:
    """The last call in a text. ValueError for what is no call."""
    calls = _CALL.findall(text)
    try:
        call = json.loads(calls[-1])
    except (ValueError, IndexError, RecursionError):
        raise UserError("the call is not a JSON object between the tags") from None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise UserError('the call needs "name" and "arguments"')
    return Call(call["name"], call.get("arguments", {}))


class Toolbox:
    """The tools of a run."""

    def __init__(self, tools: Sequence[Tool]):
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) < len(tools) or not tools:
            raise UserError(
                f"tools are {[tool.name for tool in tools]}; allowed are one or more names that differ"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(self._tools)

    def lines(self) -> list[str]:
        """What each tool is, a line for each."""
        return [tool.describe() for tool in self._tools.values()]

    def describe(self) -> str:
        """What an agent reads of the tools: a line for each, and how to call one."""
        example = json.dumps({"name": self.names[0], "arguments": {"<name>": "<value>"}})
        return "\n".join(
            ["You may call these tools:", *self.lines(), f"To call one, write {MARK}{example}{MARK_END} and nothing "
             "else. You then read its result, and go on."]
        )  # fmt: skip

    def result(self, item: Any, text: str) -> str:
        """What the last call in a text gives back, as text; if it cannot be made, why."""
        try:
            call = read_call(text)
        except ValueError as error:
            return f"error: {error}"
        tool, given = self._tools.get(call.name), call.arguments
        if tool is None:
            return f"error: there is no tool {call.name[:60]!r}; there are {', '.join(self.names)}"
        if complaint := _complaint(tool, given):
            return f"error: {complaint}"
        converted = {name: tool.parameters[name](value) for name, value in given.items()}
        more = {"item": item} if tool.of_item else {}
        try:
            found = tool.call(**converted, **more)
        except Exception as error:  # the agent's arguments made it raise: it may try others
            return f"error: {dotted.reason(error)}"[:LONGEST]
        return str(found)[:LONGEST]


def _complaint(tool: Tool, given: Any) -> str:
    """What is wrong with the arguments of a call; '' if nothing."""
    if not isinstance(given, dict):
        return f"the arguments of {tool.name} are a JSON object with {', '.join(tool.parameters)}"
    missing = [name for name in tool.parameters if name not in given and name not in tool.optional]
    if missing:
        return f"{tool.name} needs the argument {missing[0]!r}"
    if unknown := [name for name in given if name not in tool.parameters]:
        return (
            f"{tool.name} has no argument {unknown[0][:60]!r}; it has {', '.join(tool.parameters) or 'none'}"
        )
    for name, value in given.items():
        kind = tool.parameters[name]
        fits = type(value) in ((int, float) if kind is float else (kind,))
        if not fits:
            return f"{name} of {tool.name} must be a {TYPES[kind]}, not {json.dumps(value)[:60]}"
    return ""


def of_function(function: Callable[..., Any], name: str = "") -> Tool:
    """A tool from a function with a docstring, whose parameters all have one of `TYPES` as annotation.

    A parameter ``item`` without an annotation is given the problem. ValueError names what it lacks.
    """
    name = name or function.__name__
    about = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
    if not about:
        raise UserError(f"{FIELD} {name!r} has no docstring, which tells agents what it does")
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters
    own = [parameter for parameter in parameters if not (parameter == "item" and parameter not in hints)]
    for parameter in own:
        if hints.get(parameter) not in TYPES:
            kinds = ", ".join(kind.__name__ for kind in TYPES)
            raise UserError(f"{FIELD} {name!r}: its parameter {parameter!r} needs one of the types {kinds}")
    optional = tuple(p for p in own if parameters[p].default is not inspect.Parameter.empty)
    return Tool(name, about, {p: hints[p] for p in own}, function, optional, len(own) < len(parameters))


def of_names(names: Sequence[str]) -> Toolbox:
    """The functions at dotted names as tools, each under the function's own name."""
    return Toolbox([of_function(dotted.resolve(name, FIELD)) for name in names])
