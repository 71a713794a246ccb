"""Demonstrations from solutions with tools: what each agent reads and writes at each step (arXiv 2401.07324).

The prompts are those of the protocols, and the results those of the tools: a team that writes exactly these
texts reads exactly these prompts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmarl_llm.protocols import planner, with_tools
from jaxmarl_llm.tasks.planned import CALLER, CONCLUSION, GIVE_UP
from jaxmarl_llm.tasks.tools import Toolbox
from jaxmarl_llm.tasks.tools.solutions import Solution

Messages = Sequence[dict[str, str]]
Part = tuple[str, Messages, str]  # an agent, what it reads, what it writes
# Maps an item, the prompts of its agents, and its solution to the parts.
Worked = Callable[[Any, Mapping[str, Messages], Solution], list[Part]]


def of_planner(toolbox: Toolbox) -> Worked:
    """Parts of a planner, a caller and a summarizer, as in `protocols.planner`."""

    def parts(item: Any, prompts: Mapping[str, Messages], solution: Solution) -> list[Part]:
        plan_by, call_by, answer_by = prompts
        questions = {agent: tuple(messages) for agent, messages in prompts.items()}
        rows: list[Part] = []
        calls: list[planner.Done] = []
        for step in solution.steps:
            route = CALLER if step.tool else CONCLUSION if solution.answer else GIVE_UP
            plan = f"{step.thought}\nNext: {route}"
            rows.append((plan_by, planner.planner_reads(questions[plan_by], toolbox, calls), plan))
            if step.tool:
                call = step.call()
                rows.append((call_by, planner.caller_reads(questions[call_by], toolbox, calls, plan), call))
                calls.append(planner.done(plan, call, toolbox.result(item, call)))
        if solution.answer:
            rows.append((answer_by, planner.summarizer_reads(questions[answer_by], calls), solution.answer))
        return rows

    return parts


def of_one(toolbox: Toolbox) -> Worked:
    """Parts of an agent that works alone, as in `protocols.with_tools`."""

    def parts(item: Any, prompts: Mapping[str, Messages], solution: Solution) -> list[Part]:
        ((agent, question),) = prompts.items()
        messages = with_tools.offered(question, toolbox)
        rows: list[Part] = []
        for step in solution.steps:
            end = step.call() if step.tool else solution.answer or f"{GIVE_UP.capitalize()}."
            text = f"{step.thought}\n{end}"
            rows.append((agent, messages, text))
            if step.tool:
                messages = with_tools.after_call(messages, text, toolbox.result(item, text))
        return rows

    return parts
