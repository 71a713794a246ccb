"""A user's function as the reward of a task, found by its dotted name.

    def reward(completions: dict[str, list[str]], **columns) -> list[float | None] | list[dict[str, float]]

or ``async def``. completions[agent][j] is agent's text in joint action j. The columns of the data arrive as
keyword arguments, each a list with one entry per joint action: the items' fields, and the other fields of a
file's rows (None in rows without that field). All arguments are copies, so the function may change them. None
as a value means that the reward does not apply to that action; a dict gives the reward's named parts.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real

import numpy as np

from jaxmarl_llm.tasks import reward_calls
from jaxmarl_llm.tasks.judgement import Judgement, check_batch, check_part_names, is_sequential, task_ids
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

FIELD = reward_calls.FIELD
LARGEST = float(np.finfo(np.float32).max)  # rewards reach credit as float32


class RewardError(dotted.UserCodeError):
    """The user's reward function raised an error; the message names the item."""


def resolve_reward(name: str) -> Callable:
    """The reward at 'package.module:function' or 'package.module.function'; ValueError if there is none."""
    return dotted.resolve(name, FIELD)


class CustomRewardTask:
    """A task with its own items and prompts and the user's reward.

    `reward_range` is (lowest, highest) if the function has an attribute of that name, else None. With a
    range, `normalise` maps the total onto 0..100 ("return"); without one, "return" is the total itself.
    ValueError for an invalid range, for a function that does not accept the items' columns, and for a
    sequential task, because its rewards depend on earlier answers and it decides when an episode ends.
    """

    part_names: tuple[str, ...] = ()

    def __init__(self, task, reward: Callable | reward_calls.RewardCalls):
        if is_sequential(task):
            raise UserError(
                f"{FIELD}: a task that is sequential, whose answers go on from those before, has its own rewards; "
                "allowed is ''"
            )
        self.items, self.agents, self.prompts = task.items, task.agents, task.prompts
        self._calls = (
            reward if isinstance(reward, reward_calls.RewardCalls) else reward_calls.RewardCalls(reward)
        )
        reward = self._calls.function
        self.feedback = getattr(task, "feedback", None)
        self.references = getattr(task, "references", None)
        self.tools = getattr(task, "tools", None)
        if hasattr(task, "privileged"):  # a `DialogueTask`
            self.privileged, self.briefing, self.ends = task.privileged, task.briefing, task.ends
        self.reward_range = stated_range(reward)
        self._columns = _column_names(self.items)
        _check_signature(reward, self._columns)

    def judge(self, items: Sequence, completions: dict[str, list[str]]) -> list[Judgement]:
        """Judgements of J joint actions, in order; action j answers items[j] with completions[agent][j].

        Errors: RewardError with the item's task_id if the reward raises; ValueError if it does not return a
        finite number, a dict of finite numbers or None for each action, or if a number is outside its range.
        """
        check_batch(items, completions, self.agents)
        if not items:
            return []
        rewards = self._call(items, completions)
        return [
            _judgement(value, item, self.reward_range) for value, item in zip(rewards, items, strict=True)
        ]

    def score(self, items: Sequence, completions: dict[str, list[str]]) -> list[dict[str, float | None]]:
        """Parts and "total" per joint action; see `judge`."""
        return [judgement.scores for judgement in self.judge(items, completions)]

    def normalise(self, scores: dict[str, float]) -> dict[str, float]:
        """`scores` with the total as "return", on the 0..100 scale if the reward's range is known."""
        return on_scale(scores, self.reward_range)

    def _call(self, items, completions):
        try:
            texts = {agent: list(of_agent) for agent, of_agent in completions.items()}
            return self._calls(texts, self._values(items))
        except UserError as error:
            raise UserError(f"{error}; for {len(items)} joint actions on {task_ids(items)}") from error
        except dotted.RAISED as error:
            alone = ((item, self._error(item, completions, j)) for j, item in enumerate(items))
            where, cause = next(
                ((item.task_id, raised) for item, raised in alone if raised),
                (f"one of {task_ids(items)}", error),
            )
            hint = ""
            if isinstance(cause, KeyError) and cause.args and cause.args[0] not in self._columns:
                hint = f"; the columns are {', '.join(self._columns)}"
            raise RewardError(
                f"the reward raised on task_id {where} ({dotted.reason(cause)}){hint}"
            ) from cause

    def _error(self, item, completions, j: int) -> BaseException | None:
        """The error that the reward raises on joint action j alone, to find a batch's failing item."""
        try:
            alone = {agent: [texts[j]] for agent, texts in completions.items()}
            reward_calls.call(self._calls.function, alone, self._values([item]))
        except dotted.RAISED as error:
            return error
        return None

    def _values(self, items: Sequence) -> dict[str, list]:
        """The columns of these items, one list each; the reward may change the entries, which are copies."""
        return {name: [_own(_value(item, name)) for item in items] for name in self._columns}


