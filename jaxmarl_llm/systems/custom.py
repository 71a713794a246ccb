"""A system of the user's own: a function that a config names, built from the functions of `credit`.

    def assign(forest, config) -> Credit

It is called once per iteration (with ``train.redraw`` also for each of its draws), on the host, with all turns
and judged joint answers; `magrpo.compare` makes the credit from returns and groups, so that a new return or a
new group key is a few lines.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

FIELD = "train.system"
ARRAYS = {"advantages": np.float32, "returns": np.float32, "groups": np.int32}  # of a `Credit`, by turn


def resolve(name: str) -> Callable[[Forest, CreditConfig], Credit]:
    """The function that ``train.system`` names, with its results checked; ValueError if there is none.

    The result raises `UserCodeError` where the function raises, ValueError where it returns no `Credit`, or one whose
    arrays are no numbers of all turns. Lists and arrays of other libraries become arrays of NumPy.
    """
    return functools.partial(_checked, dotted.resolve(name, FIELD), name)


def _checked(function: Callable, name: str, forest: Forest, config: CreditConfig) -> Credit:
    turns = len(forest.turns)
    try:
        credit = function(forest, config)
    except dotted.RAISED as error:
        message = f"{FIELD} {name!r} raised on a forest of {turns} turns ({dotted.reason(error)})"
        raise dotted.UserCodeError(message) from error
    if not isinstance(credit, Credit):
        raise UserError(f"{FIELD} {name!r} returned a {type(credit).__name__}; expected a Credit")
    if len(credit.forest.turns) != turns:
        raise UserError(f"{FIELD} {name!r}: its forest has {len(credit.forest.turns)} turns of {turns}")
    arrays = {
        part: _array(getattr(credit, part), dtype, f"{FIELD} {name!r}: {part}")
        for part, dtype in ARRAYS.items()
    }
    for part, array in arrays.items():
        if array.shape != (turns,):
            raise UserError(f"{FIELD} {name!r}: {part} have shape {array.shape}; expected ({turns},)")
    credit = dataclasses.replace(credit, **arrays)
    if not np.isfinite(credit.advantages).all():
        raise UserError(f"{FIELD} {name!r}: advantages are not finite; a turn without a reward has 0")
    return credit


def _array(given, dtype: type, what: str) -> np.ndarray:
    """An array of this type; UserError for what is none, and for a fraction in place of a whole number."""
    try:
        values = np.asarray(given)
        with np.errstate(all="ignore"):  # NaN is no whole number: it is refused below
            array = values.astype(dtype)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} are no array of numbers ({dotted.reason(error)})") from error
    if dtype is np.int32 and not np.array_equal(array, values):
        raise UserError(f"{what} are not all whole numbers")
    return array
