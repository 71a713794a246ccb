"""The hierarchical reward of collaborative coding: structure, syntax, tests, cooperation. Pure functions.

After MAGRPO's coding reward (arXiv:2508.04652; OpenMLRL/LLM_Collab_Code_Generation). A team earns 0..4:

    part         condition                                                     value     otherwise
    structure    a helper agent defines its function                           +0.4 / H  continue without it
                 the main agent defines the entry point                        +0.6      stop
    syntax       prelude + helpers + main parses                               +0.5      stop
    tests        passed / total                                                +1.0 * ratio
    cooperation  by a rule, see below; the mean over the H helpers             0..1.5

A function is what Python would run (`coding.sources`): a function without a return counts as complete, and
each agent's imports, constants and helpers stay with it. MAGRPO takes only the function's text and requires a
return; so does parsing "paper".

Rules of the cooperation part, for one helper. All of them need a passed test and an existing function of
the helper.

    influence    1.5 * passed / total   if main called the helper's function in the tests and what it returned
                                        changed what main returned; else 0
    observed     0.5 for a call in the tests, +1.0 if main is more than a thin wrapper, -0.5 if what the
                 helper returned changed nothing
    paper        the same, but only main's text decides whether it calls and whether it ignores

Why "influence" is the default: "paper" is what MAGRPO published. It pays 1.5 for a call and one passed test,
whatever made the test pass, and 1.0 less for a main function that just returns the result of a correct
helper. From it a team learns a fixed pattern, whatever the problem asks for: the helper does something, and
main does one more thing to the result. "influence" pays nothing for a call that solves no test or whose
result makes no difference, and a thin wrapper earns as much as any other use.

The executor tests whether a result changed anything: it repeats calls with other values in place of the
helper's result (`executor.Interaction.used`). If it could not test it, main's text decides
(`coding.usage.ignores_result`). Whether main is a thin wrapper is read from its text.

A single agent has no helper and no cooperation part, and earns 0..2.1. Agents are named in the order
(helpers .., main), or (main,); `coding.roles` has the names of their functions.
"""

from __future__ import annotations

import typing

from jaxmarl_llm.executor import Interaction, Program, Report
from jaxmarl_llm.tasks.coding import sources, usage
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.roles import HELPER, TEAM, functions, helper_functions
from jaxmarl_llm.tasks.program_text.python_text import parse

RULES = ("influence", "observed", "paper")
PART_NAMES = ("structure", "syntax", "tests", "cooperation")
_SCALES = {"structure": 1.0, "syntax": 0.5, "tests": 1.0, "cooperation": 1.5, "total": 4.0}
_SOLO_SCALES = {"structure": 0.6, "syntax": 0.5, "tests": 1.0, "total": 2.1}


class Draft(typing.NamedTuple):
    """A joint answer before its tests: parts so far, program to run (None: stopped), and where it stopped.

    ``local`` is 1 for every agent that defined its own function, else 0.
    """

    parts: dict[str, float]
    program: Program | None
    stop: str  # "" | "no-main" | "syntax"
    local: dict[str, float]


def reward_range(agents: tuple[str, ...]) -> tuple[float, float]:
    """Smallest and largest total: (0, 4) for a team, (0, 2.1) for one agent."""
    return (0.0, _scales(agents)["total"])


def compose(
    item: CodingItem,
    completions: dict[str, str],
    agents: tuple[str, ...] = TEAM,
    parsing: str = "python",
) -> Draft:
    """First stage: take the sources, judge structure and syntax, build the program to be tested.

    parsing: one of `coding.sources.PARSINGS`. With "python" agents see only each other's functions, whatever
    other names they use.
    """
    names = functions(agents, item.entry_point)
    written = sources.read(completions, names, parsing)
    local = {agent: float(agent in written) for agent in agents}
    *helpers, has_main = local.values()
    parts = dict.fromkeys(PART_NAMES, 0.0)
    parts["structure"] = (0.4 * sum(helpers) / len(helpers) if helpers else 0.0) + 0.6 * has_main
    if not has_main:
        return Draft(_with_total(parts), None, "no-main", local)
    if parse("\n\n".join([item.prelude, *written.values()])) is None:
        return Draft(_with_total(parts), None, "syntax", local)
    parts["syntax"] = 0.5
    shared = None if parsing == "paper" else tuple(names.values())
    program = Program(written, item.entry_point, item.test, item.prelude, shared=shared)
    return Draft(_with_total(parts), program, "", local)


