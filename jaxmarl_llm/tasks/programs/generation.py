"""Code generation: every agent writes the whole function, judged alone, by tests that agents do not see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxmarl_llm.executor import Program, Report
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.programs import generation_prompts
from jaxmarl_llm.tasks.programs.generation_items import GenerationItem, with_given_tests, with_model_tests
from jaxmarl_llm.tasks.programs.prompts import Messages
from jaxmarl_llm.tasks.programs.task import ProgramTask, shares


class GenerationTask(ProgramTask):
    """Problems that ask for a function; see `ProgramTask` for prompts and judging.

    items: `CodingItem`s, whose tests are split in two here, or items with tests written by a model, from
      `generation_items.with_model_tests`.
      executor: runs the tests of all programs of a batch in one call.
      agents: names, one or more that differ.
      held_back: share of an item's given tests that the search does not use.

    A program's score is the number of search tests that it passes, and its author earns the share of tests
    passed; the team earns the mean. Parts: "passed" (mean share of tests passed), "correct" and "compiles"
    (shares of the agents whose program passed all tests or could be run), "best" (largest share of tests
    passed).
    """

    part_names = ("passed", "correct", "compiles", "best")
    reward_range = (0.0, 1.0)
    _says = generation_prompts

    def __init__(self, items: Sequence[CodingItem], executor, agents: Sequence[str], held_back: float = 0.5):
        super().__init__([with_given_tests(item, held_back) for item in items], agents)
        self._executor, self._held_back = executor, held_back

    def remeasure(self, items: Sequence[CodingItem], programs: Sequence[str]) -> list[Outcome]:
        """Outcomes of programs on all tests of the data."""
        return self._run([item.test for item in items], items, programs)

    def solved(self, outcome: Outcome) -> bool:
        """Whether all search tests passed: nothing is left to gain."""
        return outcome.status == "ok"

    def good(self, outcome: Outcome) -> bool:
        """Whether a program needs no repair."""
        return self.solved(outcome)

    def test_prompt(self, item: CodingItem) -> Messages:
        """Ask for tests of a problem; `tested` uses the answers."""
        return generation_prompts.test_prompt(item)

    def tested(self, answers: Mapping[int, str]) -> GenerationTask:
        """The same task with the search tests from answers to `test_prompt`, by index of the item.

        Items without an answer, or without tests in it, keep theirs; see `generation_items.with_model_tests`.
        """
        items = list(self.items)
        for i, text in answers.items():
            items[i] = with_model_tests(items[i], text, self._held_back)
        return GenerationTask(items, self._executor, self.agents, self._held_back)

    def of_agents(self, agents: Sequence[str]) -> GenerationTask:
        """The same task for other agents."""
        return GenerationTask(self.items, self._executor, agents, self._held_back)

    def normalise(self, scores: dict[str, float]) -> dict[str, float]:
        """`scores` (or means of them) in percent, the total as "return"."""
        return {"return" if name == "total" else name: 100.0 * value for name, value in scores.items()}

    def source(self, item: CodingItem) -> str:
        """The text against which the relevance of a lesson is measured: signature and docstring."""
        return item.prompt

    def _outcomes(self, items: Sequence[CodingItem], programs: Sequence[str]) -> list[Outcome]:
        tests = [with_given_tests(item, self._held_back).search for item in items]
        return self._run(tests, items, programs)

    def _run(self, tests, items, programs) -> list[Outcome]:
        """Outcomes of programs on these tests, in one call of the executor; '' stands for no program."""
        rows = list(zip(tests, items, programs, strict=True))
        ready = [_program(*row) for row in rows if row[2].strip()]
        reports = iter(self._executor.run(ready) if ready else [])
        return [
            _outcome(text, next(reports)) if text.strip() else Outcome("no-program") for _, _, text in rows
        ]

    def _reward(self, outcome: Outcome) -> float:
        return outcome.score / outcome.total if outcome.total else 0.0

    def _passes(self, outcome: Outcome) -> bool:
        return self.solved(outcome)

    def _parts(self, outcomes: Sequence[Outcome]) -> dict[str, float]:
        passed = [self._reward(outcome) for outcome in outcomes]
        return {"passed": sum(passed) / len(passed), **shares(outcomes), "best": max(passed)}


def _program(tests: str, item: GenerationItem, text: str) -> Program:
    return Program({"program": text}, item.entry_point, tests, item.prelude)


def _outcome(text: str, report: Report) -> Outcome:
    status = {"pass": "ok", "load-error": "build-error"}.get(report.verdict, "wrong")
    passed, log = float(report.passed), "" if status == "ok" else _log(report)
    ends = dict(low=passed, high=passed)
    return Outcome(
        status, text, passed, **ends, log=log, total=report.total, executions=1, seconds=report.cpu_seconds
    )


def _log(report: Report) -> str:
    """The first failure. It may reveal a test, so prompts show it only for programs that cannot be run."""
    return report.failures[0] if report.failures else report.verdict
