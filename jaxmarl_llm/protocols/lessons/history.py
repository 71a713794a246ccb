"""From what was said to the banks: every lesson with what came of it. Pure functions of a forest.

Rounds, chains and the numbers of turns are those of `protocols.rounds`: programs of round t are turns 2 t,
lessons about them are turns 2 t + 1, and a lesson's parent is its program. `Episode` and `Forest` hold the
same (``items``, ``turns``, ``joints``), and both may be given.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxmarl_llm.protocols.lessons.bank import Entry, adjusted

Relevance = Callable[[Sequence[str], Sequence[str]], list[float]]
Place = tuple[int, int]


def lesson_turn(round_: int) -> int:
    """``Turn.turn`` of the lessons about the programs of a round."""
    return 2 * round_ + 1


def chain_of(said, joint: int) -> int:
    """The number of the chain that a joint answer belongs to: the sample index of its first round."""
    while said.joints[joint].follows is not None:
        joint = said.joints[joint].follows
    return said.turns[said.joints[joint].turns[0]].sample


def scores_under(said) -> Iterator[tuple[int, int, float]]:
    """For every program and every lesson that stood in its prompt: the program's joint answer, the lesson's
    id, the program's score.
    """
    for j, joint in enumerate(said.joints):
        for turn in (said.turns[i] for i in joint.turns):
            score = joint.judgement.outcomes[turn.agent].score
            yield from ((j, lesson, score) for lesson in turn.shown)


@dataclasses.dataclass(frozen=True)
class Banking:
    """How lessons become a bank.

    Attributes:
      source: item -> text that relevance is measured against.
      relevance: (lessons, sources) -> the relevance of each pair, see `lessons.relevance`; None: all 0.
      step, factor: see `lessons.bank.adjusted`.
      pooled: all chains of an item share a bank; else each has its own.
      memory: lessons of earlier problems that every bank begins with, see `lessons.bank.kept`; it must not
        change during a rollout. Their factors stay: scores of different problems cannot be compared.
    """

    source: Callable[[Any], str]
    relevance: Relevance | None
    step: float = 0.1
    factor: str = "released"
    pooled: bool = False
    memory: Sequence[Entry] = ()

    def place(self, said, joint: int) -> Place:
        """Which bank a joint answer belongs to: (item, chain), or (item, 0) where they are pooled."""
        return said.joints[joint].item, 0 if self.pooled else chain_of(said, joint)

    def banks(self, said) -> dict[Place, list[Entry]]:
        """Every bank after all that was said, its lessons from the oldest to the newest."""
        places = dict.fromkeys(self.place(said, j) for j in range(len(said.joints)))
        known = self.remembered(said.items, sorted({item for item, _ in places}))
        found = {place: {entry.id: entry for entry in known[place[0]]} for place in places}
        for round_ in sorted({joint.turn for joint in said.joints}):
            self._adjust(said, round_, found)
            self._append(said, round_, found)
        return {place: list(entries.values()) for place, entries in found.items()}

    def _relevance(self, pairs: Sequence[tuple[str, Any]]) -> list[float]:
        """Of lessons to items, all at once."""
        if self.relevance is None or not pairs:
            return [0.0] * len(pairs)
        lessons, items = zip(*pairs, strict=True)
        return self.relevance(lessons, [self.source(item) for item in items])

    def remembered(self, items: Sequence[Any], places: Sequence[int]) -> dict[int, list[Entry]]:
        """The memory with its relevance to each of some items, by their places."""
        pairs = [(entry.text, items[i]) for i in places for entry in self.memory]
        relevance = iter(self._relevance(pairs))
        return {
            i: [dataclasses.replace(entry, relevance=next(relevance)) for entry in self.memory]
            for i in places
        }

    def _adjust(self, said, round_: int, banks) -> None:
        """Re-weigh the problem's own lessons that a round showed by the programs written under them."""
        under: dict[tuple[Place, int], list[float]] = {}
        for j, lesson, score in scores_under(said):
            if said.joints[j].turn == round_ and lesson >= 0:
                under.setdefault((self.place(said, j), lesson), []).append(score)
        for (place, lesson), scores in under.items():
            bank = banks[place]
            bank[lesson] = adjusted(bank[lesson], scores, step=self.step, factor=self.factor)

    def _append(self, said, round_: int, banks) -> None:
        """Bank the lessons about a round's programs."""
        judged_in = {turn: j for j, joint in enumerate(said.joints) for turn in joint.turns}
        told = [turn for turn in said.turns if turn.turn == lesson_turn(round_)]
        relevance = self._relevance([(turn.text.strip(), said.items[turn.item]) for turn in told])
        for turn, q in zip(told, relevance, strict=True):
            program, item = said.turns[turn.parent], said.items[turn.item]
            joint = judged_in[program.id]
            outcome = said.joints[joint].judgement.outcomes[program.agent]
            banks[self.place(said, joint)][turn.id] = Entry(
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
