"""Feedback to each agent on a joint answer before it tries again. Pure functions: report in, short texts out.

The modes are those of MAGRPO's multi-turn coding (arXiv:2508.04652; OpenMLRL/LLM_Collab_Code_Generation):

    plain           nothing but the request to revise
    passed          one bit: every check passed, or not
    level_passed    one word per level: function, syntax, tests, use of aux
    level_feedback  what is missing, where the syntax error is, which test failed and how

An agent reads about its own function, about the tests, and whether its partners' functions are there (a
helper only about main's), but never a line of another agent's answer. It reads everything in the report
about the tests, so the report should only be of revealed tests (`coding.problem_tests.revealed`).
"""

from __future__ import annotations

import ast
import re
import typing
import warnings

from jaxmarl_llm.executor import Report
from jaxmarl_llm.tasks.coding import problem_tests, sources
from jaxmarl_llm.tasks.coding import usage as code_usage
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.reward import compose
from jaxmarl_llm.tasks.coding.roles import functions, helper_functions
from jaxmarl_llm.tasks.program_text.python_text import parse
from jaxmarl_llm.utils.errors import UserError

MODES = ("plain", "passed", "level_passed", "level_feedback")
MAX_CODE, MAX_MESSAGE = 120, 80  # longest shown line and exception message, in characters
_FOUND, _MISSING, _NO_RETURN, _BROKEN = "found", "missing", "no return", "syntax error"
_WORDS = {True: "ok", False: "failed", None: "not run"}
_ENDS = {
    "timeout-cpu": "took too long",
    "timeout-wall": "took too long",
    "killed": "crashed",
    "protocol": "ended too early",
}


class _Part(typing.NamedTuple):
    """One agent's own function: its name, its text ('' if absent), and _FOUND or its fault."""

    name: str
    source: str
    state: str


class _Answer(typing.NamedTuple):
    """A joint answer: a part per agent, all that each agent wrote, and the report (None: not run)."""

    item: CodingItem
    parts: dict[str, _Part]
    completions: dict[str, str]
    report: Report | None
    rule: str
    needs: str  # what every function must have, '' for nothing

    def is_main(self, agent: str) -> bool:
        """Whether the agent writes the entry point of a team."""
        return len(self.parts) > 1 and agent == list(self.parts)[-1]

    def partners(self, agent: str) -> list[str]:
        """Agents whose functions this one knows: main knows all helpers, a helper only main."""
        *helpers, main = self.parts
        return helpers if agent == main else [main]


def feedback(
    mode: str,
    item: CodingItem,
    agents: tuple[str, ...],
    completions: dict[str, str],
    report: Report | None,
    rule: str = "influence",
    parsing: str = "python",
) -> dict[str, str]:
    """The user message for each agent's next try.

    mode: one of MODES. agents: (helpers .., main), or (main,) alone. completions: {agent: what it wrote}.
    report: the executor's report on the tests that may be shown; None if `coding.reward.compose` rejected
        the answer before any test. "plain" does not use it.
    rule: how cooperation is rewarded, see `coding.reward`: with "influence" main may just return a helper's
      result.
    parsing: which part of an answer is judged, see `coding.sources`.
    Errors: ValueError for an unknown mode, for wrong agents, for a report on an answer that was rejected, and
        for a missing report on one that was not.
    """
    if mode not in MODES:
        raise UserError(f"feedback mode is {mode!r}; allowed: {', '.join(MODES)}")
    if set(completions) != set(agents):
        raise UserError(f"completions come from agents {sorted(completions)}, expected {sorted(agents)}")
    lines = dict.fromkeys(agents, ())
    if mode != "plain":
        answer = _read(item, agents, completions, report, rule, parsing)
        lines = {agent: _TELL[mode](answer, agent) for agent in agents}
    names = functions(agents, item.entry_point)
    return {a: "\n".join([*lines[a], f"Revise {names[a]}. Answer with code only."]) for a in agents}


def _read(item, agents, completions, report, rule, parsing) -> _Answer:
    stop = compose(item, completions, agents, parsing).stop
    if (report is None) != bool(stop):
        raise UserError(
            f"item {item.task_id!r}: the answer {f'stopped at {stop!r}' if stop else 'can be run'} and the "
            f"report is {report!r:.80}; allowed: a report exactly where a program can be run"
        )
    names = functions(agents, item.entry_point)
    parts = {agent: _part(completions[agent], names[agent], parsing) for agent in agents}
    needs = " with a return" if parsing == "paper" else ""
    return _Answer(item, parts, completions, report, rule, needs)


def _part(completion: str, function: str, parsing: str) -> _Part:
    source = sources.source(completion, function, parsing)
    if not source:
        state = _MISSING
    elif not sources.counts(source, parsing):
        state = _NO_RETURN
    else:
        state = _BROKEN if parse(source) is None else _FOUND
    return _Part(function, source, state)


def _tell_bit(answer: _Answer, agent: str) -> list[str]:
    levels = [level for member in answer.parts for level in _levels(answer, member).values()]
    return ["All checks passed." if set(levels) == {"ok"} else "Not all checks passed."]


