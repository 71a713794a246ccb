"""The base class of tasks in which every agent writes a whole program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.tasks.judgement import check_batch, check_given
from jaxmarl_llm.tasks.outcomes import STATUSES, Outcome, ProgramJudgement
from jaxmarl_llm.tasks.program_text.answers import program
from jaxmarl_llm.tasks.programs import prompts as program_prompts
from jaxmarl_llm.tasks.programs import version_prompts
from jaxmarl_llm.tasks.programs.prompts import Messages


class ProgramTask:
    """Items, prompts of all phases, and the judge of joint answers, which are one program of each agent.

    A subclass adds `part_names`, `reward_range`, `remeasure`, `solved`, `good`, `normalise`, `source(item)`
    (the code that agents are shown), and:
      _says: a module of prompts with `asked(item)`, `lesson(text, status, score)`, `result(item, outcome)`
        and `explain(item, outcome)`.
      _outcomes(items, programs) -> one `Outcome` each; _reward(outcome); _parts(outcomes); _passes(outcome).
    """

    _says: Any

    def __init__(self, items: Sequence, agents: Sequence[str]):
        self.items, self.agents = tuple(items), tuple(agents)
        check_given(self.items, self.agents)

    def judge(self, items: Sequence, completions: dict[str, list[str]]) -> list[ProgramJudgement]:
        """Judgements of J joint answers; answer j answers items[j] with completions[agent][j].

        All programs are judged in one call. Errors: ValueError for a missing agent or a wrong count.
        """
        check_batch(items, completions, self.agents)
        rows = [(item, completions[agent][j]) for j, item in enumerate(items) for agent in self.agents]
        programs = [program(text, item.entry_point, language(item), self.source(item)) for item, text in rows]
        outcomes = self._outcomes([item for item, _ in rows], programs)
        step = len(self.agents)
        return [self._judgement(outcomes[j : j + step]) for j in range(0, len(outcomes), step)]

    def know(self, items: Sequence, outcomes: Sequence[Outcome], held_out: bool = False) -> None:
        """Reuse outcomes[j] of items[j] when its program is judged again; ``held_out``: in `remeasure`.

        Does nothing here: it is for tasks in which a second judgement of a program may differ from the first.
        """

    def score(self, items: Sequence, completions: dict[str, list[str]]) -> list[dict[str, float]]:
        """Parts and "total" per joint answer; see `judge`."""
        return [judgement.scores for judgement in self.judge(items, completions)]

    def prompts(self, item) -> dict[str, Messages]:
        """Chat messages [{role, content}, …] per agent, the same for all."""
        return {agent: program_prompts.write(self._says.asked(item)) for agent in self.agents}

    def write_with_lessons(
        self, item, lessons: Sequence[tuple[str, str, float]], others: Sequence[tuple[str, str, float]] = ()
    ) -> Messages:
        """LessonL: ask for a program, and show lessons (text, status and score of their programs).

        others: lessons about other items.
        """
        texts, other_texts = ([self._says.lesson(*row) for row in rows] for rows in (lessons, others))
        return program_prompts.write_with_lessons(self._says.asked(item), texts, other_texts)

    def explain(self, item, outcome: Outcome) -> Messages | None:
        """LessonL: ask for a lesson from an outcome; None if no lesson is wanted."""
        return self._says.explain(item, outcome)

    def improve(self, item, outcome: Outcome, reflection: str) -> Messages:
        """Reflexion: ask for the next program; shows the last one and the agent's reflection ('': none)."""
        result = self._says.result(item, outcome)
        return program_prompts.improve(self._says.asked(item), outcome.program, result, reflection)

    def recall(self, item) -> Messages:
        """MapCoder: ask for a technique and a plan."""
        return program_prompts.recall(self._says.asked(item))

    def follow(self, item, plan: str) -> Messages:
        """MapCoder: ask for the program that follows a plan."""
        return program_prompts.follow(self._says.asked(item), plan)

    def repair(self, item, plan: str, outcome: Outcome) -> Messages:
        """MapCoder: ask for a repaired program; shows the plan, the program and its result."""
        result = self._says.result(item, outcome)
        return program_prompts.repair(self._says.asked(item), plan, outcome.program, result)

    def aggregate(self, item, outcomes: Sequence[Outcome]) -> Messages:
        """Mixture of agents: ask for one program made from several; their results are not shown."""
        return program_prompts.aggregate(self._says.asked(item), [outcome.program for outcome in outcomes])

    def given(self, item) -> str:
        """The program given in an item, as the first version; '' if there is none."""
        return ""

    def instruct(self, item, outcome: Outcome | None, examples: version_prompts.Pairs = ()) -> Messages:
        """Experience: ask for what to change in the last version (None: the first); see `version_prompts`."""
        shown = (outcome.program, self._says.result(item, outcome)) if outcome else (None, "")
        return version_prompts.instruct(self._says.asked(item), *shown, examples)

    def carry_out(
        self, item, outcome: Outcome | None, instruction: str, examples: version_prompts.Pairs = ()
    ) -> Messages:
        """Experience: ask for the next version by an instruction."""
        last = outcome.program if outcome else None
        return version_prompts.carry_out(self._says.asked(item), last, instruction, examples)

    def direct(self, item, before: str, after: str) -> Messages:
        """Experience: ask for the single instruction that turns a version into a better one."""
        return version_prompts.direct(self._says.asked(item), before, after)

    def _judgement(self, outcomes: Sequence[Outcome]) -> ProgramJudgement:
        named = dict(zip(self.agents, outcomes, strict=True))
        local = {agent: self._reward(outcome) for agent, outcome in named.items()}
        return ProgramJudgement(
            self._parts(outcomes),
            sum(local.values()) / len(local),
            self._verdict(outcomes),
            failures=tuple(f"{agent}: {outcome.log}" for agent, outcome in named.items() if outcome.log),
            program_source="\n\n".join(f"[{agent}]\n{outcome.program}" for agent, outcome in named.items()),
            local=local,
            outcomes=named,
        )

    def _verdict(self, outcomes: Sequence[Outcome]) -> str:
        """'pass' if a program is what the task asks for; else the status of the program nearest to it."""
        if any(self._passes(outcome) for outcome in outcomes):
            return "pass"
        nearest = min((outcome.status for outcome in outcomes), key=STATUSES.index)
        return "no-faster" if nearest == "ok" else nearest


def language(item) -> str:
    """The language of an item; Python if it names none."""
    return getattr(item, "language", "python")


def shares(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The parts that all these tasks have: the shares of programs that are correct and that can be run."""
    right = sum(outcome.status == "ok" for outcome in outcomes)
    built = sum(outcome.status in ("ok", "wrong") for outcome in outcomes)
    return {"correct": right / len(outcomes), "compiles": built / len(outcomes)}
