"""Questions for search methods: every answer has its own outcome, as programs have in their rounds."""

from __future__ import annotations

from collections.abc import Sequence

from jaxmarl_llm.tasks.judgement import check_batch
from jaxmarl_llm.tasks.outcomes import Outcome, ProgramJudgement
from jaxmarl_llm.tasks.reasoning import answers
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.utils.errors import UserError


class SearchedQuestions(ReasoningTask):
    """A `ReasoningTask` whose agents each give whole answers; a vote picks one at the end.

    An outcome's ``program`` is the parsed answer, its score 1 if right. A search does not use the score: it
    is only for the tables.
    """

    def __init__(self, items: Sequence[ReasoningItem], agents: Sequence[str]):
        super().__init__(items, agents)
        own = [item for item in self.items if item.own_answers or item.clues]
        if own:
            raise UserError(
                f"{own[0].task_id} has clues or answers for single agents; a search has none of these"
            )

    def judge(
        self, items: Sequence[ReasoningItem], completions: dict[str, list[str]]
    ) -> list[ProgramJudgement]:
        """Judgements of J joint answers, with the outcome of every agent's own answer."""
        check_batch(items, completions, self.agents)
        rows = [{agent: completions[agent][j] for agent in self.agents} for j in range(len(items))]
        return [self._outcomes(item, texts) for item, texts in zip(items, rows, strict=True)]

    def remeasure(self, items: Sequence[ReasoningItem], programs: Sequence[str]) -> list[Outcome]:
        """Outcomes of answers, as texts."""
        return [outcome(item, text) for item, text in zip(items, programs, strict=True)]

    def know(self, items: Sequence, outcomes: Sequence[Outcome], held_out: bool = False) -> None:
        """Does nothing: the same answer always has the same outcome."""

    def solved(self, given: Outcome) -> bool:
        """Whether an answer is right; a search may not use it."""
        return given.status == "ok"

    def source(self, item: ReasoningItem) -> str:
        """The question."""
        return item.question

    def _outcomes(self, item: ReasoningItem, texts: dict[str, str]) -> ProgramJudgement:
        named = {agent: outcome(item, text) for agent, text in texts.items()}
        local = {agent: each.score for agent, each in named.items()}
        right = sum(local.values()) / len(local)
        answered = sum(each.status != "no-program" for each in named.values()) / len(named)
        return ProgramJudgement(
            {"right": right, "answered": answered}, right, "judged", local=local, outcomes=named
        )


def outcome(item: ReasoningItem, text: str) -> Outcome:
    """The outcome of a text's answer; it counts as one executed program if there is an answer."""
    given = item.read(text)
    if given is answers.NONE:
        return Outcome("no-program", total=1)
    right = item.right(given, 0)
    return Outcome(
        "ok" if right else "wrong",
        str(given),
        float(right),
        float(right),
        float(right),
        total=1,
        executions=1,
    )
