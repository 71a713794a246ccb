"""Collaborative coding: one agent writes a helper, one the tested function, one reward for both."""

from __future__ import annotations

from collections.abc import Sequence

from jaxmarl_llm.executor import Program, Report
from jaxmarl_llm.tasks import code_prompts, code_reward, step_prompts
from jaxmarl_llm.tasks.code_items import CodingItem
from jaxmarl_llm.tasks.code_reward import Draft
from jaxmarl_llm.tasks.judgement import Judgement, check_batch


class CodingTask:
    """Items, prompts per agent, and the judge.

    Args:
      items: the problems; see `code_data.load_items`.
      executor: its `run(list[Program]) -> list[Report]` judges all programs of a batch in one call.
      agents: names in the order (helper, main), or the name of one agent that works alone (rewards 0..2.1).
      cooperation: whether main cooperates is judged by its text ("paper") or by what it did ("observed"); see
        `code_reward`.
      compat: judge "helper's result ignored" as CoMLRL does, by a pattern that hardly ever matches.
    """

    part_names = code_reward.PART_NAMES

    def __init__(
        self,
        items: Sequence[CodingItem],
        executor,
        agents: Sequence[str] = ("aux", "main"),
        cooperation: str = "paper",
        compat: bool = False,
    ):
        self.items = tuple(items)
        self.agents = tuple(agents)
        self._executor = executor
        self._rule, self._compat = cooperation, compat
        if cooperation not in code_reward.RULES:
            raise ValueError(f"cooperation is {cooperation!r}; allowed: {', '.join(code_reward.RULES)}")
        self.reward_range = code_reward.reward_range(self.agents)
        if len(self.agents) not in (1, 2) or len(set(self.agents)) != len(self.agents):
            raise ValueError(f"agents is {self.agents!r}; allowed: one name, or two that differ")
        if not self.items:
            raise ValueError("items is empty; a coding task needs at least one problem")
        for item in self.items:
            if len(self.agents) == 2 and item.entry_point == code_reward.HELPER:
                raise ValueError(f"item {item.task_id!r}: entry point 'aux' is the helper's name")

    def prompts(self, item: CodingItem) -> dict[str, list[dict[str, str]]]:
        """Chat messages [{role, content}, …] per agent. No agent sees what the others are told or answer."""
        fields = dict(entry_point=item.entry_point, params=item.params)
        if len(self.agents) == 1:
            said = [code_prompts.render(code_prompts.SOLO, item.prompt, **fields)]
        elif steps := step_prompts.parse(item.prompt):
            said = [step_prompts.render(t, steps, **fields) for t in (step_prompts.HELPER, step_prompts.MAIN)]
        else:
            templates = (code_prompts.HELPER, code_prompts.MAIN)
            said = [code_prompts.render(t, item.prompt, **fields) for t in templates]
        return dict(zip(self.agents, said, strict=True))

    def judge(self, items: Sequence[CodingItem], completions: dict[str, list[str]]) -> list[Judgement]:
        """Judgements of J joint actions, in order; action j answers items[j] with completions[agent][j].

        All programs run in one call of the executor. Errors: ValueError for a missing agent or a wrong count.
        """
        check_batch(items, completions, self.agents)
        drafts = [
            code_reward.compose(item, {agent: completions[agent][j] for agent in self.agents}, self.agents)
            for j, item in enumerate(items)
        ]
        programs = [draft.program for draft in drafts if draft.program is not None]
        reports = iter(self._executor.run(programs) if programs else [])
        return [self._judgement(draft, next(reports) if draft.program else None) for draft in drafts]

    def score(self, items: Sequence[CodingItem], completions: dict[str, list[str]]) -> list[dict[str, float]]:
        """Parts and "total" per joint action; see `judge`."""
        return [judgement.scores for judgement in self.judge(items, completions)]

    def normalise(self, scores: dict[str, float]) -> dict[str, float]:
        """`scores` (or means of them) on the 0..100 scale, the total as "return"."""
        return code_reward.normalise(scores, self.agents)

    def _judgement(self, draft: Draft, report: Report | None) -> Judgement:
        parts = code_reward.finish(draft, report, self.agents, rule=self._rule, compat=self._compat)
        total = parts.pop("total")
        if report is None:
            return Judgement(parts, total, draft.stop)
        source = _source(draft.program)
        return Judgement(parts, total, report.verdict, tuple(report.failures), source, report.interactions)


def _source(program: Program) -> str:
    return "\n\n\n".join(filter(None, [program.prelude.strip(), *program.sources.values()]))
