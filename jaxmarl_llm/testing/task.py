"""Check of a task: its prompts, its judge, and the scale of its reward."""

import copy
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np

from jaxmarl_llm.protocols import Answer
from jaxmarl_llm.tasks.custom_task import CustomTask
from jaxmarl_llm.tasks.judgement import Judgement, judge
from jaxmarl_llm.tasks.types import RoundsTask, Task
from jaxmarl_llm.tasks.worlds import explore
from jaxmarl_llm.testing.rounds import check_rounds
from jaxmarl_llm.testing.rules import call, require, require_messages
from jaxmarl_llm.utils import content

# Answers that no task should reward, and that must not crash a judge.
WORTHLESS = ("", " \n\t", "\0\ufffd\N{SLIGHTLY SMILING FACE}", "```python\ndef", "(" * 300, "word " * 400)
EPISODES = 4  # of a world
References = Callable[[Any], Mapping[str, Any] | None]
Row = tuple[Any, dict[str, str]]  # an item, and the text of every agent


def check_task(
    task: Any,
    *,
    items: int = 2,
    answers: Sequence[Mapping[str, str]] = (),
    references: References | None = None,
) -> None:
    """Check a task against `tasks.types.Task` and those extending interfaces that it implements.

    The judge gets worthless answers (empty, garbage, very long), the reference answers, and ``answers``, in
    one batch, in reverse order, and one by one. For a task with a ``world``, a few episodes of legal actions
    are also judged, step by step, twice.

    Rules: names and task_ids are unique; prompts are chat messages to every agent and do not change; each
    answer gets a `Judgement` with the task's parts and a finite total in its range, or None; the same
    answer always gets the same scores; bad batches raise ValueError; no argument is changed; a worthless
    answer does not earn more than the reference; returns are on the 0..100 scale; every agent gets feedback;
    programs are judged one by one, and prompts show the given lesson, reflection or plan.

    Args:
      task: a `Task`, or an object as in docs/tasks.md, which is completed as in a run.
      items: the number of its first items that are checked.
      answers: further joint answers, {agent: text}, to all of these items.
      references: item -> the best known answer, {agent: text, or a list of texts}, or None; None: the
        task's own ``references``, if it has them.

    Raises:
      AssertionError: with the rule that is broken, and the value.
    """
    if not isinstance(task, Task):
        task = call("task: it has what docs/tasks.md names", CustomTask, task, type(task).__name__)
    _check_names(task)
    chosen = tuple(task.items[:items])
    prompts = [_check_prompts(task, item) for item in chosen]
    references = references or getattr(task, "references", None) or (lambda item: None)
    best = [_reference(task, item, references) for item in chosen]
    rows: list[Row] = []
    for item, known in zip(chosen, best, strict=True):
        rows += [(item, dict.fromkeys(task.agents, text)) for text in WORTHLESS]
        rows += [(item, dict(answer)) for answer in (*answers, *([known] if known else []))]
    judgements = _check_judge(task, rows)
    for item, before in zip(chosen, prompts, strict=True):
        after = task.prompts(item)
        require(after == before, f"prompts of {item.task_id}: the same after answers were judged", after)
    if getattr(task, "world", None) is not None:
        _check_episodes(task)
    _check_refusals(task, rows[0])
    _check_worth(rows, judgements, dict(zip(map(id, chosen), best, strict=True)))
    _check_scale(task, judgements)
    if callable(getattr(task, "feedback", None)):
        _check_feedback(task, rows[-2:], judgements[-2:])
    if isinstance(task, RoundsTask):
        check_rounds(task, rows, judgements)


def _check_names(task: Task) -> None:
    agents, ids = tuple(task.agents), [str(item.task_id) for item in task.items]
    require(
        agents and len(set(agents)) == len(agents), "agents: one or more names, all different", task.agents
    )
    require(ids and len(set(ids)) == len(ids), "items: one or more, with task_ids that differ", ids)
    parts = tuple(task.part_names)
    require(len({*parts, "total"}) == len(parts) + 1, "part_names: all different, none is 'total'", parts)
    if (limits := task.reward_range) is not None:
        fits = len(limits) == 2 and all(map(math.isfinite, limits)) and limits[0] < limits[1]
        require(fits, "reward_range: (lowest, highest), finite, or None", limits)


