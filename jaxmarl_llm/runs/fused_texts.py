"""The texts that a student learns, with who teaches what: a team's own answers, references of its task, or a file."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from jaxmarl_llm.factory import protocols, randomness, rollouts, training
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.fusion import pieces, texts
from jaxmarl_llm.fusion.texts import Part, Text
from jaxmarl_llm.protocols import Episode
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.centralised import tagged
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

ITEMS = 8  # problems that are answered together, whose texts are written together
REFERENCE = "reference"


@dataclasses.dataclass(frozen=True)
class Lesson:
    """What texts are made for.

    Attributes:
      task: the team's task, with the problems to use.
      own: the student's task with the same problems; its agent is the student.
      joint: the student writes all roles one after the other.
      members: names of the team's members that teach.
      others: names of teachers beside them, which read what the member or the student reads.
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
        """Texts of an answer of the team, each part of which its author teaches.

        ``by_agent`` are its texts, ``read`` the messages that each agent has read.
        """
        prompt, group = tuple(self.own.prompts(item)[self.student]), group_of(item)
        if self.joint:
            written = tagged(by_agent)
            taught = {agent: self._of(agent) for agent in by_agent}
            return [Text(self.student, prompt, written, texts.of_roles(by_agent, written, taught, read), group)]
        return [
            Text(self.student, prompt, text, tuple(texts.whole(t, text, read[a]) for t in self._of(a)), group)
            for a, text in by_agent.items()
            if text
        ]

    def _of(self, author: str) -> tuple[str, ...]:
        """Teachers of what a member wrote."""
        return (*((author,) if author in self.members else ()), *self.others)

    def of_text(self, messages: Mapping[str, Sequence[dict]], text: str, group: str) -> Text:
        """A text that all teach; ``messages``: of the student and of the members that read others."""
        prompt = tuple(messages[self.student])
        parts = [texts.whole(name, text, messages.get(name, prompt)) for name in (*self.members, *self.others)]
        return Text(self.student, prompt, text, tuple(parts), group)

    def messages(self, item) -> dict[str, Sequence[dict]]:
        """What the student and every member read of a problem."""
        return dict(self.task.prompts(item)) | dict(self.own.prompts(item))


def group_of(item) -> str:
    """The name of an item's group in the report: its grade."""
    grade = getattr(item, "grade", 0)
    return f"grade {grade}" if grade else "all"


def references(lesson: Lesson) -> list[Text]:
    """The reference answers of the task; ValueError where it has none."""
    answers = getattr(lesson.task, "references", None)
    if answers is None:
        raise UserError("--texts=reference: the team's task has no reference answers; allowed is a .jsonl file, or ''")
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
    """Texts of a JSONL file: text, or texts by role of a student that writes all of them; task_id or messages; group.

    Raises:
      ValueError: listing every bad line with its number.
    """
    items = {str(item.task_id): item for item in lesson.task.items}
    made, bad = [], []
    for number, row, complaints in sources.json_lines(files.read_text(path)):
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
    return errors


def _are_roles(by_role, lesson: Lesson) -> bool:
    return (
        isinstance(by_role, dict)
        and list(by_role) == list(lesson.task.agents)
        and all(isinstance(text, str) for text in by_role.values())
    )


def _are_messages(messages) -> bool:
    each = messages if isinstance(messages, list) else []
    return bool(each) and all(
        isinstance(m, dict) and all(isinstance(m.get(part), str) for part in ("role", "content")) for m in each
    )


class Requests:
    """A protocol that also keeps its requests, by which it is known what every turn has read."""

    def __init__(self, protocol):
        self._protocol, self.kept = protocol, []

    def step(self, state: Episode):
        """The protocol's own requests."""
        requests = self._protocol.step(state)
        self.kept += requests
        return requests

    def observe(self, state: Episode, turns):
        """The protocol's own nodes."""
        return self._protocol.observe(state, turns)


