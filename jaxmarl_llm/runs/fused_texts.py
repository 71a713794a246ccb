"""The texts that a student learns, with their teachers: from references of a task, or from a file."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmarl_llm.fusion import pieces, texts
from jaxmarl_llm.fusion.texts import Part, Text
from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.centralised import tagged
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

REFERENCE = "reference"
_FIELDS = ("text", "texts", "task_id", "messages", "group")  # in a line of a file


@dataclasses.dataclass(frozen=True)
class Lesson:
    """What texts are made for. Unpaired surrogates, which have no bytes, become "?", as tokenizers read them.

    Attributes:
      task: the team's task, with the problems to use.
      own: the student's task with the same problems; its agent is the student.
      joint: the student writes all roles one after the other.
      members: names of the team's members that teach.
      others: names of further teachers, which read what the member or the student reads.
    """

    task: Any
    own: Any
    joint: bool
    members: tuple[str, ...]
    others: tuple[str, ...] = ()

    @property
    def student(self) -> str:
        """The student's name."""
        return self.own.agents[0]

    def of_answer(self, item, by_agent: Mapping[str, str], read: Mapping[str, Sequence[dict]]) -> list[Text]:
        """Texts of an answer of the team; the author of each part teaches it.

        ``by_agent``: its texts; ``read``: the messages that each agent has read.
        """
        prompt, group = tuple(self.own.prompts(item)[self.student]), group_of(item)
        by_agent = {agent: files.safe_text(text) for agent, text in by_agent.items()}
        if self.joint:
            written = tagged(by_agent)
            taught = {agent: self._of(agent) for agent in by_agent}
            return [
                Text(self.student, prompt, written, texts.of_roles(by_agent, written, taught, read), group)
            ]
        return [
            Text(self.student, prompt, text, tuple(texts.whole(t, text, read[a]) for t in self._of(a)), group)
            for a, text in by_agent.items()
            if text
        ]

    def _of(self, author: str) -> tuple[str, ...]:
        """Teachers of what a member wrote."""
        return (*((author,) if author in self.members else ()), *self.others)

    def of_text(self, messages: Mapping[str, Sequence[dict]], text: str, group: str) -> Text:
        """A text that all teach; ``messages``: of the student and of members whose messages differ."""
        prompt, text = tuple(messages[self.student]), files.safe_text(text)
        parts = [
            texts.whole(name, text, messages.get(name, prompt)) for name in (*self.members, *self.others)
        ]
        return Text(self.student, prompt, text, tuple(parts), group)

    def messages(self, item) -> dict[str, Sequence[dict]]:
        """What the student and every member read of a problem."""
        return dict(self.task.prompts(item)) | dict(self.own.prompts(item))


def group_of(item) -> str:
    """The name of an item's group in the report: its grade."""
    grade = getattr(item, "grade", 0)
    return f"grade {grade}" if grade else "all"


def references(lesson: Lesson) -> list[Text]:
    """The reference answers of the task; ValueError if it has none."""
    answers = getattr(lesson.task, "references", None)
    if answers is None:
        raise UserError(
            "--texts=reference: the team's task has no reference answers; allowed is a .jsonl file, or ''"
        )
    made: list[Text] = []
    for item in lesson.task.items:
        by_agent = answers(item)
        if by_agent is None:
            continue
        read = lesson.messages(item)
        if lesson.joint:
            made += lesson.of_answer(item, by_agent, read)
        else:
            every = [t for own in by_agent.values() for t in ([own] if isinstance(own, str) else own)]
            made += [lesson.of_text(read, text, group_of(item)) for text in dict.fromkeys(every)]
    return made