def _tell_levels(answer: _Answer, agent: str) -> list[str]:
    return [" ".join(f"{name}: {level}." for name, level in _levels(answer, agent).items())]


def _levels(answer: _Answer, agent: str) -> dict[str, str]:
    """{level: "ok", "failed" or "not run"} of an agent's own function and of the tests."""
    part, report = answer.parts[agent], answer.report
    levels = {"Function": part.state in (_FOUND, _BROKEN)}
    if levels["Function"]:
        levels["Syntax"] = part.state == _FOUND
    levels["Tests"] = report and report.passed == report.total > 0
    for helper, usage in _usages(answer, agent).items():
        levels[f"Use of {helper}"] = usage == _uses(helper)
    return {name: _WORDS[passed] for name, passed in levels.items()}


def _tell_details(answer: _Answer, agent: str) -> list[str]:
    part, report = answer.parts[agent], answer.report
    lines = [_describe(answer, part)]
    for other in (answer.parts[name] for name in answer.partners(agent)):
        if answer.is_main(agent) or (report is None and other.state != _FOUND):
            lines.append(f"{other.name}: {other.state}.")
    lines += [f"{part.name} {usage}" for usage in _usages(answer, agent).values()]
    if report is None:
        return [*lines, "Not tested."]
    lines.append(f"Tests passed: {report.passed} of {report.total}.")
    if report.passed < report.total and report.failures:
        lines.append(f"Failed: {_failure(answer, agent)}")
    return lines


_TELL = {"passed": _tell_bit, "level_passed": _tell_levels, "level_feedback": _tell_details}


def _describe(answer: _Answer, part: _Part) -> str:
    """The state of an agent's own function, with advice."""
    advice = {
        _FOUND: "",
        _MISSING: f" Write def {part.name}({answer.item.arguments}){answer.needs}.",
        _NO_RETURN: " Return a value.",
        _BROKEN: _place(part.source),
    }
    return f"{part.name}: {part.state}.{advice[part.state]}"


def _place(source: str) -> str:
    """Where and why the parser stopped, as text; '' if it names no line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except SyntaxError as error:
        if error.lineno is None:
            return ""
        lines = source.split("\n")
        line = lines[min(error.lineno, len(lines)) - 1].rstrip()
        return f" Line {error.lineno}, column {error.offset}: {error.msg}.\n{_cut(line, MAX_CODE)}"
    except (ValueError, RecursionError, MemoryError, OverflowError):
        pass
    return ""


def _usages(answer: _Answer, agent: str) -> dict[str, str]:
    """{helper function: how main treats it}, if main's function parses, else {}."""
    part = answer.parts[agent]
    if not answer.is_main(agent) or part.state != _FOUND:
        return {}
    helpers = helper_functions(tuple(answer.parts)).values()
    main = code_usage.main_text(part.source, part.name)
    return {helper: _usage(main, helper, answer.rule) for helper in helpers}


def _uses(helper: str) -> str:
    return f"uses {helper}."


def _usage(main: str, helper: str, rule: str) -> str:
    """How main treats a helper, as text: read from main's source only, even if the helper does not exist."""
    if not code_usage.calls_function(main, helper):
        return f"does not call {helper}. Use its result."
    if rule != "influence" and code_usage.is_thin_wrapper(main, helper):
        return f"only passes on what {helper} returns. Add a step of its own."
    if code_usage.ignores_result(main, helper):
        return f"ignores what {helper} returns. Use it."
    return _uses(helper)


def _failure(answer: _Answer, agent: str) -> str:
    """The first failed test and how it failed; for what is left of hidden tests only how they failed."""
    item = answer.item
    statement, error = problem_tests.first_failure(answer.report.failures, item.test, item.entry_point)
    arrow = " -> " if statement else ""
    return _cut(statement, MAX_CODE) + arrow + _exception(error, answer, agent)


def _exception(error: str, answer: _Answer, agent: str) -> str:
    """`error` in plain words, with function names for agents, without messages that quote another agent."""
    ended = re.search(r"\(([a-z-]+)\)$", error)
    if ended and ended[1] in _ENDS:
        return _ENDS[ended[1]]
    place, colon, rest = error.partition(": ")
    where = ""
    if colon and place in answer.parts:  # the source of that agent could not be loaded
        visible = place == agent or place in answer.partners(agent)
        where, error = f"{answer.parts[place].name}: " if visible else "", rest
    kind, colon, message = error.partition(": ")
    if any(_repeats(message, text) for other, text in answer.completions.items() if other != agent):
        colon = message = ""
    return where + kind + colon + _cut(" ".join(message.split()), MAX_MESSAGE)


def _repeats(message: str, text: str) -> bool:
    """Whether a message quotes `text`; three characters or less ("x", "[]") do not count."""
    message = message.strip("'\"")  # as a KeyError shows its text
    lines = [line.strip() for line in text.split("\n")]
    return len(message) > 3 and (message in text or any(len(x) > 3 and x in message for x in lines))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