def _check_prompts(task: Task, item: Any) -> dict[str, list[dict[str, str]]]:
    """The prompts, checked."""
    where = f"prompts of {item.task_id}"
    first = call(f"{where}: they do not raise", task.prompts, item)
    require(isinstance(first, dict), f"{where}: a dict, {{agent: messages}}", first)
    require(tuple(first) == tuple(task.agents), f"{where}: all agents, in order", tuple(first))
    for agent, messages in first.items():
        require_messages(messages, f"{where} to {agent}")
    kept, again = copy.deepcopy(first), task.prompts(item)
    require(again == kept, f"{where}: the same whenever they are made", again)
    return kept


def _reference(task: Task, item: Any, references: References) -> dict[str, str] | None:
    """The reference answer of every agent, its first one; None unless each agent has one."""
    known = call(f"references of {item.task_id}: they do not raise", references, item)
    if known is None:
        return None
    rule = f"references of {item.task_id}: {{agent: text, or texts}} of the task's agents, or None"
    require(isinstance(known, Mapping) and set(known) <= set(task.agents), rule, known)
    texts = {agent: [one] if isinstance(one, str) else list(one) for agent, one in known.items()}
    fits = all(own and all(isinstance(text, str) for text in own) for own in texts.values())
    require(fits, rule, known)
    return {agent: texts[agent][0] for agent in task.agents} if len(texts) == len(task.agents) else None


def _judged(task: Task, rows: Sequence[Row]) -> list[Judgement]:
    """Judgements of a batch, one for each answer."""
    items = [item for item, _ in rows]
    completions = {agent: [answer[agent] for _, answer in rows] for agent in task.agents}
    given, held = ([*items], copy.deepcopy(completions)), content.of_values(items)
    judgements = list(call("judge: no answer makes it raise", _judge, task, items, completions))
    rule = "judge: items and completions stay as they are"
    same = len(items) == len(given[0]) and all(map(operator.is_, items, given[0]))
    require(same and completions == given[1], rule, completions)
    require(content.of_values(items) == held, rule, items)
    what = f"{len(judgements)} of {len(rows)}"
    require(len(judgements) == len(rows), "judge: a judgement for each answer", what)
    return judgements


def _judge(task: Task, items: Sequence[Any], completions: dict[str, list[str]]) -> Sequence[Judgement]:
    """The task's judgements of first answers: nothing came before them."""
    return judge(task, items, completions, [()] * len(items))


def _check_episodes(task: Any) -> None:
    """Episodes of legal actions, each judged after every step, and once more.

    The longest history comes first: a `WorldTask` replays the first answer's history without its cache.
    """
    rule = "world: every legal action can be taken"
    for start, joints, _ in call(rule, lambda: list(explore.episodes_of(task.world, EPISODES))):
        steps = range(len(joints))[::-1]
        completions = {agent: [joints[k][agent] for k in steps] for agent in task.agents}
        histories, items = [joints[:k] for k in steps], [start] * len(joints)
        rule = f"judge: an episode from {start.task_id} does not make it raise"
        first, second = (
            call(rule, judge, task, items, copy.deepcopy(completions), histories) for _ in range(2)
        )
        for k, one, other in zip(steps, first, second, strict=True):
            _check_judgement(task, (start, joints[k]), one)
            rule = f"judge: a step gets the same scores judged twice, see {start.task_id}, turn {k + 1}"
            require(_facts(one) == _facts(other), rule, f"{_facts(other)}, not {_facts(one)}")


def _check_judge(task: Task, rows: Sequence[Row]) -> list[Judgement]:
    judgements = _judged(task, rows)
    for row, judgement in zip(rows, judgements, strict=True):
        _check_judgement(task, row, judgement)
    batches = {
        "judged twice": _judged(task, rows),
        "in the opposite order": _judged(task, rows[::-1])[::-1],
        "alone": [judgement for row in rows for judgement in _judged(task, [row])],
    }
    for how, others in batches.items():
        for row, one, other in zip(rows, judgements, others, strict=True):
            rule = f"judge: an answer gets the same scores {how}, see {_shown(row)}"
            require(_facts(one) == _facts(other), rule, f"{_facts(other)}, not {_facts(one)}")
    return judgements


def _facts(judgement: Judgement) -> tuple:
    return judgement.scores, judgement.verdict, judgement.local


