"""A task in which two agents must find a convention: which agent does which of two steps.

A problem names two steps; its solution is ``second(first(p))``. One agent writes a helper, the other the
tested function, and neither sees the other's answer. Both of these teams solve it:

    convention   the helper agent writes          the main agent writes
    first        aux does the first step          value = aux(p); return second(value)
    second       aux does the second step         value = first(p); return aux(value)

A helper of one convention with a main of the other does one step twice and the other never. So even if each
agent can do either step, the team fails half of the time until it has a convention.

The answers to both are made by code from the canonical solutions of coding problems (`forms`). The judge runs
every answer with the partner's answer, and with the reference partner of each convention. So it is known
which convention an answer follows, whatever the partner's answer is. It also runs it with partners that
contribute nothing: an agent that does both steps alone, or whichever step is missing, needs no convention. A
team earns a reward only for a convention that both agents follow.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence

from jaxmarl_llm.executor import Program
from jaxmarl_llm.tasks import custom_task
from jaxmarl_llm.tasks.coding import data_files, row_rules
from jaxmarl_llm.tasks.coding import feedback as code_feedback
from jaxmarl_llm.tasks.coding import sources as code_sources
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.task import CodingTask
from jaxmarl_llm.tasks.judgement import Judgement, check_batch
from jaxmarl_llm.tasks.program_text.python_text import parse
from jaxmarl_llm.utils.errors import UserError

AGENTS = ("aux", "main")
CONVENTIONS = ("first", "second")
HELPER = "aux"  # the function that the helper agent writes
LONGEST = 80  # characters of a reference answer; problems with longer ones are left out
# Everything that does not depend on the problem comes first: it is prefilled once per batch.
RULES = """\
You and a partner write a Python program together. One step of the problem is done by the helper aux, which \
takes one argument; the other step is done by the function that calls aux. You write {own}."""
OWN = {"aux": "aux", "main": "the function that calls aux"}


@dataclasses.dataclass(frozen=True)
class ConventionItem:
    """A coding problem of two steps that can be split in both ways.

    ``param`` is the entry point's only parameter, ``first`` an expression of it, ``second`` one of ``value``.
    """

    task_id: str
    problem: CodingItem
    param: str
    first: str
    second: str
    grade: int = 0

    @property
    def prompt(self) -> str:
        """The text of the problem."""
        return self.problem.prompt

    @property
    def entry_point(self) -> str:
        """The name of the tested function."""
        return self.problem.entry_point

    def references(self, convention: str) -> dict[str, str]:
        """The texts of both agents in one of `CONVENTIONS`."""
        name, p, first, second = self.problem.entry_point, self.param, self.first, self.second
        if convention == "first":
            helper = f"def {HELPER}({p}):\n    return {first}"
            body = f"value = {HELPER}({p})\n    return {second}"
        else:
            helper = f"def {HELPER}(value):\n    return {second}"
            body = f"value = {first}\n    return {HELPER}(value)"
        return dict(zip(AGENTS, (helper, f"def {name}({p}):\n    {body}"), strict=True))


def forms(item: CodingItem) -> ConventionItem | None:
    """The problem with its two steps; None if its solution cannot be split both ways in short answers.

    It can be split if the entry point has one parameter, the helper returns one expression of it, and the
    entry point returns one expression of only the helper's result. The steps must also differ and the first
    must not be a copy, or all teams would be right.
    """
    tree = parse(item.canonical_solution)
    functions = {} if tree is None else {node.name: node for node in tree.body if hasattr(node, "name")}
    helper, main = functions.get(HELPER), functions.get(item.entry_point)
    if helper is None or main is None or len(item.params) != 1 or len(helper.args.args) != 1:
        return None
    if len(helper.body) != 1 or len(main.body) != 2 or not isinstance(main.body[0], ast.Assign):
        return None
    call, target = main.body[0].value, main.body[0].targets[0]
    whole = isinstance(call, ast.Call) and getattr(call.func, "id", "") == HELPER
    returns = [body for body in (helper.body[0], main.body[1]) if isinstance(body, ast.Return) and body.value]
    if not whole or len(returns) != 2 or not isinstance(target, ast.Name):
        return None
    (param,), names = item.params, _names(returns[1].value)
    if target.id not in names or param in names or HELPER in names:
        return None
    first = _renamed(returns[0].value, helper.args.args[0].arg, param)
    second = _renamed(returns[1].value, target.id, "value")
    if _renamed(ast.parse(first, mode="eval").body, param, "value") == second or first == f"list({param})":
        return None  # the same step twice, or a copy, which is no step
    divided = ConventionItem(item.task_id, item, param, first, second, item.grade)
    texts = [text for convention in CONVENTIONS for text in divided.references(convention).values()]
    return divided if max(map(len, texts)) <= LONGEST else None


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _renamed(tree: ast.expr, old: str, new: str) -> str:
    """Source of an expression with one name in place of another."""
    copy = ast.parse(ast.unparse(tree), mode="eval")
    for node in ast.walk(copy):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
    return ast.unparse(copy)


def mixed(item: ConventionItem) -> dict[str, list[str]]:
    """Demonstrations of both conventions, one each for every problem."""
    texts = [item.references(convention) for convention in CONVENTIONS]
    return {agent: [answers[agent] for answers in texts] for agent in AGENTS}


def first(item: ConventionItem) -> dict[str, str]:
    """Demonstrations of one convention: the helper does the first step."""
    return item.references("first")


def second(item: ConventionItem) -> dict[str, str]:
    """Demonstrations of one convention: the helper does the second step."""
    return item.references("second")


class ConventionTask:
    """Items, prompts and judge: the task for ``task.kind=jaxmarl_llm.tasks.toys.convention:ConventionTask``.

    The reward is 1 for a joint answer that passes all tests and in which both agents follow the same
    convention, else 0. Parts, 1 or 0:

    - ``<agent>_alone``: the agent's answer needs no convention: it passes all tests with a partner that
      contributes nothing (a main that passes its argument to the helper; a helper that returns None, or its
      argument), or with the reference partners of both conventions;
    - ``<agent>_first``, ``<agent>_second``: it needs one, and passes with that convention's reference
    partner;
    - ``same``: there is a convention that both answers follow.

    Between turns agents read the feedback of `coding.feedback` on an answer to the coding problem, about the
    tests that ``task.revealed_tests`` allows, or an expert's edits. An expert who knows the problem's
    reference solution edits towards the convention ``first``.

    Judged is what Python would run of an answer, or with ``task.parsing=paper`` only the text of its
    function, see `coding.sources.source`.

    Args:
      config: the section ``config.task``: the source of coding problems, see `coding.data_files.load_items`,
        ``parsing``, ``bad_rows``, ``feedback`` and ``revealed_tests``.
      executor: its `run(list[Program]) -> list[Report]` judges all programs of a batch in one call.
      split: which of the sources to load, such as ``train``.

    Raises:
      ValueError: if no problem can be split both ways.
    """

    runs_programs = True
    agents = AGENTS
    feedbacks = (*code_feedback.MODES, custom_task.EXPERT)
    part_names = ("same", *(f"{agent}_{which}" for agent in AGENTS for which in (*CONVENTIONS, "alone")))
    reward_range = (0.0, 1.0)

    def __init__(self, config, executor, split: str):
        source = config.source if split == "train" else config[f"{split}_source"] or config.source
        modules = getattr(executor, "modules", ())
        rules = row_rules.of_executor(executor, modules, config.get("bad_rows", "refuse"))
        divided = map(forms, data_files.load_items(source, config[f"{split}_split"], rules))
        self.items = tuple(item for item in divided if item is not None)
        self._executor, self._parsing = executor, config.get("parsing", "python")
        if not self.items:
            raise UserError(f"source {source!r} has no problem whose steps can be divided both ways")
        mode = config.get("feedback", "plain")
        self._coding = CodingTask(  # gives the feedback
            [item.problem for item in self.items],
            executor,
            AGENTS,
            feedback=mode if mode in code_feedback.MODES else "plain",  # an expert's feedback replaces it
            revealed_tests=config.get("revealed_tests", 1),
            parsing=self._parsing,
        )

    def prompts(self, item: ConventionItem) -> dict[str, list[dict[str, str]]]:
        """Chat messages per agent: the same problem, and which function the agent writes."""
        return {
            agent: [
                {"role": "system", "content": RULES.format(own=OWN[agent])},
                {"role": "user", "content": item.problem.prompt.strip()},
            ]
            for agent in self.agents
        }

    def references(self, item: ConventionItem) -> dict[str, list[str]]:
        """Reference answers: for both conventions."""
        return mixed(item)

    def feedback(self, answers: Sequence) -> list[dict[str, str]]:
        """Feedback to both agents on judged answers, as on answers to the coding problems; see `CodingTask`."""
        return self._coding.feedback(
            [dataclasses.replace(answer, item=answer.item.problem) for answer in answers]
        )

    def judge(self, items: Sequence[ConventionItem], completions: dict[str, list[str]]) -> list[Judgement]:
        """Judgements of joint answers, in order; answer j answers items[j] with completions[agent][j].

        All programs run in one call of the executor, equal programs once.
        """
        check_batch(items, completions, self.agents)
        pairs = list(zip(*(completions[agent] for agent in self.agents), strict=True))
        teams = [_teams(item, *texts) for item, texts in zip(items, pairs, strict=True)]
        wanted: dict[tuple, Program | None] = {}
        for item, named in zip(items, teams, strict=True):
            for texts in named.values():
                wanted.setdefault((item.task_id, texts), _program(item.problem, texts, self._parsing))
        runnable = {key: program for key, program in wanted.items() if program is not None}
        reports = self._executor.run(list(runnable.values())) if runnable else []
        passed = {key: report.verdict == "pass" for key, report in zip(runnable, reports, strict=True)}
        return [
            _judgement({name: passed.get((item.task_id, texts), False) for name, texts in named.items()})
            for item, named in zip(items, teams, strict=True)
        ]


def _teams(item: ConventionItem, helper: str, main: str) -> dict[str, tuple[str, str]]:
    """Pairs of texts by name: the two answers, and each with reference partners and idle partners."""
    idle_main = f"def {item.problem.entry_point}({item.param}):\n    return {HELPER}({item.param})"
    pairs = {"total": (helper, main), f"{AGENTS[0]}_idle": (helper, idle_main)}
    for name, value in (("idle", "None"), ("idle_too", "value")):
        pairs[f"{AGENTS[1]}_{name}"] = (f"def {HELPER}(value):\n    return {value}", main)
    for convention in CONVENTIONS:
        reference = item.references(convention)
        pairs[f"{AGENTS[0]}_{convention}"] = (helper, reference[AGENTS[1]])
        pairs[f"{AGENTS[1]}_{convention}"] = (reference[AGENTS[0]], main)
    return pairs


def _program(problem: CodingItem, texts: Sequence[str], parsing: str) -> Program | None:
    """The program of the agents' texts; None if one lacks its function, or it does not parse."""
    names = dict(zip(AGENTS, (HELPER, problem.entry_point), strict=True))
    sources = code_sources.read(dict(zip(AGENTS, texts, strict=True)), names, parsing)
    if len(sources) < len(AGENTS) or any(parse(text) is None for text in sources.values()):
        return None
    shared = None if parsing == "paper" else tuple(names.values())
    return Program(sources, problem.entry_point, problem.test, problem.prelude, shared=shared)


def _judgement(passed: dict[str, bool]) -> Judgement:
    """The judgement of a joint answer, given which of its `_teams` pass all tests."""
    follows, parts = {}, {}
    for agent in AGENTS:
        beside = [passed[f"{agent}_{convention}"] for convention in CONVENTIONS]
        idle = [right for name, right in passed.items() if name.startswith(f"{agent}_idle")]
        alone = any(idle) or all(beside)
        follows[agent] = [right and not alone for right in beside]
        parts |= {f"{agent}_{c}": float(right) for c, right in zip(CONVENTIONS, follows[agent], strict=True)}
        parts[f"{agent}_alone"] = float(alone)
    same = any(map(all, zip(*follows.values(), strict=True)))
    parts = {"same": float(same)} | parts
    local = {agent: float(any(follows[agent])) for agent in AGENTS}
    return Judgement(parts, float(passed["total"] and same), "judged", local=local)
