"""The bank of lessons: which lessons are shown next, and how useful they were (LessonL, arXiv 2505.23946).

Pure functions of texts and measured scores. s(z) is the score of the program that lesson z is about, f(z) its
factor, q(z) its relevance: the similarity of its text to the problem's source.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jaxmarl_llm.memory import greatest
from jaxmarl_llm.utils.errors import UserError

MODES = ("full", "speed_only", "relevance_only", "random", "dealt", "none")
FACTORS = ("released", "cumulative", "off")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A lesson with its origin and its effect.

    Attributes:
      id: id of the turn that wrote it; negative if it was remembered from earlier problems
        (`memory.numbered`).
      item: name of the problem.
      round: of its program, from 0.
      agent: its author.
      text: the lesson.
      status, score: outcome of its program, see `tasks.outcomes.Outcome`; the score is s(z).
      program: the program.
      shown: ids of the lessons in the prompt of its program.
      factor: f(z). relevance: q(z), -1..1.
      weight, uses: sum of the votes of all programs written under it, and their number.
      task: kind of task of the problem; empty in the bank of a problem, and in files of earlier versions.
    """

    id: int
    item: str
    round: int
    agent: str
    text: str
    status: str
    score: float
    program: str = ""
    shown: tuple[int, ...] = ()
    factor: float = 1.0
    relevance: float = 0.0
    weight: float = 0.0
    uses: int = 0
    task: str = ""

    @property
    def value(self) -> float:
        """The benefit of the lesson, s(z) f(z)."""
        return self.score * self.factor

    @property
    def provenance(self) -> dict:
        """The problem, the round, the author, and the task where it is known (`memory.Kept`)."""
        own = {"problem": self.item, "round": self.round, "agent": self.agent}
        return own | ({"task": self.task} if self.task else {})

    def key(self, name: str) -> str:
        """The text of one of its keys: "program", or the empty key for the lesson itself (`memory.Kept`)."""
        return {"": self.text, "program": self.program}[name]

    @classmethod
    def from_row(cls, row: dict) -> "Entry":
        """The lesson of a row of a file (`memory.Kept`)."""
        return cls(**row | {"shown": tuple(row["shown"])})

    @property
    def remembered(self) -> bool:
        """Whether the lesson was kept from earlier problems."""
        return self.id < 0


def adjusted(entry: Entry, scores: Sequence[float], *, step: float = 0.1, factor="released") -> Entry:
    """The entry with its factor updated by the scores of programs that were written under it.

        f(z) = mean_i [1 + step if s(y_i) > s(z) else 1 - step]

    over the programs of the last round that it was shown in (``released``, as LessonL's code does), or over
    all programs ever written under it (``cumulative``, as notes on the paper say). ``off`` leaves f at 1.
    With step 0.1 and three agents f is one of 0.9, 0.9667, 1.0333 and 1.1.

    Raises:
      ValueError: for another ``factor``.
    """
    if factor not in FACTORS:
        raise UserError(f"factor={factor!r}; allowed: {', '.join(FACTORS)}")
    votes = [1 + step if score > entry.score else 1 - step for score in scores]
    if not votes:
        return entry
    weight, uses = entry.weight + sum(votes), entry.uses + len(votes)
    f = {"released": sum(votes) / len(votes), "cumulative": weight / uses, "off": 1.0}[factor]
    return dataclasses.replace(entry, factor=f, weight=weight, uses=uses)


def select(
    bank: Sequence[Entry],
    number: int,
    mode: str = "full",
    *,
    gate: float = 1.1,
    random: np.random.Generator | None = None,
) -> list[Entry]:
    """The lessons to show, k = ``number`` of them at most.

    If the problem has at most k lessons of its own, all of them are shown in every mode except ``none``. If
    it has more, the mode chooses

        full            the ceil(k / 2) of the largest s f among those with s f >= gate, fewer if fewer reach
                        it; the rest of the k by relevance, whatever their outcome
        speed_only      the k of the largest s f among those with s f >= gate
        relevance_only  the k of the largest q
        random          k at random
        none            never any

    Lessons remembered from earlier problems are chosen by relevance alone, or at random: speed-ups of
    different programs, or counts of different tests, cannot be compared, so ``speed_only`` takes none of
    them. They fill the places of the k that the problem's own lessons leave free, and compete for those given
    by relevance.

    Among equal lessons the older one comes first. ``dealt`` is for several readers, see `deal`.

    LessonL's release tests whether rounds times agents, instead of the number of lessons, is at most k. This
    differs only where some program got no lesson: with ``speed_only`` the release then applies the gate even
    to few lessons.

    Args:
      gate: smallest s f with which a lesson is shown for its benefit; 0: any.
      random: generator for mode ``random``.

    Raises:
      ValueError: for another mode.
    """
    if mode not in MODES or mode == "dealt":
        raise UserError(f"mode={mode!r}; allowed: {', '.join(m for m in MODES if m != 'dealt')}")
    if mode == "none":
        return []
    own_lessons = [entry for entry in bank if not entry.remembered]
    if len(own_lessons) <= number:
        chosen = own_lessons
    elif mode == "random":
        chosen = []
    else:
        most = {"full": math.ceil(number / 2), "speed_only": number, "relevance_only": 0}[mode]
        chosen = greatest(own_lessons, most, lambda entry: entry.value, gate)
    if mode == "speed_only":
        return chosen
    taken = {entry.id for entry in chosen}
    rest = [entry for entry in bank if entry.id not in taken]
    left = min(number - len(chosen), len(rest))
    if mode == "random" and left:
        return chosen + [rest[i] for i in sorted(random.choice(len(rest), left, replace=False))]
    return chosen + most_relevant(rest, left)


def most_relevant(entries: Sequence[Entry], number: int) -> list[Entry]:
    """The ``number`` lessons with the largest q, older ones first among equals."""
    return greatest(entries, number, lambda entry: entry.relevance)


def deal(count: int, hands: int, number: int, random: np.random.Generator) -> list[list[int]]:
    """Indices of the lessons for each of several readers, dealt at random and as evenly as possible.

    With at least two of each, no lesson is shown to all ``hands`` readers, so that every shown lesson can be
    compared with what happens without it.

    Args:
      count: lessons in the bank.
      hands: readers.
      number: lessons for each reader, fewer if there are too few.
    """
    # The largest number for which, dealt evenly, no lesson goes to all readers.
    most = min(number, max(count * (hands - 1) // hands, 1)) if hands > 1 else min(number, count)
    times_shown, dealt = np.zeros(count, int), []
    for _ in range(hands):
        # The least shown first; ties are broken at random.
        order = np.lexsort((random.random(count), times_shown))
        chosen = sorted(order[:most].tolist())
        times_shown[chosen] += 1
        dealt.append(chosen)
    return dealt
