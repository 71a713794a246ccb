"""Check of what `RoundsTask`, `ProgramTask` and `VersionsTask` add to a task: outcomes, and prompts that show them."""

import math
from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tasks.outcomes import ProgramJudgement
from jaxmarl_llm.tasks.types import ProgramTask, RoundsTask, VersionsTask
from jaxmarl_llm.testing.rules import require, require_messages, text_of


def check_rounds(task: RoundsTask, rows: Sequence[tuple], judgements: Sequence[Judgement]) -> None:
    """Check judgements[j] of rows[j], (item, answers), and the prompts that follow from them."""
    for (item, _), judgement in zip(rows, judgements, strict=True):
        require(isinstance(judgement, ProgramJudgement), "judge: outcomes of every program", judgement)
        outcomes, local = judgement.outcomes, judgement.local
        every = tuple(outcomes) == tuple(local) == tuple(task.agents)
        rule = "judge: an outcome and a reward of every agent's program"
        require(every, rule, (tuple(outcomes), tuple(local)))
        mean = sum(local.values()) / len(local)
        same = math.isclose(judgement.total, mean, rel_tol=1e-9, abs_tol=1e-9)
        require(same, f"judge: the total is the mean of the programs' rewards, {mean}", judgement.total)
        for outcome in outcomes.values():
            _check_round_prompts(task, item, outcome)


def _check_round_prompts(task: Any, item: Any, outcome: Any) -> None:
    """Prompts of rounds, with marks in place of other agents' texts."""
    require(isinstance(task.source(item), str), "source: a text", task.source(item))
    lesson, other = ((f"{mark} mark", outcome.status, outcome.score) for mark in ("first", "second"))
    shows = {"write_with_lessons": (task.write_with_lessons(item, [lesson], [other]), (lesson[0], other[0]))}
    if (explain := task.explain(item, outcome)) is not None:
        shows["explain"] = explain, ()
    if isinstance(task, ProgramTask):
        shows |= {
            "improve": (task.improve(item, outcome, "first mark"), ("first mark", outcome.program)),
            "recall": (task.recall(item), ()),
            "follow": (task.follow(item, "first mark"), ("first mark",)),
            "repair": (task.repair(item, "first mark", outcome), ("first mark", outcome.program)),
            "aggregate": (task.aggregate(item, [outcome, outcome]), (outcome.program,)),
        }
    if isinstance(task, VersionsTask):
        marks, shown = ("first mark", "second mark"), [("first mark", "second mark")]
        shows |= {
            "instruct": (task.instruct(item, outcome, shown), (*marks, outcome.program)),
            "carry_out": (
                task.carry_out(item, outcome, "third mark", shown),
                (*marks, "third mark", outcome.program),
            ),
            "direct": (task.direct(item, *marks), marks),
        }
        require(isinstance(task.given(item), str), "given: a program, or an empty text", task.given(item))
    for name, (messages, marks) in shows.items():
        require_messages(messages, f"{name} of {item.task_id}")
        for mark in marks:
            require(mark.strip() in text_of(messages), f"{name}: the prompt shows {mark!r:.40}", messages)
