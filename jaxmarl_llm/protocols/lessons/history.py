"""Build the banks of lessons from a forest: every lesson with its effect. Pure functions.

Rounds, chains and the numbers of turns are those of `protocols.rounds`: programs of round t, and lessons
about them, have the turn index t, and a lesson is of the kind `REMARK`; its parent is its program. A
``forest`` is a `Forest` or an `Episode`: both have ``items``, ``turns`` and ``joints``.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxmarl_llm.forest import REMARK
from jaxmarl_llm.protocols.lessons.bank import Entry, adjusted

Relevance = Callable[[Sequence[str], Sequence[str]], list[float]]
Place = tuple[int, int]


def chain_of(forest, joint: int) -> int:
    """The number of the chain that a joint answer belongs to: the sample index of its first round."""
    while forest.joints[joint].follows is not None:
        joint = forest.joints[joint].follows
    return forest.turns[forest.joints[joint].turns[0]].sample


def scores_under(forest) -> Iterator[tuple[int, int, float]]:
    """Yield the index of the joint answer, the lesson's id and the program's score, for every program and
    every lesson in its prompt.
    """
    for j, joint in enumerate(forest.joints):
        for turn in (forest.turns[i] for i in joint.turns):
            score = joint.judgement.outcomes[turn.agent].score
            yield from ((j, lesson, score) for lesson in turn.shown)


@dataclasses.dataclass(frozen=True)
class BankBuilder:
    """Options for building banks from lessons, and the functions that do so.

    Attributes:
      source: item -> text that relevance is measured against.
      relevance: (lessons, sources) -> the relevance of each pair, see `lessons.relevance`; None: all 0.
      step, factor: see `lessons.bank.adjusted`.
      pooled: all chains of an item share a bank; else each has its own.
      memory: lessons of earlier problems with which every bank begins, see `lessons.bank.kept`; it must not
        change during a rollout. Their factors stay fixed: scores of different problems cannot be compared.
    """

    source: Callable[[Any], str]
    relevance: Relevance | None
    step: float = 0.1
    factor: str = "released"
    pooled: bool = False
    memory: Sequence[Entry] = ()

    def place(self, forest, joint: int) -> Place:
        """Which bank a joint answer belongs to: (item, chain), or (item, 0) where they are pooled."""
        return forest.joints[joint].item, 0 if self.pooled else chain_of(forest, joint)

    def banks(self, forest) -> dict[Place, list[Entry]]:
        """Every bank after all turns, its lessons from the oldest to the newest."""
        places = dict.fromkeys(self.place(forest, j) for j in range(len(forest.joints)))
        memories = self.remembered(forest.items, sorted({item for item, _ in places}))
        banks = {place: {entry.id: entry for entry in memories[place[0]]} for place in places}
        for round_ in sorted({joint.turn for joint in forest.joints}):
            self._adjust(forest, round_, banks)
            self._append(forest, round_, banks)
        return {place: list(entries.values()) for place, entries in banks.items()}

    def _relevance(self, pairs: Sequence[tuple[str, Any]]) -> list[float]:
        """Relevance of lessons to items, all pairs at once."""
        if self.relevance is None or not pairs:
            return [0.0] * len(pairs)
        lessons, items = zip(*pairs, strict=True)
        return self.relevance(lessons, [self.source(item) for item in items])

    def remembered(self, items: Sequence[Any], places: Sequence[int]) -> dict[int, list[Entry]]:
        """The memory's lessons with their relevance to the items at some places, by place."""
        pairs = [(entry.text, items[i]) for i in places for entry in self.memory]
        relevance = iter(self._relevance(pairs))
        return {
            i: [dataclasses.replace(entry, relevance=next(relevance)) for entry in self.memory]
            for i in places
        }

    def _adjust(self, forest, round_: int, banks) -> None:
        """Adjust the problem's own lessons that a round showed, by the programs written under them."""
        scores_by_lesson: dict[tuple[Place, int], list[float]] = {}
        for j, lesson, score in scores_under(forest):
            if forest.joints[j].turn == round_ and lesson >= 0:
                scores_by_lesson.setdefault((self.place(forest, j), lesson), []).append(score)
        for (place, lesson), scores in scores_by_lesson.items():
            bank = banks[place]
            bank[lesson] = adjusted(bank[lesson], scores, step=self.step, factor=self.factor)

    def _append(self, forest, round_: int, banks) -> None:
        """Add the lessons about a round's programs to their banks."""
        judged_in = {turn: j for j, joint in enumerate(forest.joints) for turn in joint.turns}
        lessons = [turn for turn in forest.turns if turn.stage == (round_, REMARK)]
        relevance = self._relevance([(turn.text.strip(), forest.items[turn.item]) for turn in lessons])
        for turn, q in zip(lessons, relevance, strict=True):
            program, item = forest.turns[turn.parent], forest.items[turn.item]
            joint = judged_in[program.id]
            outcome = forest.joints[joint].judgement.outcomes[program.agent]
            banks[self.place(forest, joint)][turn.id] = Entry(
                id=turn.id,
                item=str(item.task_id),
                round=round_,
                agent=turn.agent,
                text=turn.text.strip(),
                status=outcome.status,
                score=outcome.score,
                program=outcome.program,
                shown=program.shown,
                relevance=q,
            )
