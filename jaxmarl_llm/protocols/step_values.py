"""Values of begun texts for a search over steps (`protocols.step_search`) that need no training.

A value is a function of places, `Values`. Here are the orders with which a learned value is compared,
functions of the user's own, and the question to another agent of the team.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxmarl_llm.protocols.types import item_name
from jaxmarl_llm.tasks.custom_reward import finite_number
from jaxmarl_llm.tasks.reasoning import answers
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

Messages = Sequence[dict[str, str]]
_ASK = "How likely is it that this becomes a right answer? Write a number from 0 to 1 only."


class Place(NamedTuple):
    """A begun answer: its item, the chat before it, its text, and the text's steps.

    ``leaf``: the text is the whole answer.
    """

    item: Any
    messages: Messages
    text: str
    steps: int
    leaf: bool = False


class Valued(NamedTuple):
    """h of a place, and the tokens that a model read for it."""

    value: float
    tokens: int = 0


Values = Callable[[Sequence[Place]], list[Valued]]


def nothing(places: Sequence[Place]) -> list[Valued]:
    """The same for all: f is the reward so far, and the oldest is next among equals."""
    return [Valued(0.0) for _ in places]


def longest(places: Sequence[Place]) -> list[Valued]:
    """The number of steps: a search with it is depth first, one answer after the other."""
    return [Valued(float(place.steps)) for place in places]


def at_random(seed: int) -> Values:
    """A number from 0 to 1 that is determined by the seed, the item and the text."""

    def values(places: Sequence[Place]) -> list[Valued]:
        digests = [
            hashlib.sha256(repr((seed, item_name(place.item), place.text)).encode()).digest()
            for place in places
        ]
        return [Valued(int.from_bytes(digest[:6]) / 2**48) for digest in digests]

    return values


def of_function(
    function: Callable[[Sequence[str], Sequence[str]], Sequence[float]], name: str = "the function"
) -> Values:
    """Values from a function of questions and texts; errors call it ``name``.

    Raises:
      UserCodeError: with the items, if it raises.
      UserError: unless it gives a finite number for each text.
    """

    def values(places: Sequence[Place]) -> list[Valued]:
        questions, texts = [place.messages[-1]["content"] for place in places], [p.text for p in places]
        items = ", ".join(dict.fromkeys(item_name(place.item) for place in places))
        try:
            given = function(questions, texts)
            numbers = dotted.listed(given)
        except UserError:
            raise
        except dotted.RAISED as error:
            raise dotted.UserCodeError(f"{name} raised on {items} ({dotted.reason(error)})") from error
        if numbers is None or len(numbers) != len(texts):
            raise UserError(f"{name} gave {given!r:.80} for {len(texts)} texts; expected a number for each")
        names = [f"{name}: a number for {item_name(place.item)}" for place in places]
        return [Valued(finite_number(number, what)) for number, what in zip(numbers, names, strict=True)]

    return values


def question(place: Place) -> list[dict[str, str]]:
    """The prompt for an agent that rates the beginning of another agent's answer."""
    *before, last = place.messages
    whole = "The answer" if place.leaf else "An answer begins"
    content = f"{last['content']}\n\n{whole}:\n{place.text.rstrip()}\n\n{_ASK}"
    return [*before, {"role": "user", "content": content}]


def read(text: str) -> float:
    """The number in the reply to `question`, clipped to 0..1; 0 without a number."""
    number = answers.read(text, "number")
    return 0.0 if number is None else float(min(max(number, 0), 1))