def drawn(
    config,
    team: Team,
    lesson: Lesson,
    folder: pathlib.Path,
    samples: int,
    above: float | None,
    readers: Mapping[str, Any],
    progress: Callable[[int, int], None],
) -> tuple[list[Text], dict[str, int]]:
    """Texts of the team's own answers to the problems of a task, and how many answers were left out, by reason.

    Answers that were cut off, that do not come back from the tokens of everyone who is to read them, and those that earn
    no more than ``above`` (None: all count) are left out. What some problems gave is written to ``folder`` at once, and
    not drawn again.

    Args:
      config: the team's.
      team: its members as they are.
      lesson: what the texts are for.
      folder: where they are kept.
      samples: answers to each problem.
      above: a reward.
      readers: tokenizers of the student and of the other teachers, by name.
      progress: called with problems done and all.
    """
    scorer = TaskScorer.of_team(lesson.task, team, "aligned")
    trainables = [member.trainable for member in team.members]
    key, made, counts = randomness.stream(config, "fusion"), [], {}
    numbers = range(len(lesson.task.items))
    for batch, begin in enumerate(range(0, len(numbers), ITEMS)):
        path = folder / f"{batch:05d}.jsonl"
        if not path.is_file():
            protocol = Requests(protocols.build(config, lesson.task, team, samples))
            forest = rollouts.run(
                protocol,
                team,
                trainables,
                scorer,
                numbers[begin : begin + ITEMS],
                jax.random.fold_in(key, batch),
                params=training.sampling_params(config),
                max_prompt_tokens=config.sampling.max_prompt_tokens,
                long_prompts=config.sampling.long_prompts,
            )
            own, left_out = _of_forest(forest, protocol.kept, lesson, team, above, readers)
            files.atomic_write_text(folder / f"{batch:05d}.json", json.dumps(left_out))
            texts.write(path, own)
        made += texts.read(path)
        for reason, number in files.read_json(folder / f"{batch:05d}.json").items():
            counts[reason] = counts.get(reason, 0) + number
        progress(min(begin + ITEMS, len(numbers)), len(numbers))
    return made, counts


def _of_forest(forest: Forest, requests, lesson: Lesson, team: Team, above, readers) -> tuple[list[Text], dict]:
    """Texts of the last joint answer of every conversation, and the number of those left out by reason."""
    made, left_out = [], dict.fromkeys(("cut off", "not as its tokens", "not above the reward"), 0)
    for chain in forest.chains():
        joint = forest.joints[chain[-1]]
        turns = {forest.turns[i].agent: forest.turns[i] for i in joint.turns}
        if not all(turn.finished for turn in turns.values()):
            left_out["cut off"] += 1
        elif above is not None and not joint.total > above:
            left_out["not above the reward"] += 1
        else:
            by_agent = {agent: turn.text for agent, turn in turns.items()}
            read = {agent: requests[turn.request].messages for agent, turn in turns.items()}
            own = lesson.of_answer(forest.items[joint.item], by_agent, read)
            if all(_readable(text, team, readers) for text in own):
                made += own
            else:
                left_out["not as its tokens"] += 1
    return made, left_out


def _readable(text: Text, team: Team, readers: Mapping[str, Any]) -> bool:
    """Whether a text comes back from the tokens of the student, and each part from those of its teacher."""
    rows = [(text.agent, text.text), *((part.teacher, text.content(part)) for part in text.parts)]
    return all(
        pieces.round_trips(own, readers[name] if name in readers else team[name].tokenizer) for name, own in rows
    )


def held_out(rows: Sequence[Text], share: float) -> tuple[list[Text], list[Text]]:
    """The texts apart from a share of the prompts, and those of that share; which these are follows from the prompts."""

    def place(text: Text) -> float:
        digest = hashlib.sha256(json.dumps(text.messages, sort_keys=True).encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64

    kept = [text for text in rows if place(text) >= share]
    return kept, [text for text in rows if place(text) < share]


def check(rows: Sequence[Text], names: Sequence[str], readers: Mapping[str, Any], field: str) -> None:
    """UserError, with the share, where texts do not come back from the tokens of the student or of a teacher."""
    for name in names:
        own = [text.text for text in rows if text.agent == name]
        own += [text.content(part) for text in rows for part in text.parts if part.teacher == name]
        pieces.check_round_trip(own, readers[name], f"{name!r}", field)


def part_of(part: Part, text: Text) -> tuple[tuple[dict, ...], str]:
    """What a teacher reads of a text, and what it is asked about."""
    return part.messages, text.content(part)
