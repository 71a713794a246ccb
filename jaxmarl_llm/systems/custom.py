"""A system of the user's own: a function named in the config, written with the functions of `credit`.

    def assign(forest, config) -> Credit

It is called on the host once per iteration (with ``train.redraw`` also for each of its draws), with all turns
and judged joint answers. `magrpo.compare` makes the credit from returns and groups, so a new return or a new
group key takes a few lines.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

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

    The result raises `UserCodeError` where the user's function raises, for example when it writes into the
    forest's arrays, and ValueError where it does not return a `Credit`, or one whose arrays are not numbers
    of all turns. Lists and arrays of other libraries become NumPy arrays.
    """
    return functools.partial(_checked, dotted.resolve(name, FIELD), name)


def _checked(function: Callable, name: str, forest: Forest, config: CreditConfig) -> Credit:
    turns = len(forest.turns)
    _make_read_only(forest)
    try:
        credit = function(forest, config)
    except dotted.RAISED as error:
        message = f"{FIELD} {name!r} raised on a forest of {turns} turns ({dotted.reason(error)})"
        raise dotted.UserCodeError(message) from error
    if not isinstance(credit, Credit):
        raise UserError(f"{FIELD} {name!r} returned a {type(credit).__name__}; expected a Credit")
    if not isinstance(credit.forest, Forest):
        raise UserError(
            f"{FIELD} {name!r}: its forest is a {type(credit.forest).__name__}; expected a Forest"
        )
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
    if np.isinf(credit.returns).any():
        raise UserError(f"{FIELD} {name!r}: returns are infinite; a turn without a reward has NaN")
    extra = _extra_metrics(credit.extra_metrics, f"{FIELD} {name!r}: extra_metrics")
    return dataclasses.replace(credit, extra_metrics=extra, token_advantages=_of_tokens(credit, name))


def _make_read_only(forest: Forest) -> None:
    """Make the arrays of the turns read-only: the update must learn from what was drawn."""
    for turn in forest.turns:
        for array in (turn.prompt, turn.completion, turn.logprobs):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False


def _of_tokens(credit: Credit, name: str) -> list[np.ndarray] | None:
    """The advantages of tokens, or None; UserError unless every token of every turn has a finite one."""
    given = credit.token_advantages
    if given is None:
        return None
    what, turns = f"{FIELD} {name!r}: token_advantages", credit.forest.turns
    rows = dotted.listed(given)
    if rows is None or len(rows) != len(turns):
        raise UserError(f"{what} is {given!r:.80}; expected an array for each of {len(turns)} turns")
    arrays = [_array(row, np.float32, f"{what} of turn {i}") for i, row in enumerate(rows)]
    for turn, array in zip(turns, arrays, strict=True):
        if array.shape != turn.completion.shape or not np.isfinite(array).all():
            raise UserError(
                f"{what} of turn {turn.id} have shape {array.shape}; expected {turn.completion.shape}, all finite"
            )
    return arrays


def _extra_metrics(given, what: str) -> dict[str, float]:
    """Metrics as Python numbers; UserError for anything else."""
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise UserError(f"{what} is {given!r:.80}; expected a dict of numbers by name")
    arrays = {key: _array(value, np.float64, f"{what}: {key}") for key, value in given.items()}
    for key, array in arrays.items():
        if array.size != 1:
            raise UserError(f"{what}: {key} has shape {array.shape}; expected a number")
    return {key: float(array.item()) for key, array in arrays.items()}


def _array(given, dtype: type, what: str) -> np.ndarray:
    """An array of this type; UserError if it cannot be one, or has a fraction where an integer is needed."""
    try:
        values = np.asarray(given)
        if values.dtype.kind in "SUc":  # NumPy would parse texts as numbers, and drop imaginary parts
            raise ValueError(f"they are {values.dtype}")
        with np.errstate(all="ignore"):  # NaN is not an integer: it is refused below
            array = values.astype(dtype)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} are no array of numbers ({dotted.reason(error)})") from error
    if dtype is np.int32 and not np.array_equal(array, values):
        raise UserError(f"{what} are not all whole numbers")
    return array