def _column_names(items: Sequence) -> tuple[str, ...]:
    """Names of all columns: the fields of the items, and the other fields of their rows."""
    others = [item for item in items if not dataclasses.is_dataclass(item)]
    if others:
        what = f"{FIELD}: the item {others[0].task_id!r} is a {type(others[0]).__name__}"
        raise UserError(f"{what}; allowed are dataclasses, whose fields the reward gets")
    fields = [field.name for item in items[:1] for field in dataclasses.fields(item)]
    more = (name for item in items for name in getattr(item, "columns", ()))
    return tuple(dict.fromkeys([*(name for name in fields if name != "columns"), *more]))


def _value(item, name: str):
    return getattr(item, name) if hasattr(item, name) else item.columns.get(name)


def _own(value):
    """The value, copied if it is mutable."""
    changeable = isinstance(value, list | tuple | dict | set | bytearray | np.ndarray)
    return copy.deepcopy(value) if changeable else value


def _check_signature(reward: Callable, columns: Sequence[str]) -> None:
    """Raise ValueError if the function needs a column that is missing, or does not accept an existing one."""
    try:
        signature = inspect.signature(reward)
    except (TypeError, ValueError):  # raised for some functions written in C
        return
    try:
        signature.bind({}, **dict.fromkeys(columns, []))
    except TypeError as error:
        name = getattr(reward, "__qualname__", repr(reward))
        raise UserError(
            f"{FIELD}: {name}{signature} cannot be called with the completions and the columns "
            f"{', '.join(columns)} ({error}); name those that it reads, and take the others as **columns"
        ) from error


def on_scale(scores: dict[str, float], reward_range: tuple[float, float] | None) -> dict[str, float]:
    """`scores` with the total as "return", on the 0..100 scale if the reward's range is known."""
    low, high = reward_range or (0.0, 100.0)
    parts = {name: value for name, value in scores.items() if name != "total"}
    return {**parts, "return": 100.0 * (scores["total"] - low) / (high - low)}


def stated_range(owner) -> tuple[float, float] | None:
    """``reward_range`` of a function or task, None without one; ValueError unless it is (lowest, highest)."""
    limits = getattr(owner, "reward_range", None)
    if limits is None:
        return None
    numbers = (
        isinstance(limits, tuple | list) and len(limits) == 2 and all(isinstance(x, Real) for x in limits)
    )
    if not numbers or not all(map(math.isfinite, limits)) or not limits[0] < limits[1]:
        name = getattr(owner, "__qualname__", type(owner).__name__)
        raise UserError(f"{name}.reward_range={limits!r}; allowed: two finite numbers, (lowest, highest)")
    return float(limits[0]), float(limits[1])


def _judgement(value, item, reward_range: tuple[float, float] | None) -> Judgement:
    if value is None:
        return Judgement({}, None, "not-applicable")
    scores = value if isinstance(value, Mapping) else {"total": value}
    if not scores:
        raise UserError(f"reward of {item.task_id!r}: an empty dict, expected parts or None")
    if names := [name for name in scores if not isinstance(name, str)]:
        raise UserError(f"reward of {item.task_id!r}: the part {names[0]!r} has no text as its name")
    check_part_names(scores, f"reward of {item.task_id!r}")
    numbers = {
        name: finite_number(given, f"reward of {item.task_id!r}: {name}") for name, given in scores.items()
    }
    total = numbers.pop("total", None)
    total = sum(numbers.values()) if total is None else total
    return Judgement(numbers, in_range(total, reward_range, f"reward of {item.task_id!r}: total"), "judged")


def finite_number(given, what: str) -> float:
    """A Python or NumPy number, or any library's array with one element; UserError for anything else."""
    try:
        number = given.item() if hasattr(given, "item") else given
        # Strings and complex numbers are refused: float() would parse or truncate them.
        number = math.nan if isinstance(number, str | bytes | complex) else float(number)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        number = math.nan
    if not abs(number) <= LARGEST:
        raise UserError(f"{what} is {given!r}, expected a finite number")
    return number


def in_range(total: float, reward_range: tuple[float, float] | None, what: str) -> float:
    """The total; UserError if it is outside its stated range by more than rounding."""
    low, high = reward_range or (-math.inf, math.inf)
    room = 1e-6 * (high - low)  # infinite without a range
    if not low - room <= total <= high + room:
        raise UserError(f"{what} is {total!r}, outside of reward_range=({low:g}, {high:g})")
    return total
