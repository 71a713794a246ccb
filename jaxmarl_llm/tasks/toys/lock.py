"""A toy task about lessons: only an agent that has tried a lock knows its key and can name it in a lesson.

All locks look alike, so in the first try no agent can do better than chance. After a try an agent reads which
word opens the lock and writes a lesson, which is also one word. In the next round a prompt says nothing about
the lock except the lessons. A team then opens it if its writers name the key and its readers follow, or by
any other code that both share. The task tests only what `systems.lessonl` adds: that lessons are written for
their effect on readers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.judgement import check_batch, check_given
from jaxmarl_llm.tasks.outcomes import Outcome, ProgramJudgement
from jaxmarl_llm.tasks.programs.prompts import Messages
from jaxmarl_llm.tasks.toys.one_word import WORDS, named
from jaxmarl_llm.utils.errors import UserError

AGENTS = ("first", "second")
_ASK = f"Say {', '.join(WORDS[:-1])} or {WORDS[-1]}."
_TOLD = "Lessons: "


@dataclasses.dataclass(frozen=True)
class LockItem:
    """A lock. key: the word that opens it, one of WORDS."""

    task_id: str
    key: str


def load_items(source: str, split: str) -> list[LockItem]:
    """One lock for every key: 'locks', or with a slice 'locks[:2]'.

    Three locks are too few to split: training and both evaluations use the same ones (split 'all'), with
    their own random draws. ValueError for another name or split, or no item.
    """
    name, part = sources.parse(source)
    if name != "locks":
        raise UserError(f"source is {source!r}; allowed for locks: locks")
    if split != "all":
        raise UserError(f"split is {split!r}, which is empty: locks are too few to divide; allowed: all")
    chosen = [LockItem(f"lock/{word}", word) for word in WORDS][part]
    if not chosen:
        raise UserError(f"source {source!r} has no items")
    return chosen


class LockTask:
    """Items, prompts, and the judge of each agent's word; a task for `LessonL`.

    Args:
      items: see `load_items`.
      agents: one or more different names.

    An answer earns its agent 1 if it names the key and no other of WORDS (`one_word.named`), else 0; the team
    earns the mean. Part: ``valid`` (the share of answers that name one of WORDS).
    """

    part_names = ("valid",)
    reward_range = (0.0, 1.0)

    def __init__(self, items: Sequence[LockItem], agents: Sequence[str] = AGENTS):
        self.items, self.agents = tuple(items), tuple(agents)
        check_given(self.items, self.agents)

    def prompts(self, item: LockItem) -> dict[str, Messages]:
        """Chat messages [{role, content}, …] per agent, the same for all agents and locks."""
        return dict.fromkeys(self.agents, _message(_ASK))

    def write_with_lessons(
        self,
        item: LockItem,
        lessons: Sequence[tuple[str, str, float]],
        others: Sequence[tuple[str, str, float]] = (),
    ) -> Messages:
        """LessonL: ask for a word, and show the texts of lessons (text, status, score).

        All locks look alike, so lessons about ``others`` are shown with the rest.
        """
        return _message(f"{_TOLD}{', '.join(text for text, _, _ in (*lessons, *others))}. {_ASK}")

    def explain(self, item: LockItem, outcome: Outcome) -> Messages:
        """LessonL: ask an agent that has tried for a lesson. Its own word is not shown: it helps no one."""
        return _message(f"It is {item.key}. Lesson")

    def judge(self, items: Sequence[LockItem], completions: dict[str, list[str]]) -> list[ProgramJudgement]:
        """Judgements of J joint answers, in order; answer j answers items[j] with completions[agent][j].

        Errors: ValueError for a missing agent or a wrong count.
        """
        check_batch(items, completions, self.agents)
        rows = zip(*(completions[agent] for agent in self.agents), strict=True)
        return [self._judgement(item, answers) for item, answers in zip(items, rows, strict=True)]

    def score(self, items: Sequence[LockItem], completions: dict[str, list[str]]) -> list[dict[str, float]]:
        """Parts and "total" per joint answer; see `judge`."""
        return [judgement.scores for judgement in self.judge(items, completions)]

    def solved(self, outcome: Outcome) -> bool:
        """Whether the lock is open."""
        return outcome.status == "ok"

    def source(self, item: LockItem) -> str:
        """The text against which the relevance of a lesson is measured, the same for all locks."""
        return _ASK

    def normalise(self, scores: dict[str, float]) -> dict[str, float]:
        """`scores` (or means of them) in percent, the total as "return": the share of keys among words."""
        return {"return" if name == "total" else name: 100.0 * value for name, value in scores.items()}

    def _judgement(self, item: LockItem, answers: Sequence[str]) -> ProgramJudgement:
        words = [named(text) for text in answers]
        right = [float(word == item.key) for word in words]
        tried = [
            Outcome(
                "ok" if score else "wrong", word or text.strip(), score, score, score, total=1, executions=1
            )
            for text, word, score in zip(answers, words, right, strict=True)
        ]
        return ProgramJudgement(
            {"valid": sum(map(bool, words)) / len(words)},
            sum(right) / len(right),
            "judged",  # other verdicts would look like failed tests
            local=dict(zip(self.agents, right, strict=True)),
            outcomes=dict(zip(self.agents, tried, strict=True)),
        )


class Follower:
    """A reader that needs no training, for `experts.scripted.Scripted`: it tries a word of a shown lesson.

    Without a lesson it tries a random word; its own lessons are random words.

    seed: for its words, which otherwise depend only on the request and the draw number.
    """

    def __init__(self, seed: int = 0):
        self._seed = seed

    def __call__(self, request: Any, draw: int) -> str:
        """The word."""
        text = request.messages[-1]["content"]
        what = repr((self._seed, text, "" if request.temperature == 0 else request.stream, draw))
        lessons = text.removeprefix(_TOLD).partition(".")[0].split(", ") if text.startswith(_TOLD) else []
        candidates = [word for word in lessons if word in WORDS]
        return random.Random(hashlib.sha256(what.encode()).digest()).choice(candidates or WORDS)


def _message(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def texts() -> list[str]:
    """Texts that together hold every word of all possible prompts."""
    task = LockTask(load_items("locks", "all"))
    tried = Outcome("wrong", WORDS[0])
    chats = [task.write_with_lessons(item, [(word, "ok", 1.0) for word in WORDS]) for item in task.items]
    chats += [task.explain(item, tried) for item in task.items]
    return [message["content"] for messages in chats for message in messages]
