"""The hierarchical reward of collaborative coding: structure, syntax, tests, cooperation. Pure functions.

MAGRPO's coding reward (arXiv:2508.04652; OpenMLRL/LLM_Collab_Code_Generation). Two agents earn 0..4:

    part         condition                                                     value     otherwise
    structure    the helper agent defines aux, with a return                   +0.4      go on without aux
                 the main agent defines the entry point, with a return         +0.6      stop
    syntax       prelude + aux + main parses                                   +0.5      stop
    tests        passed / total                                                +1.0 * ratio
    cooperation  a test passed, aux is there and main calls it                 +0.5      0
                 and main is more than a thin wrapper of aux                   +1.0      0
                 and aux's result is ignored                                   -0.5

Two rules say whether main calls aux and ignores its result: "paper" reads main's text, as the paper does;
"observed" asks the executor's report, which counts the calls and tries what the result changes
(`executor.Interaction`). What a thin wrapper is both read from the text.

One agent alone has no helper and no cooperation and earns 0..2.1. Agents are named in the order
(helper, main), or (main,).
"""

from __future__ import annotations

import typing

from jaxmarl_llm.executor import Program, Report
from jaxmarl_llm.tasks import code_usage
from jaxmarl_llm.tasks.code_items import CodingItem
from jaxmarl_llm.tasks.code_text import extract_function, has_return, parse

TEAM = ("aux", "main")
HELPER = "aux"  # the function that the helper agent writes
RULES = ("paper", "observed")
PART_NAMES = ("structure", "syntax", "tests", "cooperation")
_SCALES = {"structure": 1.0, "syntax": 0.5, "tests": 1.0, "cooperation": 1.5, "total": 4.0}
_SOLO_SCALES = {"structure": 0.6, "syntax": 0.5, "tests": 1.0, "total": 2.1}


class Draft(typing.NamedTuple):
    """A joint answer before its tests: parts so far, program to run (None: stopped), and where it stopped.

    ``local`` is 1 for every agent that defined its own function, with a return, else 0.
    """

    parts: dict[str, float]
    program: Program | None
    stop: str  # "" | "no-main" | "syntax"
    local: dict[str, float]


def reward_range(agents: tuple[str, ...]) -> tuple[float, float]:
    """Smallest and largest total: (0, 4) for two agents, (0, 2.1) for one."""
    return (0.0, _scales(agents)["total"])


def compose(item: CodingItem, completions: dict[str, str], agents: tuple[str, ...] = TEAM) -> Draft:
    """First stage: extract the functions, judge structure and syntax, build the program to be tested."""
    helper = extract_function(completions[agents[0]], HELPER) if len(agents) == 2 else ""
    helper = helper if has_return(helper) else ""
    main = extract_function(completions[agents[-1]], item.entry_point)
    has_main = has_return(main)
    own = (helper, has_main) if len(agents) == 2 else (has_main,)
    local = {agent: float(bool(defined)) for agent, defined in zip(agents, own, strict=True)}
    parts = dict.fromkeys(PART_NAMES, 0.0)
    parts["structure"] = (0.4 if helper else 0.0) + (0.6 if has_main else 0.0)
    if not has_main:
        return Draft(_with_total(parts), None, "no-main", local)
    sources = {agents[0]: helper} if helper else {}
    sources[agents[-1]] = main
    if parse("\n\n".join([item.prelude, *sources.values()])) is None:
        return Draft(_with_total(parts), None, "syntax", local)
    parts["syntax"] = 0.5
    return Draft(_with_total(parts), Program(sources, item.entry_point, item.test, item.prelude), "", local)


def finish(
    draft: Draft,
    report: Report | None,
    agents: tuple[str, ...] = TEAM,
    *,
    rule: str = "paper",
    compat: bool = False,
) -> dict[str, float]:
    """Second stage: parts and total with the executor's report, which is None for a draft that was stopped.

    rule: one of RULES. compat: with the paper's rule, judge "result ignored" by CoMLRL's textual pattern (see
    `code_usage.ignores_result_comlrl`).
    """
    if draft.program is None:
        return dict(draft.parts)
    parts = {**draft.parts, "tests": pass_ratio(report)}
    if report.passed > 0 and len(draft.program.sources) == 2:
        main = draft.program.sources[agents[-1]]
        if rule == "observed":
            parts["cooperation"] = observed_cooperation(main, report, agents)
        else:
            parts["cooperation"] = cooperation(main, compat=compat)
    return _with_total(parts)


def pass_ratio(report: Report | None) -> float:
    """Share of the tests that passed; 0 for a program that did not run, or without tests."""
    return report.passed / report.total if report and report.total else 0.0


def cooperation(main_source: str, *, compat: bool = False) -> float:
    """Bonus (0..1.5), by main's text, of a main function that passed a test next to a helper that exists."""
    if not code_usage.calls_function(main_source, HELPER):
        return 0.0
    ignores = code_usage.ignores_result_comlrl if compat else code_usage.ignores_result
    return _bonus(main_source, ignores(main_source, HELPER))


def observed_cooperation(main_source: str, report: Report, agents: tuple[str, ...] = TEAM) -> float:
    """Judge cooperation by what happened: main called aux in the tests, and what aux returned made a
    difference.

    Where the executor could not try the latter, the text decides it.
    """
    for row in report.interactions:
        if (row.caller, row.callee, row.function) == (agents[-1], agents[0], HELPER):
            untried = row.used is None
            ignored = code_usage.ignores_result(main_source, HELPER) if untried else not row.used
            return _bonus(main_source, ignored)
    return 0.0


def _bonus(main_source: str, ignored: bool) -> float:
    bonus = 0.5 if code_usage.is_thin_wrapper(main_source, HELPER) else 1.5
    return bonus - (0.5 if ignored else 0.0)


def normalise(parts: dict[str, float], agents: tuple[str, ...] = TEAM) -> dict[str, float]:
    """Parts on the paper's 0..100 scale: each over its maximum, and the total (over 4) under the name
    "return".

    One agent alone is measured against its own maxima (structure 0.6, total 2.1) and has no cooperation. With
    tests held back, "hack_gap" is how much better the others went.
    """
    percent = {name: 100.0 * parts[name] / scale for name, scale in _scales(agents).items()}
    percent["return"] = percent.pop("total")
    if "tests_held_back" in parts:
        percent["tests_held_back"] = 100.0 * parts["tests_held_back"]
        percent["hack_gap"] = percent["tests"] - percent["tests_held_back"]
    return percent


def _scales(agents: tuple[str, ...]) -> dict[str, float]:
    return _SCALES if len(agents) == 2 else _SOLO_SCALES


def _with_total(parts: dict[str, float]) -> dict[str, float]:
    return {**parts, "total": sum(parts[name] for name in PART_NAMES)}