def finish(
    draft: Draft,
    report: Report | None,
    agents: tuple[str, ...] = TEAM,
    *,
    rule: str = "influence",
    compat: bool = False,
) -> dict[str, float]:
    """Second stage: parts and total with the executor's report, None for a draft that was stopped.

    rule: one of RULES. compat: with the paper's rule, judge "result ignored" by CoMLRL's textual pattern (see
    `coding.usage.ignores_result_comlrl`).
    """
    if draft.program is None:
        return dict(draft.parts)
    parts = {**draft.parts, "tests": pass_ratio(report)}
    helpers = helper_functions(agents)
    if report.passed > 0 and helpers:
        program, main = draft.program, agents[-1]
        text = usage.main_text(program.sources[main], program.entry_point)
        names = [(agent, name) for agent, name in helpers.items() if agent in program.sources]
        rows = {name: _row(report, main, agent, name) for agent, name in names}
        earned = [_cooperation(rule, text, name, rows[name], report, compat) for name in rows]
        parts["cooperation"] = sum(earned) / len(helpers)
    return _with_total(parts)


def pass_ratio(report: Report | None) -> float:
    """Share of the tests that passed; 0 for a program that did not run, or without tests."""
    return report.passed / report.total if report and report.total else 0.0


def _cooperation(rule: str, main: str, helper: str, row: Interaction | None, report, compat: bool) -> float:
    """Reward for one helper's existing function by a rule, in a program that passed a test."""
    if rule == "paper":
        return cooperation(main, helper, compat=compat)
    if rule == "observed":
        return observed_cooperation(main, row, helper)
    return 1.5 * pass_ratio(report) * influenced(main, row, helper)


def cooperation(main_source: str, helper: str = HELPER, *, compat: bool = False) -> float:
    """Bonus (0..1.5), by main's text, of a main function that passed a test next to a helper that exists."""
    if not usage.calls_function(main_source, helper):
        return 0.0
    ignores = usage.ignores_result_comlrl if compat else usage.ignores_result
    return _bonus(main_source, helper, ignores(main_source, helper))


def observed_cooperation(main_source: str, row: Interaction | None, helper: str = HELPER) -> float:
    """Bonus (0..1.5) by what happened; ``row``: how main used the helper's function, None: not at all."""
    return 0.0 if row is None else _bonus(main_source, helper, not influenced(main_source, row, helper))


def influenced(main_source: str, row: Interaction | None, helper: str = HELPER) -> bool:
    """Whether the helper's function was called and what it returned made a difference; ``row`` as above.

    If the executor could not test the difference, main's text decides.
    """
    if row is None or row.used is None:
        return row is not None and not usage.ignores_result(main_source, helper)
    return row.used


def _row(report: Report, main: str, helper_agent: str, function: str) -> Interaction | None:
    """How main used a helper's function while the tests ran; None if it did not call it."""
    wanted = (main, helper_agent, function)
    rows = (r for r in report.interactions if (r.caller, r.callee, r.function) == wanted)
    return next(rows, None)


def _bonus(main_source: str, helper: str, ignored: bool) -> float:
    bonus = 0.5 if usage.is_thin_wrapper(main_source, helper) else 1.5
    return bonus - (0.5 if ignored else 0.0)


def normalise(parts: dict[str, float], agents: tuple[str, ...] = TEAM) -> dict[str, float]:
    """Parts on the paper's 0..100 scale: each divided by its maximum; the total (over 4) is named "return".

    One agent alone is measured against its own maxima (structure 0.6, total 2.1) and has no cooperation part.
    If tests are held back, "hack_gap" is the share passed of the used tests minus that of the held-back
    tests.
    """
    percent = {name: 100.0 * parts[name] / scale for name, scale in _scales(agents).items()}
    percent["return"] = percent.pop("total")
    if "tests_held_back" in parts:
        percent["tests_held_back"] = 100.0 * parts["tests_held_back"]
        percent["hack_gap"] = percent["tests"] - percent["tests_held_back"]
    return percent


def _scales(agents: tuple[str, ...]) -> dict[str, float]:
    return _SCALES if len(agents) > 1 else _SOLO_SCALES


def _with_total(parts: dict[str, float]) -> dict[str, float]:
    return {**parts, "total": sum(parts[name] for name in PART_NAMES)}
