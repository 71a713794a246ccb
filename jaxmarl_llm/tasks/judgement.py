"""Judgements of joint answers, which every task gives to the rollout and the transcripts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from jaxmarl_llm.utils.errors import UserError

# The earlier joint answers of a conversation, oldest first: {agent: text} each.
History = Sequence[Mapping[str, str]]
# Names that evaluations use for other numbers; parts of the reward cannot have them.
_TAKEN, _TAKEN_STARTS = (
    ("step", "return"),
    ("return_", "pass@", "verdict/", "length/", "truncated/", "tokens/"),
)
# Suffixes of other "return_.." numbers of evaluations: intervals, greedy answers, turns, grades.
_ENDINGS, _GRADE = r"low|high|greedy|turns|turn\d+", r"grade-?\d+"


@dataclasses.dataclass(frozen=True)
class Judgement:
    """One joint action's reward and the reasons for it.

    parts: the reward's named parts. total: on the reward's own scale, often the sum of the parts, None where
    the reward does not apply.
    verdict: the executor's verdict, or the level at which the answer failed before any test.
    failures: short texts, one per failed test. program_source: what ran ('' if nothing did).
    interactions: calls between the agents' programs, as the executor saw them (rows of `Interaction`).
    local: each agent's own reward, by name, if the task gives one; not included in the total.
    done: whether the episode has ended, so no turn follows; only set by sequential tasks.
    """

    parts: dict[str, float]
    total: float | None
    verdict: str = ""
    failures: tuple[str, ...] = ()
    program_source: str = ""
    interactions: tuple[tuple, ...] = ()
    local: dict[str, float] = dataclasses.field(default_factory=dict)
    done: bool = False

    @property
    def scores(self) -> dict[str, float | None]:
        """Parts and total in one dict."""
        return {**self.parts, "total": self.total}


def judge(
    task, items: Sequence, completions: dict[str, list[str]], histories: Sequence[History]
) -> list[Judgement]:
    """The task's judgements of joint answers, in order. Only a sequential task gets the earlier answers."""
    more = (histories,) if is_sequential(task) else ()
    return list(task.judge(items, completions, *more))


def is_sequential(task) -> bool:
    """Whether an answer's effect depends on earlier answers of its conversation (`types.SequentialTask`)."""
    return bool(getattr(task, "sequential", False))


def check_given(items: tuple, agents: tuple[str, ...]) -> None:
    """Raise ValueError unless there is at least one item and one agent, and agents' names differ."""
    if not agents or len(set(agents)) != len(agents):
        raise UserError(f"agents is {agents!r}; allowed: one or more names that differ")
    if not items:
        raise UserError("items is empty; a task needs at least one")


def check_batch(items, completions: dict[str, list[str]], agents: tuple[str, ...]) -> None:
    """Raise ValueError unless there is one completion per agent and item, and no other agent."""
    if set(completions) != set(agents):
        raise UserError(f"completions come from agents {sorted(completions)}, expected {sorted(agents)}")
    for agent, texts in completions.items():
        if len(texts) != len(items):
            raise UserError(f"agent {agent!r} gave {len(texts)} completions for {len(items)} items")


def task_ids(items: Sequence) -> str:
    """The task_ids of some items for an error message, each once."""
    return ", ".join(dict.fromkeys(str(item.task_id) for item in items))


def check_part_names(names: Iterable[str], what: str) -> None:
    """UserError if a part of a reward has a name that evaluations use for something else."""
    for name in names:
        if name in _TAKEN or name.startswith(_TAKEN_STARTS):
            taken = ", ".join((*_TAKEN, *(f"{start}.." for start in _TAKEN_STARTS)))
            raise UserError(f"{what}: a part cannot be named {name!r}; {taken} are names of other results")


def is_statement(word: str) -> bool:
    """Whether a word can be an item's statement: "return_<word>" must not be another result's name."""
    return re.fullmatch(f"{_ENDINGS}|{_GRADE}", word) is None


def is_of_a_kind(name: str) -> bool:
    """Whether a result is a return or pass@1 of the problems of one grade or statement."""
    if name.startswith("pass@1_"):
        return True
    return name.startswith("return_") and re.fullmatch(_ENDINGS, name.removeprefix("return_")) is None
