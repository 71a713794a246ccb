"""Public questions out of an installed package (`tasks.installed_data`): GSM8K, MATH, BBH, ARC, MMLU-Redux.

The package has final answers only, no solutions. Its test rows are the test; every eighth of the others is for
validation, the rest for training.
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
    """The items of one of `SETS`. UserError for another one, and as `installed_data.rows`."""
    if name not in SETS:
        allowed = ", ".join(f"{PREFIX}{known}" for known in SETS)
        raise UserError(f"source is {PREFIX + name!r}; allowed of that package: {allowed}")
    by_choices = name in ("arc_challenge", "mmlu_redux")
    needed = {"question", "choices", "answer"} if by_choices else {"input", "output"}
    make = _of_choices if by_choices else _of_output
    rows = installed_data.rows(name, needed)
    items = [make(f"{name}/{number}", own_split, row) for number, (own_split, row) in enumerate(rows)]
    return [item for item in items if split in ("all", item.split)]


def _of_choices(task_id: str, split: str, row: dict) -> ReasoningItem:
    """A question with choices, of which one is right."""
    choices, answer = _texts(row["choices"]), row["answer"]
    return ReasoningItem(
        task_id,
        with_choices(str(row["question"]).strip(), choices),
        str(answer),
        "choice",
        options=letters(len(choices)),
        split=split,
    )


def _of_output(task_id: str, split: str, row: dict) -> ReasoningItem:
    """A question whose answer is a number, a letter of those that it lists, or a text."""
    question, answer = str(row["input"]).strip(), str(row["output"]).strip()
    listed, letter = tuple(dict.fromkeys(_LISTED.findall(question))), _LETTER.fullmatch(answer)
    if letter and letter.group(1) in listed:
        return ReasoningItem(task_id, question, letter.group(1), "choice", options=listed, split=split)
    kind = "number" if answers.is_number(answer) else "text"
    return ReasoningItem(task_id, question, answer, kind, split=split)


def _texts(choices) -> list[str]:
    return [str(text) for text in (choices.values() if isinstance(choices, dict) else choices)]
