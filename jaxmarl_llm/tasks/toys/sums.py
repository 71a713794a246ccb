"""Coding problems that tiny models can learn in a minute, and the programs that such models write.

All problems ask to add two numbers. A model of `built_models` writes functions of one line, from the
beginnings and ends in `lines`, and does not know which function is requested. So a quick run that tests the
prompts, the sandbox and the reward of all coding problems also shows a rising return.
"""

from __future__ import annotations

from jaxmarl_llm.tasks.coding import published
from jaxmarl_llm.tasks.coding.items import CodingItem, item_from_row
from jaxmarl_llm.tasks.coding.roles import HELPER

SOURCE = "sums"
_ENTRY_POINT = "total"
_THINGS = {
    "train": ("apples", "boats", "coins", "doors"),
    "validation": ("eggs", "flags", "gates", "hats"),
    "test": ("keys", "lamps", "maps", "nuts"),
}
_PROMPT = f'''def {_ENTRY_POINT}(a, b):
    """Return how many {{things}} there are, a of them here and b of them there."""
'''
_BEGINNINGS = tuple(f"def {name}(a, b):\n    return " for name in (HELPER, _ENTRY_POINT))
_CALL = f"{HELPER}(a, b)"
_ENDS = ("a", "b", "a + b", "a - b", "a * b", _CALL, f"a + {_CALL}", f"{_CALL} - b")


def load(split: str = "all") -> list[CodingItem]:
    """The problems of a split, four per split, or of all splits."""
    items = []
    for number, (own_split, thing) in enumerate((s, t) for s, things in _THINGS.items() for t in things):
        pairs = [(number + 2, 3), (10, number), (4, 4), (0, number + 1)]
        asserts = "".join(f"    assert candidate({a}, {b}) == {a + b}\n" for a, b in pairs)
        row = {"task_id": f"{SOURCE}/{thing}", "prompt": _PROMPT.format(things=thing), "split": own_split}
        row |= {"test": f"def check(candidate):\n{asserts}", "entry_point": _ENTRY_POINT}
        items.append(item_from_row(row))
    return [item for item in items if split in ("all", item.split)]


def lines() -> tuple[str, ...]:
    """The parts of a program: beginnings, then ends."""
    return (*_BEGINNINGS, *_ENDS)


def habits(start: str, end: str) -> dict[str, tuple[str, ...]]:
    """The parts that may follow each part of a program, from ``start`` to ``end``."""
    return {start: _BEGINNINGS, **dict.fromkeys(_BEGINNINGS, _ENDS), **dict.fromkeys(_ENDS, (end,))}


def texts() -> tuple[str, ...]:
    """Texts with the words of prompts (`published`), except the words of single problems."""
    return published.HELPER, published.MAIN
