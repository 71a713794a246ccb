"""Functions as tools that run in the executor's sandbox: every call in a fresh process, with its limits.

The module of a function is imported here only for its signature and docstring. For every call its text is
loaded in the sandbox: agents' arguments reach the function only there, and no state stays for the next call.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import json
import pathlib
from collections.abc import Sequence

from jaxmarl_llm.executor import Executor, Program, Report
from jaxmarl_llm.executor.judging.units import OUTPUT
from jaxmarl_llm.tasks.tools.toolbox import FIELD, Tool, of_function
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

_LOADS = "def check(candidate):\n    pass\n"
_ENDS = {
    "timeout-cpu": "it took longer than {seconds:g} s of CPU time",
    "timeout-wall": "it took too long",
    "memory": "it took more memory than {memory} MiB",
    "killed": "it crashed",
    "protocol": "it ended the process",
    "unsupported": "its result is no plain value, or too large",
}


def of_names(names: Sequence[str], executor: Executor) -> list[Tool]:
    """The functions at dotted names as tools that run in ``executor``, each under the function's own name.

    UserError for a function that is not a tool, needs the problem, or has a module that cannot be loaded
    there.
    """
    return [_sandboxed(name, executor) for name in names]


def _sandboxed(name: str, executor: Executor) -> Tool:
    function = dotted.resolve(name, FIELD)
    tool = of_function(function)
    if tool.of_item:
        raise UserError(
            f"{FIELD} {name!r}: its parameter 'item' is the problem, which stays in this process; allowed are "
            "functions without it, or tools.place='process'"
        )
    if inspect.iscoroutinefunction(function):  # the sandbox has no sockets, which event loops need
        raise UserError(
            f"{FIELD} {name!r} is an async def, whose event loop the sandbox does not allow; allowed are other "
            "functions, or tools.place='process'"
        )
    path = inspect.getsourcefile(function) if inspect.isfunction(function) else None
    if path is None:
        raise UserError(
            f"{FIELD} {name!r}: with tools.place='sandbox' allowed are functions of a Python file"
        )
    program = Program(
        {"tools": importlib.util.decode_source(pathlib.Path(path).read_bytes())}, function.__name__, _LOADS
    )
    (report,) = executor.run([program])
    if report.verdict != "pass":
        raise UserError(
            f"{FIELD} {name!r}: its file cannot be loaded in the sandbox ({'; '.join(report.failures)[:300]}); allowed "
            "are functions of a file that needs the standard library, and packages of executor.allow_modules"
        )

    def call(**arguments) -> str:
        (report,) = executor.run([dataclasses.replace(program, tests=_calling(arguments))])
        return _text(report, executor)

    return dataclasses.replace(tool, call=call, at_once=True)


def _calling(arguments: dict) -> str:
    """Tests that call the candidate with these arguments and report the result as text."""
    data = json.dumps(arguments)
    return f"import json\n\n\ndef check(candidate):\n    {OUTPUT}(str(candidate(**json.loads({data!r}))))\n"


def _text(report: Report, executor: Executor) -> str:
    """A call's result, or why there is none."""
    if report.verdict == "pass":
        return report.output
    if words := _ENDS.get(report.verdict):
        limits = executor.limits
        return f"error: {words.format(seconds=limits.cpu_seconds, memory=limits.memory_mb)}"
    reason = report.failures[0] if report.failures else report.verdict
    return f"error: {reason.partition(' -> ')[2] or reason}"
