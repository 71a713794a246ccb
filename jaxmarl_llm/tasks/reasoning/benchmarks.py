"""Public questions from an installed package (`tasks.installed_data`): GSM8K, MATH, BBH, ARC, MMLU-Redux.

The package has only final answers, no solutions. Its test rows are the test split; every eighth of the others
is for validation, the rest for training. Rows without an answer are left out. So are training and validation
questions that occur again in the test split, or in validation: MMLU-Redux and BBH have a few.
"""

from __future__ import annotations

import re

from jaxmarl_llm.tasks import installed_data
from jaxmarl_llm.tasks.reasoning import answers
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem, letters, with_choices
from jaxmarl_llm.utils.errors import UserError

PREFIX = "modelco:"
SETS = ("gsm8k", "math", "bbh", "arc_challenge", "mmlu_redux")
_LETTER = re.compile(r"\(?([A-Z])\)?")
_LISTED = re.compile(r"^\s*\(([A-Z])\)", re.MULTILINE)


def load(name: str, split: str = "all") -> list[ReasoningItem]:
    """The items of one of `SETS`. UserError for any other, and as in `installed_data.rows`."""
    if name not in SETS:
        allowed = ", ".join(f"{PREFIX}{known}" for known in SETS)
        raise UserError(f"source is {PREFIX + name!r}; allowed of that package: {allowed}")
    by_choices = name in ("arc_challenge", "mmlu_redux")
    needed = {"question", "choices", "answer"} if by_choices else {"input", "output"}
    make = _of_choices if by_choices else _of_output
    rows = installed_data.rows(name, needed)
    answered = [
        (n, own, row) for n, (own, row) in enumerate(rows) if row.get("output", row.get("answer")) is not None
    ]
    items = _once([make(f"{name}/{number}", own_split, row) for number, own_split, row in answered])
    return [item for item in items if split in ("all", item.split)]


def _once(items: list[ReasoningItem]) -> list[ReasoningItem]:
    """The items in order, with each question in one split only: test first, then validation."""
    place: dict[str, str] = {}
    for split in ("test", "validation", "train"):
        for item in items:
            if item.split == split:
                place.setdefault(" ".join(item.question.lower().split()), split)
    return [item for item in items if place[" ".join(item.question.lower().split())] == item.split]


def _of_choices(task_id: str, split: str, row: dict) -> ReasoningItem:
    """A question with choices, {name: text}, of which one is right; names that are digits become letters."""
    names, texts = zip(*row["choices"].items(), strict=True)
    options = letters(len(names))
    question, answer = str(row["question"]).strip(), options[names.index(row["answer"])]
    return ReasoningItem(
        task_id, with_choices(question, texts), answer, "choice", options=options, split=split
    )


def _of_output(task_id: str, split: str, row: dict) -> ReasoningItem:
    """A question whose answer is a number, a letter of a listed choice, or a text."""
    question, answer = str(row["input"]).strip(), str(row["output"]).strip()
    listed, letter = tuple(dict.fromkeys(_LISTED.findall(question))), _LETTER.fullmatch(answer)
    if letter and letter.group(1) in listed:
        return ReasoningItem(task_id, question, letter.group(1), "choice", options=listed, split=split)
    kind = "number" if answers.is_number(answer) else "text"
    return ReasoningItem(task_id, question, answer, kind, split=split)
