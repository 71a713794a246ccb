"""A user's own task, found by the dotted name in ``task.kind``.

    class MyTask:
        def __init__(self, config, executor, split): ...

The class, or a function that returns such an object, is called with three arguments: the section
``config.task``; an `Executor` if its attribute ``runs_programs`` is true, else None; and "train", "eval"
(validation) or "test". The items of these three splits should differ. The object has

    items              objects with a ``task_id``, all different; dataclasses for a reward by name
    agents             the agents' names, as in ``team.agents``
    prompts(item)      {agent: chat messages}
    judge(items, completions)   a `Judgement` for each joint answer: completions[agent][j] answers items[j]

and may have

    reward_range       (lowest, highest), which maps totals onto 0..100
    part_names         names of the reward's parts
    feedback(answers)  for several turns: {agent: text} for each `protocols.Answer`
    feedbacks          values of task.feedback that it supports, see `check_feedback`
    references(item)   for sft.source=reference: {agent: text} or {agent: [texts]} to imitate
    tools()            for tools.of_task: functions, or some `tasks.tools.Tool`
    sequential = True  ``judge(items, completions, histories)`` also gets the answers before each answer
                       (`tasks.types.SequentialTask`)

and, for train.protocol=dialogue, the methods of a `DialogueTask`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence

from jaxmarl_llm.tasks.custom_reward import finite_number, in_range, on_scale, stated_range
from jaxmarl_llm.tasks.judgement import (
    History,
    Judgement,
    check_batch,
    check_given,
    check_part_names,
    is_sequential,
    is_statement,
    task_ids,
)
from jaxmarl_llm.tasks.types import Messages, is_chat
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

FIELD = "task.kind"
NEEDED = ("items", "agents", "prompts", "judge")
EXPERT = "expert_edits"  # this feedback comes from an expert, not from the task
DIALOGUE = ("privileged", "briefing", "ends")  # methods of a `DialogueTask`
TEXTS = ("privileged", "briefing")  # methods whose text becomes part of a prompt
# How to get the items from an argument of a task's method that is not itself an item.
_ITEMS_OF = {"feedback": lambda answers: [one.item for one in answers], "ends": lambda answer: [answer.item]}


def resolve(name: str):
    """The class or function that ``task.kind`` names; ValueError if there is none."""
    return dotted.resolve(name, FIELD)


def runs_programs(name: str) -> bool:
    """Whether the task needs an executor."""
    return bool(getattr(resolve(name), "runs_programs", False))


def build(name: str, config, executor, split: str) -> CustomTask:
    """The task at a dotted name, checked; ValueError names ``task.kind`` and what is wrong with it."""
    factory = resolve(name)
    try:
        task = factory(config, executor, split)
    except dotted.RAISED as error:
        reason = f"{type(error).__name__}: {error}"
        raise dotted.UserCodeRefused(
            f"{FIELD} {name!r} raised when called with config.task, the executor and {split!r} ({reason})"
        ) from error
    return CustomTask(task, f"{FIELD} {name!r}")


class CustomTask:
    """The user's task, with defaults for what the task interface needs; ``name`` is its name in errors."""

    def __init__(self, task, name: str):
        self._task, self._name = task, name
        missing = [part for part in NEEDED if self._part(part) is None]
        if missing:
            raise UserError(f"{name} gave a {type(task).__name__} without {', '.join(missing)}")
        self.items, self.agents = self._tuple("items"), self._tuple("agents")
        self.part_names = self._tuple("part_names")
        self.reward_range = stated_range(task)
        for method in ("feedback", *DIALOGUE):
            if getattr(task, method, None):
                setattr(self, method, functools.partial(self._call, method))
        self.feedbacks = self._tuple("feedbacks")
        has_references = getattr(task, "references", None) is not None
        self.references = functools.partial(self._call, "references") if has_references else None
        self.tools = getattr(task, "tools", None)
        self.sequential = is_sequential(task)
        self._check()

    def _part(self, part: str):
        """The attribute of the task; None if it has none. UserCodeError if it is a property that raises."""
        try:
            return getattr(self._task, part, None)
        except dotted.RAISED as error:
            raise dotted.UserCodeError(f"{self._name}: {part} raised ({dotted.reason(error)})") from error

    def _tuple(self, part: str) -> tuple:
        """A list attribute of the task, () if it has none. UserError if the value is not a list."""
        given = self._part(part)
        values = () if given is None else dotted.listed(given)
        if values is None:
            raise UserError(f"{self._name}: {part} is {given!r:.80}; expected a list")
        return tuple(values)

    def _check(self) -> None:
        try:
            check_given(self.items, self.agents)
            ids = [str(item.task_id) for item in self.items]
        except (ValueError, AttributeError) as error:
            raise UserError(f"{self._name}: {error}") from error
        if len(set(ids)) < len(ids):
            twice = next(name for name in ids if ids.count(name) > 1)
            raise UserError(f"{self._name}: two items have the task_id {twice!r}")
        for item in self.items:
            if not is_statement(word := str(getattr(item, "statement", ""))):
                raise UserError(
                    f"{self._name}: the statement of {item.task_id} is {word!r}: return_{word} is another result"
                )
        self.prompts(self.items[0])

    def _call(self, method: str, given):
        """Call a method of the task; UserCodeError with the items in ``given`` if it raises.

        UserError if a method that must return a text returns anything else.
        """
        where = task_ids(_ITEMS_OF.get(method, lambda item: [item])(given))
        try:
            result = getattr(self._task, method)(given)
            result = list(result) if inspect.isgenerator(result) else result  # a generator raises only here
        except UserError:
            raise
        except dotted.RAISED as error:
            raise dotted.UserCodeError(
                f"{self._name}: {method} raised on {where} ({dotted.reason(error)})"
            ) from error
        if method in TEXTS and not isinstance(result, str):
            raise UserError(f"{self._name}: {method} gave {result!r:.80} for {where}; expected a text")
        return result

    def prompts(self, item) -> dict[str, Messages]:
        """The task's own chat messages by agent, copied because a task may reuse its own for the next item.

        UserCodeError with the item if it raises; UserError for wrong agents or an invalid chat.
        """
        prompts = self._call("prompts", item)
        if not isinstance(prompts, dict) or set(prompts) != set(self.agents):
            shown = sorted(prompts) if isinstance(prompts, dict) else f"a {type(prompts).__name__}"
            raise UserError(
                f"{self._name}: prompts of {item.task_id} are for {shown}, its agents {self.agents!r}"
            )
        for agent, messages in prompts.items():
            if not is_chat(messages):
                raise UserError(
                    f"{self._name}: the prompt of {item.task_id} to {agent!r} is {messages!r:.80}; expected a list of "
                    "chat messages, each {'role': text, 'content': text}"
                )
        return {agent: [dict(message) for message in messages] for agent, messages in prompts.items()}

    def check_feedback(self, wanted: str, default: str) -> None:
        """Whether the task supports the feedback ``wanted``, a value of ``task.feedback``; UserError if not.

        A task without ``feedbacks`` supports only the ``default`` of that field, and answers it in its own
        way. With ``expert_edits`` an expert gives the feedback, not the task: then every item needs a
        ``prompt`` and an ``entry_point``, as a coding problem has, and ``agents`` are the helpers, then main.
        """
        if wanted not in (self.feedbacks or (default,)):
            allowed = f"allows {', '.join(self.feedbacks)}" if self.feedbacks else "has its own feedback"
            raise UserError(f"task.feedback={wanted!r}: {self._name} {allowed}")
        lacking = [name for name in ("prompt", "entry_point") if not hasattr(self.items[0], name)]
        if wanted == EXPERT and lacking:
            raise UserError(f"task.feedback={wanted!r}: items of {self._name} have no {lacking[0]}")

    def judge(
        self, items: Sequence, completions: dict[str, list[str]], histories: Sequence[History] = ()
    ) -> list[Judgement]:
        """The task's own judgements, one per joint answer; ``histories`` only for a sequential task.

        UserCodeError with the items if it raises; UserError if it does not return a `Judgement` for each
        answer. Each total must be a finite number within ``reward_range``, or None where the reward does not
        apply; parts and agents' rewards must be finite numbers by name.
        """
        check_batch(items, completions, self.agents)
        where = task_ids(items)
        more = (histories,) if self.sequential else ()
        try:
            given = self._task.judge(items, completions, *more)
            judgements = dotted.listed(given)
        except dotted.RAISED as error:
            raise dotted.UserCodeError(
                f"{self._name}: judge raised on {where} ({dotted.reason(error)})"
            ) from error
        if judgements is None:
            kind = type(given).__name__
            raise UserError(f"{self._name}: judge gave a {kind} on {where}; expected a list of Judgements")
        if len(judgements) != len(items):
            raise UserError(f"{self._name}: judge gave {len(judgements)} judgements of {len(items)} answers")
        for judgement in judgements:
            if not isinstance(judgement, Judgement):
                kind = type(judgement).__name__
                raise UserError(f"{self._name}: judge gave a {kind} on {where}; expected a Judgement")
        places = [str(item.task_id) for item in items]
        if self.sequential:
            places = [
                f"{place}, turn {len(history) + 1}" for place, history in zip(places, histories, strict=True)
            ]
        return [self._with_numbers(one, place) for one, place in zip(judgements, places, strict=True)]

    def _with_numbers(self, judgement: Judgement, where: str) -> Judgement:
        """A judgement with its rewards as Python numbers and its reasons as strings."""
        for field in ("verdict", "program_source"):
            if not isinstance(word := getattr(judgement, field), str):
                raise UserError(
                    f"{self._name}: {field} of the judgement of {where} is {word!r:.80}; expected a text"
                )
        failures = dotted.listed(judgement.failures)
        if failures is None or not all(isinstance(each, str) for each in failures):
            what = f"{self._name}: failures of the judgement of {where} is {judgement.failures!r:.80}"
            raise UserError(f"{what}; expected a list of texts")
        parts = self._numbers("parts", "the part", judgement.parts, where)
        check_part_names(parts, f"{self._name}: judge")
        local = self._numbers("local", "the reward of", judgement.local, where)
        if strangers := [agent for agent in local if agent not in self.agents]:
            raise UserError(
                f"{self._name}: there is a reward of {strangers[0]!r} for {where}; its agents are {self.agents!r}"
            )
        total = judgement.total
        if total is not None:
            what = f"{self._name}: the total of {where}"
            total = in_range(finite_number(total, what), self.reward_range, what)
        return dataclasses.replace(judgement, parts=parts, total=total, local=local, failures=tuple(failures))

    def _numbers(self, field: str, one: str, given, where: str) -> dict[str, float]:
        """The finite numbers by name of a judgement's field; errors call such a number ``one``."""
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            what = f"{self._name}: {field} of the judgement of {where}"
            raise UserError(f"{what} is {given!r:.80}; expected a dict of numbers by name")
        return {
            name: finite_number(own, f"{self._name}: {one} {name!r} for {where}")
            for name, own in given.items()
        }

    def score(self, items: Sequence, completions: dict[str, list[str]]) -> list[dict[str, float | None]]:
        """Parts and "total" per joint answer; see `judge`."""
        return [judgement.scores for judgement in self.judge(items, completions)]

    def normalise(self, scores: dict[str, float]) -> dict[str, float]:
        """`scores` with the total as "return", on the 0..100 scale if the reward's range is known."""
        return on_scale(scores, self.reward_range)
