"""Questions about a table of goods that need one to three tool calls, with solutions (arXiv 2401.07324).

The table has a price and a weight of every good; `look_up`, `add`, `scale` and `convert` are the tools. Some questions
have no answer; then giving up is right. Questions of different splits are about different goods.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.prompts import FORMS
from jaxmarl_llm.tasks.tools.solutions import Solution, Step
from jaxmarl_llm.utils.errors import UserError

SOURCE = "tables"
GIVE_UP = "give up"
HINT = f"Write {GIVE_UP} if that cannot be known."
WITHOUT_ANSWER = ("colour", "strange")
COLUMNS = {"price": "euros for a kilogram", "weight": "kilograms of a crate"}
UNITS = {("kilogram", "gram"): 1000.0, ("euro", "cent"): 100.0}
GOODS = tuple(
    """almonds apples apricots barley basil beans beetroot butter cabbage carrots cashews celery cheese cherries
    chestnuts cinnamon cocoa coffee corn cucumbers dates figs flour garlic ginger grapes hazelnuts honey leeks
    lemons lentils limes mangoes melons mint mushrooms mustard oats olives onions oranges oregano peaches
    peanuts pears peas pepper plums potatoes pumpkins quinces radishes raisins rice sage salt spinach sugar
    tomatoes walnuts""".split()
)
STRANGE = (
    "coral",
    "slate",
    "amber",
    "chalk",
    "copper",
    "ivory",
    "marble",
    "silk",
    "velvet",
    "wax",
)  # not in the table


# The values of a question and the results so far -> the next step.
_Maker = Callable[[Mapping[str, Any], Sequence[float]], Step]


def look_up(name: str, column: str) -> str:
    """Gives the price (euros for a kilogram) or the weight (kilograms of a crate) of a good."""
    name, column = name.strip().lower(), column.strip().lower()  # agents may write other case and spaces
    if name not in TABLE:
        raise UserError(f"there is no {name[:40]} in the table")
    if column not in COLUMNS:
        raise UserError(f"there is no column {column[:40]}; there are {' and '.join(COLUMNS)}")
    return written(TABLE[name][column])


def add(first: float, second: float) -> str:
    """Adds two numbers."""
    return written(first + second)


def scale(value: float, factor: float) -> str:
    """Multiplies a number by a factor."""
    return written(value * factor)


def convert(value: float, from_unit: str, to_unit: str) -> str:
    """Converts kilogram to gram, euro to cent, and back."""
    if (from_unit, to_unit) in UNITS:
        return written(value * UNITS[from_unit, to_unit])
    if (to_unit, from_unit) in UNITS:
        return written(value / UNITS[to_unit, from_unit])
    raise UserError(f"{from_unit[:40]} cannot be converted to {to_unit[:40]}")


def written(number: float) -> str:
    """A number as the tools write it."""
    return f"{number:.10g}"


def load(split: str) -> list[ReasoningItem]:
    """The questions of a split: of each kind one for every good of the split, and a few without an answer.

    Three of five goods are for training, one is for validation, one for the test.
    """
    if split == "all":
        return [item for part in ("train", "validation", "test") for item in load(part)]
    order = list(GOODS)
    random.Random("goods").shuffle(order)
    fifth = len(order) // 5
    first, last = {"train": (0, 3), "validation": (3, 4), "test": (4, 5)}[split]
    goods, strange = order[first * fifth : last * fifth], STRANGE[2 * first : 2 * last]
    draw, items = random.Random(f"questions {split}"), []
    for kind, (question, _) in _KINDS.items():
        for n, good in enumerate(goods):
            values = {"good": good, "other": goods[(n + 1) % len(goods)], "number": draw.randrange(2, 10)}
            items.append(_item(kind, question.format(**values), values))
    for n, good in enumerate(goods[::3]):
        items.append(_item("colour", f"What is the colour of {good}?", {"good": good}))
        name = strange[n % len(strange)]
        if n < len(strange):
            items.append(_item("strange", f"What is the price of a kilogram of {name}?", {"good": name}))
    return items


def solution(item: ReasoningItem) -> Solution:
    """How a question of `load` is answered, with the tools; a demonstration of `train.system=sft`."""
    kind, values = item.columns["table_kind"], item.columns["table_values"]
    if kind == "colour":
        return Solution((Step("The table has no colours."),))
    if kind == "strange":
        good = values["good"]
        return Solution((_need("good", "price")(values, ()), Step(f"There is no {good} in the table.")))
    steps, result = _worked(_KINDS[kind][1], values)
    return Solution((*steps, Step("Nothing else is needed.")), f"The answer is {result}.")


def _item(kind: str, question: str, values: Mapping[str, Any]) -> ReasoningItem:
    """The item of a question; its grade is the number of calls."""
    task_id = "/".join([SOURCE, kind, *map(str, values.values())])
    columns = {"table_kind": kind, "table_values": dict(values)}
    if kind in WITHOUT_ANSWER:  # worded like the others, whose answer is a number
        text, calls = f"{question} {HINT}\n{FORMS['number']}", int(kind == "strange")
        return ReasoningItem(task_id, text, GIVE_UP, "choice", 1 + calls, options=(GIVE_UP,), columns=columns)
    steps, result = _worked(_KINDS[kind][1], values)
    return ReasoningItem(task_id, f"{question} {HINT}", result, grade=len(steps), columns=columns)


def _worked(makers: Sequence[_Maker], values: Mapping[str, Any]) -> tuple[tuple[Step, ...], str]:
    """The calls of a solution, and the result of the last one."""
    steps: list[Step] = []
    results: list[str] = []
    for make in makers:
        step = make(values, [json.loads(result) for result in results])
        steps.append(step)
        results.append(_FUNCTIONS[step.tool](**step.arguments))
    return tuple(steps), results[-1]


def _need(which: str, column: str) -> _Maker:
    def make(values: Mapping[str, Any], results: Sequence[float]) -> Step:
        good = values[which]
        return Step(f"The {column} of {good} is needed.", "look_up", {"name": good, "column": column})

    return make


def _times(values: Mapping[str, Any], results: Sequence[float]) -> Step:
    number = values["number"]
    return Step(
        f"That is of one, and {number} are wanted.", "scale", {"value": results[-1], "factor": number}
    )


def _converted(from_unit: str, to_unit: str) -> _Maker:
    def make(values: Mapping[str, Any], results: Sequence[float]) -> Step:
        arguments = {"value": results[-1], "from_unit": from_unit, "to_unit": to_unit}
        return Step(f"That is in {from_unit}s, and {to_unit}s are wanted.", "convert", arguments)

    return make


def _together(values: Mapping[str, Any], results: Sequence[float]) -> Step:
    return Step("The two are wanted together.", "add", {"first": results[0], "second": results[1]})


_FUNCTIONS: Mapping[str, Callable[..., str]] = {f.__name__: f for f in (look_up, add, scale, convert)}
_KINDS: Mapping[str, tuple[str, tuple[_Maker, ...]]] = {
    "price": ("What is the price of a kilogram of {good}?", (_need("good", "price"),)),
    "weight": ("What is the weight of a crate of {good}?", (_need("good", "weight"),)),
    "cost": ("What do {number} kilograms of {good} cost?", (_need("good", "price"), _times)),
    "crates": ("How many kilograms do {number} crates of {good} weigh?", (_need("good", "weight"), _times)),
    "cents": (
        "What is the price of a kilogram of {good} in cents?",
        (_need("good", "price"), _converted("euro", "cent")),
    ),
    "grams": (
        "How many grams does a crate of {good} weigh?",
        (_need("good", "weight"), _converted("kilogram", "gram")),
    ),
    "all_grams": (
        "How many grams do {number} crates of {good} weigh?",
        (_need("good", "weight"), _times, _converted("kilogram", "gram")),
    ),
    "prices": (
        "What do a kilogram of {good} and a kilogram of {other} cost together?",
        (_need("good", "price"), _need("other", "price"), _together),
    ),
    "weights": (
        "What do a crate of {good} and a crate of {other} weigh together?",
        (_need("good", "weight"), _need("other", "weight"), _together),
    ),
}


def _table() -> dict[str, dict[str, float]]:
    """Prices in steps of half a euro, weights in kilograms; the same in every process."""
    draw = random.Random("prices and weights")
    return {
        good: {"price": draw.randrange(1, 60) / 2, "weight": float(draw.randrange(2, 50))} for good in GOODS
    }


TABLE: Mapping[str, Mapping[str, float]] = _table()
