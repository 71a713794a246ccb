"""Tools as functions with typed arguments; calls are read from texts, and errors of calls are also texts.

A call is a JSON object between two tags, as Hermes and Qwen models write it,

    <tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>
"""

import concurrent.futures
import dataclasses
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxmarl_llm.executor import ExecutorError
from jaxmarl_llm.tasks.reward_calls import awaited
from jaxmarl_llm.utils import distributed, dotted
from jaxmarl_llm.utils.errors import UserError

MARK, MARK_END = "<tool_call>", "</tool_call>"  # a text with the first one calls a tool
FIELD = "tools.functions"
TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false"}  # of functions' parameters
KINDS = TYPES | {list: "list", dict: "JSON object", object: "value"}
LONGEST = 2000  # characters of a result that an agent reads
AT_ONCE = 32  # most calls that are made at the same time
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)


class ToolError(UserError):
    """A tool cannot be used any more, whatever the arguments: it ends the run."""


@dataclasses.dataclass(frozen=True)
class Tool:
    """A function that agents may call.

    Attributes:
      name: what a call names.
      about: what it does, a sentence.
      parameters: name -> type, one of `KINDS`; all are required except ``optional`` ones.
      call: called with the arguments by name, and with ``item=`` (the problem) if ``of_item``.
      optional: names of parameters that may be left out.
      of_item: whether the result depends on the problem, such as the result of its tests.
      details: by parameter name, what agents read in place of the type's name.
      check: returns what is wrong with arguments of the right names and types, '' if nothing.
      rest: what agents read about further parameters, which ``check`` accepts or rejects; '': none.
      at_once: whether several calls may be made at the same time, from any thread.
      origin: where it comes from, for messages.
    """

    name: str
    about: str
    parameters: Mapping[str, type]
    call: Callable[..., Any]
    optional: tuple[str, ...] = ()
    of_item: bool = False
    details: Mapping[str, str] = dataclasses.field(default_factory=dict)
    check: Callable[[dict], str] | None = None
    rest: str = ""
    at_once: bool = False
    origin: str = FIELD

    def describe(self) -> str:
        """A line: name, parameters with their types, and what it does."""
        shown = [
            f"{name}: {self.details.get(name) or KINDS[kind]}"
            f"{' (may be left out)' if name in self.optional else ''}"
            for name, kind in self.parameters.items()
        ]
        shown += [self.rest] if self.rest else []
        return f"{self.name}({', '.join(shown)}){f': {self.about}' if self.about else ''}"


class Call(NamedTuple):
    """An agent's text with a call: with its item and its turn, from 0."""

    item: Any
    text: str
    turn: int = 0


class ReadCall(NamedTuple):
    """A call as it was written: the tool's name, and the arguments, by name if they are an object."""

    name: str
    arguments: Any


