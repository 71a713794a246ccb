"""The bank of lessons: which are shown next, and how useful they were found (LessonL, arXiv 2505.23946).

Pure functions of what was said and measured. s(z) is the score of the program that lesson z is about, f(z)
its factor, q(z) its relevance: the likeness of its text to the problem's source.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

MODES = ("full", "speed_only", "relevance_only", "random", "dealt", "none")
FACTORS = ("released", "cumulative", "off")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A lesson with where it comes from and what came of it.

    Attributes:
      id: number of the turn that said it, or of one kept from earlier problems (negative, see `kept`).
      item: name of the problem.
      round: of its program, from 0.
      agent: its author.
      text: the lesson.
      status, score: outcome of its program, see `tasks.outcomes.Outcome`; the score is s(z).
      program: the program.
      shown: ids of the lessons that stood in the prompt of its program.
      factor: f(z). relevance: q(z), -1..1.
      weight, uses: sum of the votes of all programs written under it, and their number.
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

    @property
    def benefit(self) -> float:
        """s(z) f(z)."""
        return self.score * self.factor

    @property
    def remembered(self) -> bool:
        """Whether it was kept from earlier problems."""
        return self.id < 0


def adjusted(entry: Entry, scores: Sequence[float], *, step: float = 0.1, factor="released") -> Entry:
    """The entry after programs of these scores were written under it.

        f(z) = mean_i [1 + step if s(y_i) > s(z) else 1 - step]

    over the programs of the last round that it was shown in (``released``, as LessonL's code does), or over
    all programs ever written under it (``cumulative``, as notes on the paper say). ``off`` leaves f at 1.
    With step 0.1 and three agents f is one of 0.9, 0.9667, 1.0333 and 1.1.

    Raises:
      ValueError: for another ``factor``.
    """
    if factor not in FACTORS:
        raise ValueError(f"factor={factor!r}; allowed: {', '.join(FACTORS)}")
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

    If the problem has at most k lessons of its own, all of them are shown, whatever the mode (but ``none``).
    Of more

        full            the ceil(k / 2) of the greatest s f among those with s f >= gate, fewer if fewer have
                        it; the rest of the k by relevance, whatever their outcome
        speed_only      the k of the greatest s f among those with s f >= gate
        relevance_only  the k of the greatest q
        random          k at random
        none            none, ever

    Lessons remembered from earlier problems come in by relevance alone, or at random: speed-ups of different
    programs, or counts of different tests, cannot be compared, so ``speed_only`` takes none of them. They
    fill what the problem's own lessons leave of the k, and compete for the places that go by relevance.

    Of equal ones the older comes first. ``dealt`` is not for one reader but for several, see `deal`.

    LessonL's release asks whether rounds times agents, and not lessons, are at most k. There is a difference
    only where some program got no lesson: the release then gates the few there are with ``speed_only``.

    Args:
      gate: least s f of a lesson that is shown for its benefit; 0: any.
      random: of mode ``random``.

    Raises:
      ValueError: for another mode.
    """
    if mode not in MODES or mode == "dealt":
        raise ValueError(f"mode={mode!r}; allowed: {', '.join(m for m in MODES if m != 'dealt')}")
    if mode == "none":
        return []
    own = [entry for entry in bank if not entry.remembered]
    if len(own) <= number:
        chosen = own
    elif mode == "random":
        chosen = []
    else:
        by_benefit = sorted(own, key=lambda entry: -entry.benefit)
        useful = [entry for entry in by_benefit if entry.benefit >= gate]
        most = {"full": math.ceil(number / 2), "speed_only": number, "relevance_only": 0}[mode]
        chosen = useful[:most]
    if mode == "speed_only":
        return chosen
    taken = {entry.id for entry in chosen}
    rest = [entry for entry in bank if entry.id not in taken]
    left = min(number - len(chosen), len(rest))
    if mode == "random" and left:
        return chosen + [rest[i] for i in sorted(random.choice(len(rest), left, replace=False))]
    return chosen + most_relevant(rest, left)


def most_relevant(entries: Sequence[Entry], number: int) -> list[Entry]:
    """The ``number`` of the greatest q, of equal ones the older first."""
    return sorted(entries, key=lambda entry: -entry.relevance)[:number]


def deal(count: int, hands: int, number: int, random: np.random.Generator) -> list[list[int]]:
    """Indices of the lessons that each of several readers is shown, as evenly as can be, at random.

    No lesson is shown to all of ``hands`` readers if there are two or more of both, so that every lesson that
    is shown can be told from what happens without it.

    Args:
      count: lessons in the bank.
      hands: readers.
      number: lessons for each reader, fewer if there are too few.
    """
    # So many that, dealt evenly, none comes to all.
    most = min(number, max(count * (hands - 1) // hands, 1)) if hands > 1 else min(number, count)
    dealt, found = np.zeros(count, int), []
    for _ in range(hands):
        # The least shown first; noise decides between equals.
        order = np.lexsort((random.random(count), dealt))
        own = sorted(order[:most].tolist())
        dealt[own] += 1
        found.append(own)
    return found


def kept(entries: Sequence[Entry], limit: int = 0) -> list[Entry]:
    """A bank to begin other problems with: numbered -1, -2, .. in order, of more than ``limit`` the newest.

    ``limit`` 0: all. What was shown to their authors is forgotten, as those numbers mean nothing any more.
    """
    last = list(entries)[-limit:] if limit else list(entries)
    return [dataclasses.replace(entry, id=-1 - n, shown=()) for n, entry in enumerate(last)]
