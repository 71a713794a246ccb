"""Texts that a student learns, with the teachers of each part; one JSON line per text."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence

from jaxmarl_llm.utils import files


@dataclasses.dataclass(frozen=True)
class Part:
    """Bytes ``start`` to ``end`` of a text, which one teacher reads as its own answer to ``messages``."""

    teacher: str
    start: int
    end: int
    messages: tuple[dict[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Text:
    """A text of a student after its prompt, with its parts.

    Attributes:
      agent: name of the student.
      messages: chat messages ({"role", "content"}) that the student reads.
      text: its answer.
      parts: parts with teachers; several teachers of the same bytes are fused. (): only the text is learned.
      group: a name for the report, such as that of a half of the data.
      weight: factor of its loss.
    """

    agent: str
    messages: tuple[dict[str, str], ...]
    text: str
    parts: tuple[Part, ...] = ()
    group: str = ""
    weight: float = 1.0

    def content(self, part: Part) -> str:
        """The text of a part."""
        return self.text.encode()[part.start : part.end].decode()


def whole(teacher: str, text: str, messages: Sequence[dict[str, str]]) -> Part:
    """A part that is all of a text."""
    return Part(teacher, 0, len(text.encode()), tuple(messages))


def of_roles(
    texts: Mapping[str, str],
    written: str,
    teachers: Mapping[str, Sequence[str]],
    read: Mapping[str, Sequence[dict]],
) -> tuple[Part, ...]:
    """Parts of an answer that contains the texts of all roles in sequence (`tasks.centralised.tagged`).

    Args:
      texts: text of each role, in order.
      written: the whole answer.
      teachers: names of the teachers of each role.
      read: what each role has read.
    """
    parts, at, data = [], 0, written.encode()
    for role, text in texts.items():
        mark = f"[{role}]\n".encode()
        start = data.index(mark, at) + len(mark)
        at = start + len(text.strip().encode())
        parts += [Part(teacher, start, at, tuple(read[role])) for teacher in teachers[role] if at > start]
    return tuple(parts)


def write(path, texts: Iterable[Text]) -> None:
    """Write a file of texts, completely or not at all."""
    files.atomic_write_text(path, "".join(json.dumps(dataclasses.asdict(text)) + "\n" for text in texts))


def read(path) -> list[Text]:
    """The texts of a file that `write` wrote."""
    rows = [json.loads(line) for line in files.read_text(path).splitlines()]
    return [Text(**row | {"messages": tuple(row["messages"]), "parts": _parts(row["parts"])}) for row in rows]


def _parts(rows: Sequence[dict]) -> tuple[Part, ...]:
    return tuple(Part(**row | {"messages": tuple(row["messages"])}) for row in rows)


def units(texts: Sequence[Text], teacher: str) -> list[tuple[int, Part]]:
    """What one teacher reads: index of the text and its part, in order."""
    return [(n, part) for n, text in enumerate(texts) for part in text.parts if part.teacher == teacher]


def teachers(texts: Sequence[Text]) -> list[str]:
    """Names of all teachers, in order of first occurrence."""
    return list(dict.fromkeys(part.teacher for text in texts for part in text.parts))