def _shown(row: Row) -> str:
    texts = {agent: text[:20] for agent, text in row[1].items()}
    return f"{row[0].task_id}, {texts}"


def _check_judgement(task: Task, row: Row, judgement: Any) -> None:
    where = f"judge of {_shown(row)}"
    require(isinstance(judgement, Judgement), f"{where}: a Judgement", judgement)
    parts, names = judgement.parts, set(task.part_names)
    require(not names or set(parts) == names, f"{where}: the parts are {sorted(names)}", sorted(parts))
    for name, number in (*parts.items(), *judgement.local.items()):
        require(_finite(number), f"{where}: {name} is a finite number", number)
    total, limits = judgement.total, task.reward_range
    require(total is None or _finite(total), f"{where}: the total is finite, or None", total)
    if total is not None and limits is not None:
        room = 1e-6 * (limits[1] - limits[0])
        inside = limits[0] - room <= total <= limits[1] + room
        require(inside, f"{where}: the total is within reward_range={tuple(limits)}", total)
    strangers = set(judgement.local) - set(task.agents)
    require(not strangers, f"{where}: local rewards are of the task's agents", strangers)


def _finite(number: Any) -> bool:
    """Whether it is a number that the update, which has 32 bits, can hold."""
    return isinstance(number, Real) and abs(number) <= np.finfo(np.float32).max


def _check_refusals(task: Task, row: Row) -> None:
    item, answer = row
    whole = {agent: [text] for agent, text in answer.items()}
    last = task.agents[-1]
    missing = {agent: texts for agent, texts in whole.items() if agent != last}
    for completions, what in ((missing, "an agent is missing"), (whole | {last: []}, "a text is missing")):
        try:
            result = _judge(task, [item], completions)
        except ValueError:
            continue
        except Exception as error:
            raise AssertionError(f"judge: ValueError where {what}: {type(error).__name__}") from error
        require(False, f"judge: ValueError where {what}", result)


def _check_worth(rows: Sequence[Row], judgements: Sequence[Judgement], best: Mapping[int, Any]) -> None:
    """Worthless answers earn no more than the reference to their item."""
    totals = [(row, judgement.total) for row, judgement in zip(rows, judgements, strict=True)]
    earned = {id(item): total for (item, answer), total in totals if answer == best[id(item)]}
    for row, total in totals:
        reference = earned.get(id(row[0]))
        if set(row[1].values()) & set(WORTHLESS) and None not in (total, reference):
            rule = f"judge: a worthless answer earns no more than the reference, {reference}"
            require(total <= reference, f"{rule}, see {_shown(row)}", total)


def _check_scale(task: Task, judgements: Sequence[Judgement]) -> None:
    scores = [MappingProxyType(judgement.scores) for judgement in judgements if judgement.total is not None]
    if not scores:
        return
    scaled = [call("normalise: it takes a judgement's scores", task.normalise, dict(one)) for one in scores]
    for each in scaled:
        fits = "return" in each and "total" not in each and all(map(_finite, each.values()))
        require(fits, "normalise: finite numbers, the total as 'return'", each)
    first, last = scores[0], scores[-1]
    mean = task.normalise({name: (first[name] + last[name]) / 2 for name in first})
    for name, value in mean.items():
        expected = (scaled[0][name] + scaled[-1][name]) / 2
        rule = f"normalise: of a mean it is the mean, {name} {expected}"
        require(math.isclose(value, expected, rel_tol=1e-6, abs_tol=1e-6), rule, value)
    if task.reward_range is not None:
        low, high = (task.normalise({**first, "total": x})["return"] for x in task.reward_range)
        rule = "normalise: a return grows with the total, and the highest is at most 100"
        require(low < high <= 100 + 1e-6, rule, (low, high))


def _check_feedback(task: Any, rows: Sequence[Row], judgements: Sequence[Judgement]) -> None:
    answers = [Answer(*row, judgement) for row, judgement in zip(rows, judgements, strict=True)]
    feedbacks = list(call("feedback: it does not raise", task.feedback, answers))
    require(len(feedbacks) == len(rows), "feedback: one for each answer", f"{len(feedbacks)} of {len(rows)}")
    for texts in feedbacks:
        complete = all(isinstance(texts.get(agent), str) for agent in task.agents)
        require(complete, f"feedback: a text to each of {task.agents}", texts)
