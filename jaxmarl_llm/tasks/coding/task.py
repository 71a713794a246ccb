"""Collaborative coding: helpers write a function each, main writes the tested one; all share a reward."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from jaxmarl_llm.executor import MAX_AGENTS, Program, Report
from jaxmarl_llm.tasks.coding import feedback as code_feedback
from jaxmarl_llm.tasks.coding import problem_tests, published, reward, run_tests
from jaxmarl_llm.tasks.coding import prompts as code_prompts
from jaxmarl_llm.tasks.coding import references as code_references
from jaxmarl_llm.tasks.coding import sources as code_sources
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.reward import Draft
from jaxmarl_llm.tasks.coding.roles import helper_functions
from jaxmarl_llm.tasks.judgement import Judgement, check_batch
from jaxmarl_llm.tasks.tools import Tool
from jaxmarl_llm.utils.errors import UserError

PROMPTS = {"examples": code_prompts.render, "published": published.render}


class CodingTask:
    """Items, prompts per agent, and the judge.

    Args:
      items: the problems; see `coding.data_files.load_items`.
      executor: its `run(list[Program]) -> list[Report]` judges all programs of a batch in one call.
      agents: names in the order (helpers .., main), or the name of one agent that works alone (rewards
        0..2.1); `coding.roles` has the function that each writes.
      cooperation: how main's use of the helpers is rewarded, one of `coding.reward.RULES`.
      compat: judge "helper's result ignored" as CoMLRL does, by a pattern that hardly ever matches.
      feedback: the messages to agents before another try: one of `coding.feedback.MODES`, or a function
        from judged answers to {agent: text} for each.
      revealed_tests: the tests that feedback and the tool ``run_tests`` may show: the first n, 0 for all, the
        last n if negative.
      held_back: share of each problem's tests that do not count for the reward. The part "tests_held_back" is
        the share of these that passes; if it is below that of the other tests, answers may be fitted to the
        tests.
      parsing: which part of an answer is judged, one of `coding.sources.PARSINGS`: the program that Python
        would run, or only the function's text, as in the paper.
      prompts: one of PROMPTS: worked examples before the problem, or the structure of the published
        experiments, without examples.
    """

    part_names = reward.PART_NAMES

    def __init__(
        self,
        items: Sequence[CodingItem],
        executor,
        agents: Sequence[str] = ("aux", "main"),
        cooperation: str = "influence",
        compat: bool = False,
        feedback: str | Callable = "level_feedback",
        revealed_tests: int = 1,
        held_back: float = 0.0,
        prompts: str = "examples",
        parsing: str = "python",
    ):
        self.items = tuple(items)
        self.agents = tuple(agents)
        self._executor = executor
        self._rule, self._compat = cooperation, compat
        if cooperation not in reward.RULES:
            raise UserError(f"cooperation is {cooperation!r}; allowed: {', '.join(reward.RULES)}")
        if parsing not in code_sources.PARSINGS:
            raise UserError(f"parsing is {parsing!r}; allowed: {', '.join(code_sources.PARSINGS)}")
        self._parsing = parsing
        if prompts not in PROMPTS:
            raise UserError(f"prompts is {prompts!r}; allowed: {', '.join(PROMPTS)}")
        self._render = PROMPTS[prompts]
        if not callable(feedback) and feedback not in code_feedback.MODES:
            raise UserError(f"feedback is {feedback!r}; allowed: {', '.join(code_feedback.MODES)}")
        self._feedback, self._revealed, self._held_back = feedback, revealed_tests, held_back
        # A problem with a single test holds nothing back, so it lacks the part.
        self.part_names = () if held_back else reward.PART_NAMES
        self.reward_range = reward.reward_range(self.agents)
        if not 1 <= len(self.agents) <= MAX_AGENTS or len(set(self.agents)) != len(self.agents):
            raise UserError(f"agents is {self.agents!r}; allowed: 1 to {MAX_AGENTS} different names")
        if not self.items:
            raise UserError("items is empty; a coding task needs at least one problem")
        for item in self.items:
            name = item.entry_point
            if name in helper_functions(self.agents).values():
                raise UserError(f"item {item.task_id!r}: entry point {name!r} is a helper function's name")

    def prompts(self, item: CodingItem) -> dict[str, list[dict[str, str]]]:
        """Chat messages [{role, content}, …] per agent. No agent reads another one's prompt or answer."""
        return self._render(item, self.agents)

    def references(self, item: CodingItem) -> dict[str, str] | None:
        """Reference answers per agent, None where the data has none; see `coding.references.answers`.

        If only an answer's function is judged, also None for answers that need more than a function.
        """
        by_agent = code_references.answers(item, self.agents)
        if by_agent and self._parsing == "paper":
            return by_agent if all(map(code_references.is_one_function, by_agent.values())) else None
        return by_agent

    def judge(self, items: Sequence[CodingItem], completions: dict[str, list[str]]) -> list[Judgement]:
        """Judgements of J joint actions, in order; action j answers items[j] with completions[agent][j].

        All programs run in one call of the executor. Errors: ValueError for a missing agent or a wrong count.
        """
        check_batch(items, completions, self.agents)
        drafts = [
            self._draft(item, {agent: completions[agent][j] for agent in self.agents})
            for j, item in enumerate(items)
        ]
        held_back = [self._tests(item)[1] for item in items]
        more = [_testing(draft, tests) for draft, tests in zip(drafts, held_back, strict=True)]
        reports = self._run([draft.program for draft in drafts] + more, [*items, *items])
        scored_reports, held_back_reports = reports[: len(items)], reports[len(items) :]
        judgements = [
            self._judgement(draft, report) for draft, report in zip(drafts, scored_reports, strict=True)
        ]
        return [
            judgement if tests is None else _with_held_back(judgement, report)
            for judgement, tests, report in zip(judgements, held_back, held_back_reports, strict=True)
        ]

    def feedback(self, answers: Sequence) -> list[dict[str, str]]:
        """Feedback to each agent on judged answers (item, completions) before its next try.

        The shown tests run once more, without the others, so that the reward's other tests stay unknown.
        """
        if callable(self._feedback):
            return self._feedback(answers)
        programs = [None] * len(answers)
        if self._feedback != "plain":  # "plain" shows no test
            drafts = [self._draft(answer.item, answer.completions) for answer in answers]
            shown = [self._shown(answer.item) for answer in answers]
            programs = [_testing(draft, tests) for draft, tests in zip(drafts, shown, strict=True)]
        return [
            code_feedback.feedback(
                self._feedback,
                answer.item,
                self.agents,
                answer.completions,
                report,
                self._rule,
                self._parsing,
            )
            for answer, report in zip(
                answers, self._run(programs, [answer.item for answer in answers]), strict=True
            )
        ]

    def tools(self) -> tuple[Tool, ...]:
        """``run_tests``, on the tests that feedback may show (`coding.run_tests`)."""
        return (run_tests.tool(self._executor, self._shown),)

    def _run(self, programs: Sequence[Program | None], items: Sequence[CodingItem]) -> list[Report | None]:
        """Reports in order, None where there is no program; all in one call of the executor.

        UserError, which names the problem, for tests that fail whatever the candidate is.
        """
        wanted = [(program, item) for program, item in zip(programs, items, strict=True) if program]
        try:
            reports = iter(self._executor.run([program for program, _ in wanted]) if wanted else [])
        except ValueError:
            for (_, item), outcome in zip(
                wanted, self._executor.try_tests([p for p, _ in wanted]), strict=True
            ):
                if isinstance(outcome, ValueError):
                    raise UserError(f"item {item.task_id!r}: {outcome}") from outcome
            raise
        return [None if program is None else next(reports) for program in programs]

    def _tests(self, item: CodingItem) -> tuple[str, str | None]:
        """Tests of an item that count for the reward, and those held back (None if there are none)."""
        if not self._held_back:
            return item.test, None
        return problem_tests.split(item.test, self._held_back, item.entry_point)

    def _shown(self, item: CodingItem) -> str:
        """Tests of an item that feedback may show: none of those held back."""
        return problem_tests.revealed(self._tests(item)[0], self._revealed, item.entry_point)

    def _draft(self, item: CodingItem, completions: dict[str, str]) -> Draft:
        used = dataclasses.replace(item, test=self._tests(item)[0])
        return reward.compose(used, completions, self.agents, self._parsing)

    def score(self, items: Sequence[CodingItem], completions: dict[str, list[str]]) -> list[dict[str, float]]:
        """Parts and "total" per joint action; see `judge`."""
        return [judgement.scores for judgement in self.judge(items, completions)]

    def normalise(self, scores: dict[str, float]) -> dict[str, float]:
        """`scores` (or means of them) on the 0..100 scale, the total as "return"."""
        return reward.normalise(scores, self.agents)

    def _judgement(self, draft: Draft, report: Report | None) -> Judgement:
        parts = reward.finish(draft, report, self.agents, rule=self._rule, compat=self._compat)
        total = parts.pop("total")
        if report is None:
            return Judgement(parts, total, draft.stop, local=draft.local)
        source = _source(draft.program)
        failures = tuple(report.failures)
        return Judgement(parts, total, report.verdict, failures, source, report.interactions, draft.local)


def _testing(draft: Draft, tests: str | None) -> Program | None:
    """A draft's program with other tests; None if there is no program, or no tests."""
    return dataclasses.replace(draft.program, tests=tests) if draft.program and tests else None


def _with_held_back(judgement: Judgement, report: Report) -> Judgement:
    """The judgement with the share of held-back tests that passed as one more part."""
    part = {"tests_held_back": reward.pass_ratio(report)}
    return dataclasses.replace(judgement, parts=judgement.parts | part)


def _source(program: Program) -> str:
    return "\n\n\n".join(filter(None, [program.prelude.strip(), *program.sources.values()]))