def of_file(path: str, lesson: Lesson, field: str) -> list[Text]:
    """Texts of a JSONL file: text, or texts by role if the student writes all; task_id or messages; group.

    Raises:
      ValueError: listing every bad line with its number.
    """
    items = {str(item.task_id): item for item in lesson.task.items}
    made, bad = [], []
    for number, row, complaints in sources.json_lines(files.read_text(path)):
        row = sources.without_nulls(row, _FIELDS)
        complaints = complaints or _complaints(row, lesson, items)
        if complaints:
            bad.append(f"  line {number}: {'; '.join(complaints)}")
            continue
        group = str(row.get("group", pathlib.Path(path).stem))
        item = items.get(str(row.get("task_id")))
        if "texts" in row:
            own = lesson.of_answer(item, row["texts"], lesson.messages(item))
            made += [dataclasses.replace(text, group=group) for text in own]
        else:
            read = lesson.messages(item) if item is not None else {lesson.student: row["messages"]}
            made.append(lesson.of_text(read, row["text"], group))
    if bad:
        raise UserError(f"{field}={path!r}: {len(bad)} bad line(s)\n" + "\n".join(bad))
    return made


def _complaints(row: Mapping, lesson: Lesson, items: Mapping[str, Any]) -> list[str]:
    """All that is wrong with a row."""
    errors = []
    if ("text" in row) == ("texts" in row):
        errors.append("needs either a text or texts by role")
    elif "text" in row and not (isinstance(row["text"], str) and row["text"]):
        errors.append(f"text={row['text']!r:.40}, expected text that is not empty")
    elif "texts" in row and not (lesson.joint and _are_roles(row["texts"], lesson)):
        allowed = ", ".join(lesson.task.agents) if lesson.joint else "none: this student answers as one agent"
        errors.append(f"texts={row['texts']!r:.40}, allowed are texts of all roles: {allowed}")
    if ("task_id" in row) == ("messages" in row):
        errors.append("needs either a task_id or messages")
    elif "task_id" in row and str(row["task_id"]) not in items:
        errors.append(f"task_id={row['task_id']!r} is no problem of these")
    elif "messages" in row and not _are_messages(row["messages"]):
        errors.append('messages must be a list of {"role": .., "content": ..} with one or more entries')
    elif "messages" in row and "texts" in row:
        errors.append("texts by role need a task_id")
    return errors + sources.id_complaints(row, ("group",))


def _are_roles(by_role, lesson: Lesson) -> bool:
    return (
        isinstance(by_role, dict)
        and list(by_role) == list(lesson.task.agents)
        and all(isinstance(text, str) for text in by_role.values())
    )


def _are_messages(messages) -> bool:
    each = messages if isinstance(messages, list) else []
    return bool(each) and all(
        isinstance(m, dict) and all(isinstance(m.get(part), str) for part in ("role", "content"))
        for m in each
    )


def fitting(rows: Sequence[Text], tokenizer, longest: int) -> list[Text]:
    """The texts that a student could draw: at most ``longest`` tokens, including the EOS token."""
    return [text for text in rows if len(tokenizer.encode(text.text)) < longest]


def held_out(rows: Sequence[Text], share: float) -> tuple[list[Text], list[Text]]:
    """The texts split by prompt: those to learn, and a held-out ``share``, which the prompts determine."""

    def place(text: Text) -> float:
        digest = hashlib.sha256(json.dumps(text.messages, sort_keys=True).encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64

    kept = [text for text in rows if place(text) >= share]
    return kept, [text for text in rows if place(text) < share]


def check(rows: Sequence[Text], names: Sequence[str], readers: Mapping[str, Any], field: str) -> None:
    """UserError, with the share, if decoded tokens of the student or a teacher do not return the texts."""
    for name in names:
        own = [text.text for text in rows if text.agent == name]
        own += [text.content(part) for text in rows for part in text.parts if part.teacher == name]
        pieces.check_round_trip(own, readers[name], f"{name!r}", field)


def part_of(part: Part, text: Text) -> tuple[tuple[dict, ...], str]:
    """The messages that a teacher reads, and the text that it predicts."""
    return part.messages, text.content(part)
