"""Generated questions: sums of numbers and sums in words, in grades of difficulty.

A pair of numbers occurs once, in one order, so that no split has ``4 + 3`` where another has ``3 + 4``.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable

from jaxmarl_llm.tasks.reasoning.items import ReasoningItem

MOST = 240  # questions of a grade
NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gina", "Hugo")
THINGS = ("apples", "books", "coins", "eggs", "flowers", "keys", "shells", "stamps")

Numbers = tuple[int, ...]


def sums() -> list[ReasoningItem]:
    """Grades: 1, sums of one digit; 2, products of one digit; 3, sums of two digits; 4, ``a + b - c`` of two."""
    digits, large = range(1, 10), range(10, 100)
    grades: tuple[tuple[Iterable[Numbers], Callable, Callable], ...] = (
        (_pairs(digits), lambda a, b: f"{a} + {b}", lambda a, b: a + b),
        (_pairs(digits), lambda a, b: f"{a} * {b}", lambda a, b: a * b),
        (_pairs(large), lambda a, b: f"{a} + {b}", lambda a, b: a + b),
        (_triples(large), lambda a, b, c: f"{a} + {b} - {c}", lambda a, b, c: a + b - c),
    )
    items = []
    for grade, (numbers, text, value) in enumerate(grades, 1):
        for chosen in _chosen(numbers, f"sums {grade}"):
            question = f"What is {text(*chosen)}?"
            task_id = f"sums/{grade}/{'_'.join(map(str, chosen))}"
            items.append(ReasoningItem(task_id, question, str(value(*chosen)), grade=grade))
    return items


def halves(item: ReasoningItem) -> dict[str, str]:
    """For agents that each learn a half: ``first`` the odd grades, ``second`` the even ones."""
    return {"first" if item.grade % 2 else "second": item.answer}


def words() -> list[ReasoningItem]:
    """Grades: 1, one step; 2, the larger of two numbers; 3, two steps."""
    grades = (
        (_pairs(range(2, 20)), _one_step),
        (_pairs(range(10, 100), equal=False), _larger),
        (_triples(range(2, 20)), _two_steps),
    )
    items = []
    for grade, (numbers, write) in enumerate(grades, 1):
        for number, chosen in enumerate(_chosen(numbers, f"words {grade}")):
            who = NAMES[number % len(NAMES)]
            other = NAMES[(number + 3) % len(NAMES)]
            question, answer = write(who, other, THINGS[number // len(NAMES) % len(THINGS)], chosen)
            task_id = f"words/{grade}/{'_'.join(map(str, chosen))}"
            items.append(ReasoningItem(task_id, question, str(answer), grade=grade))
    return items


def _one_step(who: str, other: str, things: str, numbers: Numbers) -> tuple[str, int]:
    a, b = numbers
    if a > b:
        return (
            f"{who} has {a} {things} and gives {b} to {other}. How many {things} does {who} have now?",
            a - b,
        )
    return (
        f"{who} has {a} {things} and gets {b} more from {other}. How many {things} does {who} have now?",
        a + b,
    )


def _larger(who: str, other: str, things: str, numbers: Numbers) -> tuple[str, int]:
    a, b = numbers
    return f"{who} has {a} {things} and {other} has {b} {things}. How many does the one with more have?", max(
        numbers
    )


def _two_steps(who: str, other: str, things: str, numbers: Numbers) -> tuple[str, int]:
    a, b, c = numbers
    start = f"{who} has {a} {things} and {other} has {b} {things}."
    return f"{start} Then they lose {c} together. How many {things} are left?", a + b - c


def _pairs(numbers: Iterable[int], equal: bool = True) -> list[Numbers]:
    """Every pair of numbers once; their order is drawn at random, the same in every process."""
    pairs = itertools.combinations_with_replacement if equal else itertools.combinations
    draw = random.Random(0)
    return [pair if draw.random() < 0.5 else pair[::-1] for pair in pairs(numbers, 2)]


def _triples(numbers: Iterable[int]) -> list[Numbers]:
    """Pairs of numbers, each with a number smaller than their sum."""
    numbers, draw = list(numbers), random.Random(0)
    return [(*pair, draw.choice([c for c in numbers if c < sum(pair)])) for pair in _pairs(numbers)]


def _chosen(numbers: Iterable[Numbers], what: str) -> list[Numbers]:
    """At most `MOST` questions, in an order that does not depend on the machine."""
    shuffled = list(numbers)
    random.Random(what).shuffle(shuffled)
    return shuffled[:MOST]
