"""Questions for agents of different prices, to learn which agent to ask; the best route is known.

A question's kind can be seen from its wording. Of the kinds ``sum``, ``gift`` and ``trip`` the script
``cheap`` answers only the first correctly, ``mid`` the first two and ``dear`` all. ``routes:two_step`` has a
fourth kind, ``puzzle``, which only ``dear`` answers correctly, and only after reading an answer of ``cheap``.
With the costs .01, .03 and .10 the best routes earn (.99 + .97 + .90) / 3 = .9533, and the best single agent
.90.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.tasks.reasoning.items import ReasoningItem

SOURCES = ("routes", "routes:two_step")
SCRIPTS = {
    "scripted:cheap": ("sum",),
    "scripted:mid": ("sum", "gift"),
    "scripted:dear": ("sum", "gift", "trip"),
}
COSTS = (0.01, 0.03, 0.10)  # of ``cheap``, ``mid`` and ``dear``
FORMS = {
    "sum": ("What is {a} plus {b}?", "Add {a} and {b}.", "Give the sum of {a} and {b}."),
    "gift": (
        "{name} has {a} {things} and is given {b} more. How many {things} has {name}?",
        "A shelf holds {a} {things}. {name} puts {b} more on it. How many {things} are on the shelf?",
        "There were {a} {things}, then {name} brought {b}. How many {things} are there?",
    ),
    "trip": (
        "A train needs {a} minutes to the bridge and {b} from there to the harbour. How long is the journey?",
        "{name} walks {a} minutes, rests, and walks {b} minutes. How long did {name} walk?",
        "The ferry sails {a} minutes out and {b} minutes back. How many minutes does it sail?",
    ),
    "puzzle": (
        "Behind one door is {a}, behind the other {b}. What do both doors hide together?",
        "Two coins weigh {a} and {b}. What does the scale show if both lie on it?",
    ),
}
NAMES = ("Amina", "Bo", "Chidi", "Dana", "Eiji", "Farah")
THINGS = ("apples", "books", "stones", "cups", "keys", "shells")
PER_KIND = 96


def load(source: str) -> list[ReasoningItem]:
    """`PER_KIND` questions of each kind, the kinds in turn; all texts are different."""
    kinds = list(FORMS) if source == "routes:two_step" else list(FORMS)[:-1]
    items = []
    for n in range(PER_KIND):
        for grade, kind in enumerate(kinds, start=1):
            a, b = 2 + n % 12, 3 + (5 * n + n // 12) % 17
            words = dict(a=a, b=b, name=NAMES[n % len(NAMES)], things=THINGS[n // 2 % len(THINGS)])
            forms = FORMS[kind]
            question = forms[n // 4 % len(forms)].format(**words)
            items.append(ReasoningItem(f"{source}/{kind}{n}", question, str(a + b), grade=grade))
    return items


class Answerer:
    """The answers of one of `SCRIPTS` to the questions of `load`; its answer to other questions is 0."""

    def __init__(self, name: str, items: Sequence[Any]):
        self._known, self._dear = SCRIPTS[name], name == "scripted:dear"
        self._items = {item.question: item for item in items}

    def __call__(self, request, draw: int) -> str:
        """The answer to the last message of a request; all draws are equal."""
        text = request.messages[-1]["content"]
        item = next((item for question, item in self._items.items() if question in text), None)
        if item is None:
            return "0"
        kind = item.task_id.partition("/")[2].rstrip("0123456789")
        right = kind in self._known or kind == "puzzle" and self._dear and "cheap wrote:" in text
        return item.answer if right else str(int(item.answer) + 1)
