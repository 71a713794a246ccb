"""Scores of answers, shown to agents between turns: never the reward itself.

If the true label were shown beside every answer, copying the one marked right would be optimal, and agents
would learn nothing about the questions. So the score is a verifier's own estimate, or the truth with errors.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence

from jaxmarl_llm.tasks.custom_reward import finite_number
from jaxmarl_llm.tasks.judgement import task_ids
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

NOISED = "noised"
FIELD = "task.shown_score"
# Items, places of the agents in the team, and texts -> a score of each text, 0 to 1.
Scores = Callable[[Sequence[ReasoningItem], Sequence[int], Sequence[str]], list[float]]


def build(name: str, flip: float) -> Scores:
    """The scores that a config names: `NOISED`, or the dotted name of a verifier.

    A verifier is a function of two lists, questions and texts, that returns a number from 0 to 1 for each text. It
    does not get the right answers.

    The scores raise UserCodeError if the verifier raises, UserError if it returns anything else.
    """
    if name == NOISED:
        return lambda items, places, texts: [
            noised(item, place, text, flip) for item, place, text in zip(items, places, texts, strict=True)
        ]
    verifier = dotted.resolve(name, FIELD)

    def scores(items: Sequence[ReasoningItem], places: Sequence[int], texts: Sequence[str]) -> list[float]:
        try:
            given = verifier([item.question for item in items], list(texts))
            numbers = dotted.listed(given)
        except dotted.RAISED as error:
            of = f"{FIELD} {name!r} raised on answers to {task_ids(items)}"
            raise dotted.UserCodeError(f"{of} ({dotted.reason(error)})") from error
        if numbers is None:
            raise UserError(
                f"{FIELD} {name!r} gave {given!r:.80}; expected a list with a number for every text"
            )
        return _checked(name, numbers, texts)

    return scores


def noised(item: ReasoningItem, place: int, text: str, flip: float) -> float:
    """1 for a right answer and 0 for another, flipped with probability ``flip``.

    Whether it is flipped depends only on the question and the answer: equal answers always have equal scores,
    whichever agent gives them, as with a verifier that is mistaken about them.
    """
    answer = item.read(text)
    what = repr((item.task_id, str(answer), item.answer_of(place))).encode()
    (drawn,) = struct.unpack("<Q", hashlib.sha256(what).digest()[:8])
    return float(item.right(answer, place) != (drawn / 2**64 < flip))


def _checked(name: str, scores: Sequence, texts: Sequence[str]) -> list[float]:
    """A verifier's scores as floats; UserError unless there is a number from 0 to 1 for every text."""
    numbers = []
    for score in scores:
        try:
            numbers.append(finite_number(score, "it"))
        except UserError:
            raise UserError(
                f"{FIELD} {name!r} gave {score!r:.80}; expected a number for every text"
            ) from None
    outside = [number for number in numbers if not 0 <= number <= 1]
    if len(numbers) != len(texts) or outside:
        what = f"{outside[0]}" if outside else f"{len(numbers)} numbers for {len(texts)} texts"
        raise UserError(f"{FIELD} {name!r} gave {what}; expected a number from 0 to 1 for every text")
    return numbers