def read_call(text: str) -> ReadCall:
    """The last call in a text. ValueError if it is not a call."""
    calls = _CALL.findall(text)
    try:
        call = json.loads(calls[-1])
        json.dumps(call, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise UserError("the call holds half of a surrogate pair, which is no character") from None
    except (ValueError, IndexError, RecursionError):
        raise UserError("the call is not a JSON object between the tags") from None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise UserError('the call needs "name" and "arguments"')
    return ReadCall(call["name"], call.get("arguments", {}))


class Toolbox:
    """The tools of a run."""

    def __init__(self, tools: Sequence[Tool]):
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if other := self._tools.get(tool.name):
                places = " and ".join(dict.fromkeys((other.origin, tool.origin)))
                raise UserError(f"{places}: there are two tools {tool.name!r}; allowed are names that differ")
            self._tools[tool.name] = tool
        if not tools:
            raise UserError("there are no tools; allowed are one or more")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(self._tools)

    def lines(self) -> list[str]:
        """What each tool is, a line for each."""
        return [tool.describe() for tool in self._tools.values()]

    def describe(self) -> str:
        """What an agent reads about the tools: a line for each, and how to call one."""
        example = json.dumps({"name": self.names[0], "arguments": {"<name>": "<value>"}})
        return "\n".join(
            ["You may call these tools:", *self.lines(), f"To call one, write {MARK}{example}{MARK_END} and nothing "
             "else. You then read its result, and go on."]
        )  # fmt: skip

    def result(self, item: Any, text: str) -> str:
        """The result of a text's last call, as text; or why it cannot be made."""
        return self._give(self._read(text), Call(item, text))

    def results(self, calls: Sequence[Call]) -> list[str]:
        """`result` of several calls, in order; with several processes, the first makes them.

        Calls of tools with ``at_once`` run at the same time, in no fixed order. ToolError names item and
        turn.
        """
        return distributed.on_main(self._results)(calls)

    def _results(self, calls: Sequence[Call]) -> list[str]:
        read = [self._read(call.text) for call in calls]
        at_once = [n for n, one in enumerate(read) if not isinstance(one, str) and one[0].at_once]
        given: dict[int, str] = {}
        if at_once:
            with concurrent.futures.ThreadPoolExecutor(min(len(at_once), AT_ONCE)) as pool:
                texts = pool.map(lambda n: self._give(read[n], calls[n]), at_once)
                given = dict(zip(at_once, texts, strict=True))
        return [given[n] if n in given else self._give(read[n], call) for n, call in enumerate(calls)]

    def _read(self, text: str) -> tuple[Tool, dict[str, Any]] | str:
        """The tool and the arguments of the last call in a text, or what is wrong with it."""
        try:
            named = read_call(text)
        except ValueError as error:
            return f"error: {error}"
        tool, given = self._tools.get(named.name), named.arguments
        if tool is None:
            return f"error: there is no tool {named.name[:60]!r}; there are {', '.join(self.names)}"
        if complaint := _complaint(tool, given):
            return f"error: {complaint}"
        try:
            numbers = {
                name: float(value) for name, value in given.items() if tool.parameters.get(name) is float
            }
        except OverflowError:
            return f"error: a number of {tool.name} is too large"
        return tool, given | numbers

    def _give(self, read: tuple[Tool, dict[str, Any]] | str, call: Call) -> str:
        """The result of a parsed call."""
        if isinstance(read, str):
            return read
        tool, arguments = read
        more = {"item": call.item} if tool.of_item else {}
        try:
            return _readable(awaited(tool.call(**arguments, **more)))
        except ToolError as error:
            name = getattr(call.item, "task_id", None)
            where = f"item {name!r}, turn {call.turn + 1}" if name is not None else f"turn {call.turn + 1}"
            raise ToolError(f"{where}: {error}") from error
        except ExecutorError:
            raise
        except dotted.RAISED as error:  # the agent's arguments made it raise; the agent may try others
            return _readable(f"error: {dotted.reason(error)}")


def _readable(result: Any) -> str:
    """A result as encodable text, cut to `LONGEST`."""
    return str(result)[:LONGEST].encode("utf-8", "replace").decode()


def _complaint(tool: Tool, given: Any) -> str:
    """What is wrong with the arguments of a call; '' if nothing."""
    if not isinstance(given, dict):
        names = [*tool.parameters, tool.rest] if tool.rest else tool.parameters
        return f"the arguments of {tool.name} are a JSON object with {', '.join(names)}"
    missing = [name for name in tool.parameters if name not in given and name not in tool.optional]
    if missing:
        return f"{tool.name} needs the argument {missing[0]!r}"
    unknown = [name for name in given if name not in tool.parameters]
    if unknown and not tool.rest:
        return (
            f"{tool.name} has no argument {unknown[0][:60]!r}; it has {', '.join(tool.parameters) or 'none'}"
        )
    for name, value in given.items():
        kind = tool.parameters.get(name, object)
        if kind is not object and type(value) not in ((int, float) if kind is float else (kind,)):
            return f"{name} of {tool.name} must be a {KINDS[kind]}, not {json.dumps(value)[:60]}"
    return tool.check(given) if tool.check else ""


def of_function(function: Callable[..., Any], name: str = "") -> Tool:
    """A tool from a function with a docstring, whose parameters all have one of `TYPES` as annotation.

    It may be an ``async def``, which each call awaits. A parameter ``item`` without an annotation gets the
    problem. ValueError names what is missing.
    """
    name = name or getattr(function, "__name__", repr(function))
    if isinstance(function, type) or not hasattr(function, "__name__"):
        kind = "class" if isinstance(function, type) else type(function).__name__
        raise UserError(f"{FIELD} {name!r} is a {kind}; allowed are functions")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UserError(f"{FIELD} {name!r} is a generator; allowed are functions that return their result")
    about = (inspect.getdoc(function) or "").strip().split("\n\n")[0].replace("\n", " ")
    if not about:
        raise UserError(f"{FIELD} {name!r} has no docstring, which tells agents what it does")
    try:
        hints, parameters = typing.get_type_hints(function), inspect.signature(function).parameters
    except Exception as error:  # an annotation is an expression
        raise UserError(
            f"{FIELD} {name!r}: its parameters cannot be read ({dotted.reason(error)})"
        ) from error
    for parameter in parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UserError(
                f"{FIELD} {name!r}: its parameter '{parameter}' is {parameter.kind.description}; allowed are those "
                "that can be given by name"
            )
    own = [parameter for parameter in parameters if not (parameter == "item" and parameter not in hints)]
    for parameter in own:
        if hints.get(parameter) not in TYPES:
            kinds = ", ".join(kind.__name__ for kind in TYPES)
            raise UserError(f"{FIELD} {name!r}: its parameter {parameter!r} needs one of the types {kinds}")
    optional = tuple(p for p in own if parameters[p].default is not inspect.Parameter.empty)
    return Tool(name, about, {p: hints[p] for p in own}, function, optional, len(own) < len(parameters))


def of_names(names: Sequence[str]) -> list[Tool]:
    """The functions at dotted names as tools, each under the function's own name."""
    return [of_function(dotted.resolve(name, FIELD)) for name in names]
