"""Questions with answers, and where they come from: generators, riddles, files, an installed package."""

from __future__ import annotations

import dataclasses
import decimal
import pathlib
from collections.abc import Mapping

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.reasoning import answers
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

_MOST_CHOICES = 26
_OPTIONAL = ("task_id", "kind", "grade", "hidden", "choices", "options", "split")


@dataclasses.dataclass(frozen=True)
class ReasoningItem:
    """A question that has one answer.

    Attributes:
      task_id: its name.
      question: what all agents read; of choices by letter with a line for each.
      answer: the right one: a number, one of ``options``, or a short text; '' if `answer_of` differs by
        agent.
      kind: how answers are read, one of `answers.KINDS`.
      grade: difficulty, from 1; 0: unknown.
      hidden: what no agent may read: a reference, for critics and simulated partners.
      options: of a choice: capital letters, or words.
      clues: additional text for each agent, by its place in the team; () if all read the same.
      own_answers: the right answer of each agent, if they differ; () if ``answer`` is right for all.
      split: the row's split in a file; '' if not given.
      columns: other fields of its row; a user's own reward function gets them.
    """

    task_id: str
    question: str
    answer: str
    kind: str = "number"
    grade: int = 0
    hidden: str = ""
    options: tuple[str, ...] = ()
    clues: tuple[str, ...] = ()
    own_answers: tuple[str, ...] = ()
    split: str = ""
    columns: Mapping[str, object] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def worded(self) -> bool:
        """Whether the answer is a choice of words that the question itself names."""
        return self.kind == "choice" and any(len(option) > 1 for option in self.options)

    def answer_of(self, place: int) -> str:
        """The right answer of the agent at a place of the team."""
        return self.own_answers[place] if self.own_answers else self.answer

    def read(self, text: str) -> answers.Answer:
        """The answer in an agent's text, see `answers.read`."""
        return answers.read(text, self.kind, self.options)

    def right(self, answer: answers.Answer, place: int) -> bool:
        """Whether an answer is right for the agent at a place; a missing answer never is."""
        return answer is not answers.NONE and answer == self.read(self.answer_of(place))


def from_row(row: Mapping, task_id: str) -> ReasoningItem:
    """The item of a row without `complaints`; ``task_id`` is its name if it has none."""
    choices = row.get("choices") or ()
    kind = row.get("kind") or ("choice" if choices else "number")
    options = letters(len(choices)) if choices else tuple(row.get("options") or ())
    answer = row["answer"]
    if isinstance(answer, float):
        answer = format(decimal.Decimal(repr(answer)), "f")  # without an exponent: 0.00001 and not 1e-05
    return ReasoningItem(
        str(row.get("task_id", task_id)),
        with_choices(row["question"].strip(), choices),
        str(answer).strip(),
        kind,
        int(row.get("grade", 0)),
        row.get("hidden", ""),
        options,
        split=row.get("split", ""),
        columns=sources.other_columns(row, ("question", "answer", *_OPTIONAL)),
    )


def letters(number: int) -> tuple[str, ...]:
    """The first capital letters."""
    return tuple(chr(ord("A") + n) for n in range(number))


def with_choices(question: str, choices) -> str:
    """A question with a line for each choice: a letter and its text."""
    lines = [f"({letter}) {text}" for letter, text in zip(letters(len(choices)), choices, strict=True)]
    return "\n".join([question, *lines])


def complaints(row: Mapping) -> list[str]:
    """What is wrong with the fields of a row of a file, a sentence each."""
    bad = [f"field {name!r} is missing" for name in ("question", "answer") if name not in row]
    if bad:
        return bad
    if not isinstance(row["question"], str) or not row["question"].strip():
        bad.append(f"field 'question' is {row['question']!r:.40}, expected text")
    if not isinstance(row["answer"], str | int | float) or isinstance(row["answer"], bool):
        return [*bad, f"field 'answer' is {row['answer']!r:.40}, expected a number or text"]
    if row.get("kind", "number") not in answers.KINDS:
        bad.append(f"field 'kind' is {row['kind']!r}, expected {', '.join(answers.KINDS)}")
    for name in ("choices", "options"):
        held = row.get(name, [])
        texts = isinstance(held, list) and all(isinstance(text, str) and text for text in held)
        if not texts or len(held) > _MOST_CHOICES:
            bad.append(f"field {name!r} is {held!r:.40}, expected a list of at most {_MOST_CHOICES} texts")
        elif name == "options" and len({text.casefold() for text in held}) < len(held):
            bad.append(
                f"field 'options' is {held!r:.40}, expected texts that differ by more than capital letters"
            )
    if type(row.get("grade", 0)) is not int:
        bad.append(f"field 'grade' is {row['grade']!r}, expected a whole number")
    if not isinstance(row.get("hidden", ""), str):
        bad.append(f"field 'hidden' is {row['hidden']!r:.40}, expected text")
    if row.get("split", "train") not in sources.SPLITS[:3]:
        bad.append(f"field 'split' is {row['split']!r}, expected {', '.join(sources.SPLITS[:3])}")
    bad += sources.id_complaints(row)
    bad += sources.column_complaints(row, ("columns", "clues", "own_answers"))
    return bad or _unreadable(from_row(row, "row"))


def _unreadable(item: ReasoningItem) -> list[str]:
    """Complaints about a right answer that would not be read as an answer."""
    if item.kind == "choice" and not item.options:
        return ["field 'kind' is 'choice': it needs 'choices', texts, or 'options', letters or words"]
    if item.read(item.answer) is answers.NONE or item.kind == "choice" and item.answer not in item.options:
        allowed = f", expected one of {', '.join(item.options)}" if item.kind == "choice" else ""
        return [f"field 'answer' is {item.answer!r:.40}, which is no {item.kind}{allowed}"]
    if item.kind == "number" and not answers.is_number(item.answer):
        form = "1,234, -0.5, 3/4 or 1.5e3"
        return [
            f"field 'answer' is {item.answer!r:.40}, which is more than a number, expected one such as {form}"
        ]
    return []


def load_jsonl(path) -> list[ReasoningItem]:
    """Items of a JSONL file; one UserError lists all bad rows with their line numbers."""
    name = pathlib.Path(path).stem
    items, bad, first_line = [], [], {}
    for number, row, problems in sources.json_lines(files.read_text(path)):
        row = sources.without_nulls(row, _OPTIONAL)
        problems = problems or complaints(row)
        item = None if problems else from_row(row, f"{name}/{number}")
        if item and first_line.setdefault(item.task_id, number) != number:
            problems = [f"task_id {item.task_id!r} was already used in line {first_line[item.task_id]}"]
        if problems:
            bad.append(f"  line {number}: {'; '.join(problems)}")
        else:
            items.append(item)
    if bad:
        raise UserError(f"{path}: {len(bad)} bad row(s)\n" + "\n".join(bad))
    if not items:
        raise UserError(f"{path}: no rows; expected a JSON object on each line, with question and answer")
    return items
