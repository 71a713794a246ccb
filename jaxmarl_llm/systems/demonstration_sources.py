"""Sources of demonstrations: a JSONL file, a function of the user's own, or the task's reference answers."""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Real
from typing import Any

from jaxmarl_llm.protocols.worked import Worked
from jaxmarl_llm.systems.demonstrations import FIELD, Demonstration
from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.tools.solutions import Solution
from jaxmarl_llm.tasks.types import Task
from jaxmarl_llm.utils import dotted, files
from jaxmarl_llm.utils.errors import UserError


def read(path, task: Task) -> list[Demonstration]:
    """Demonstrations of a JSONL file, one object per line: agent, text, task_id or messages, optional weight.

    With a ``task_id`` the agent's prompt is the task's own for that problem, which must be one of the task's;
    ``messages`` are shown as they are.

    Raises:
      ValueError: lists every bad line with its number: without a role, with an agent that is not in the team,
        a problem that the task does not have, or a field of a wrong type.
    """
    items = {str(item.task_id): item for item in task.items}
    prompts: dict[str, dict] = {}
    demonstrations, bad_lines = [], []
    for number, row, complaints in sources.json_lines(files.read_text(path)):
        complaints = complaints or _complaints(row, task.agents, items)
        if complaints:
            bad_lines.append(f"  line {number}: {'; '.join(complaints)}")
            continue
        messages = row.get("messages")
        if messages is None:
            name = str(row["task_id"])
            prompts.setdefault(name, task.prompts(items[name]))
            messages = prompts[name][row["agent"]]
        demonstrations.append(_of_row(row, messages, f"{path}, line {number}"))
    if bad_lines:
        raise UserError(f"{FIELD}={str(path)!r}: {len(bad_lines)} bad line(s)\n" + "\n".join(bad_lines))
    return _some(demonstrations, str(path))


def _of_row(row: Mapping, messages: Sequence[dict[str, str]], name: str) -> Demonstration:
    return Demonstration(row["agent"], tuple(messages), row["text"], float(row.get("weight", 1.0)), name)


def _complaints(row: Mapping, agents: Sequence[str], items: Mapping[str, Any] | None) -> list[str]:
    """All errors of a row; ``items`` are the problems that it may name; None: it must have messages."""
    errors, allowed = [], ", ".join(agents)
    if "agent" not in row:
        errors.append(f"no field 'agent': a demonstration needs a role, allowed are {allowed}")
    elif row["agent"] not in agents:
        errors.append(f"agent={row['agent']!r} is not in the team, allowed are {allowed}")
    if not isinstance(row.get("text"), str) or not row["text"]:
        errors.append(f"text={row.get('text')!r:.40}, expected text that is not empty")
    weight = row.get("weight", 1.0)
    if not isinstance(weight, Real) or isinstance(weight, bool) or not 0 <= weight < math.inf:
        errors.append(f"weight={weight!r:.40}, allowed are numbers from 0")
    if items is None and ("task_id" in row or "messages" not in row):
        errors.append("rows of a problem need messages, and no task_id")
    elif ("task_id" in row) == ("messages" in row):
        errors.append("needs either a task_id or messages")
    elif "messages" in row:
        if not _are_messages(row["messages"]):
            errors.append('messages must be a list of {"role": .., "content": ..} with one or more entries')
    elif str(row["task_id"]) not in (items or {}):
        errors.append(f"task_id={row['task_id']!r} is no problem of the training split")
    return errors


def _are_messages(messages) -> bool:
    return (
        isinstance(messages, list)
        and bool(messages)
        and all(
            isinstance(message, dict)
            and all(isinstance(message.get(part), str) for part in ("role", "content"))
            for message in messages
        )
    )


@dataclasses.dataclass(frozen=True)
class Reading:
    """How the agents of a chain read each other, as in the protocol that they are trained with.

    Attributes:
      steps: maps the names of all agents to those of each step, in the same order; an agent reads the texts
        of earlier steps.
      show: maps an agent's prompt, its name, and these texts by agent to what it reads.
      learners: the agents that imitate; the texts of the others are only read.
    """

    steps: Callable[[Sequence[str]], Sequence[tuple[str, ...]]]
    show: Callable[[Sequence[dict[str, str]], str, Mapping[str, str]], Sequence[dict[str, str]]]
    learners: Collection[str]


def of_items(
    task: Task,
    answers: Callable[[Any], Mapping | list | Solution | None],
    name: str,
    reading: Reading | None = None,
    worked: Worked | None = None,
) -> list[Demonstration]:
    """Demonstrations for the problems of a task: ``answers(item)`` is {agent: text, or a list of texts}.

    It may also be a list of chains, each {agent: text} of the first agents of the team, or of all: an agent
    then reads the earlier texts of the chain. Or it is a list of rows like those of a file, {"agent",
    "messages", "text"} and optional "weight", for prompts of later turns. For a team with tools it is a
    `Solution`. An item for which it returns None has no demonstration, nor has an agent that it leaves out.

    Args:
      task: its items and prompts.
      answers: the task's ``references``, or a function of the user's own.
      name: value of the config field that selected ``answers``, for errors.
      reading: how agents read each other; None: they do not, and chains are refused.
      worked: what agents read and write in a solution with tools, where ``answers`` returns solutions; None:
        it returns none.

    Raises:
      ValueError: names the item where the function raises, or returns an agent that is not in the team, a
        value that is not a text, a chain with a gap, or a bad row; also if there is no demonstration at all.
    """
    demonstrations = []
    for item in task.items:
        where = f"{FIELD}={name!r}: problem {item.task_id!r}"
        try:
            value = answers(item)
        except dotted.RAISED as error:
            raise dotted.UserCodeRefused(f"{where}: {type(error).__name__}: {error}") from error
        if value is None:
            continue
        prompts = task.prompts(item)
        if worked is not None:
            if not isinstance(value, Solution):
                raise UserError(f"{where}: got {value!r:.40}, expected a Solution, as this team has tools")
            if complaint := value.complaint():
                raise UserError(f"{where}: {complaint}")
            parts = worked(item, prompts, value)
        elif _are_rows(value):
            demonstrations += _of_rows(value, list(prompts), str(item.task_id), where)
            continue
        else:
            parts = _parts(value, prompts, reading, where)
        demonstrations += [Demonstration(a, tuple(m), text, name=str(item.task_id)) for a, m, text in parts]
    return _some(demonstrations, name)


def _are_rows(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(row, Mapping) and "messages" in row for row in value)


def _of_rows(rows: Sequence, agents: Sequence[str], name: str, where: str) -> list[Demonstration]:
    """Demonstrations of rows with messages. UserError names the first bad one."""
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UserError(f"{where}, row {number}: got {row!r:.40}, expected {{agent, messages, text}}")
        if complaints := _complaints(row, agents, None):
            raise UserError(f"{where}, row {number}: {'; '.join(complaints)}")
    return [_of_row(row, row["messages"], name) for row in rows]


def _parts(
    value: Any, prompts: Mapping[str, Sequence[dict]], reading: Reading | None, where: str
) -> list[tuple[str, Sequence[dict], str]]:
    """Agent, messages that it reads, and text, for the answers to a problem or for chains of them."""
    if isinstance(value, Mapping):
        return [(agent, prompts[agent], text) for agent, text in _checked(value, prompts, where)]
    if not (isinstance(value, list) and value and all(isinstance(chain, Mapping) for chain in value)):
        raise UserError(
            f"{where}: got {value!r:.40}, expected {{agent: text}}, a list of such chains or of rows with messages, "
            "or None"
        )
    if reading is None:
        raise UserError(f"{where}: got chains, but with this train.protocol agents do not read each other")
    return [row for chain in value for row in _chain(chain, prompts, reading, where)]


def _chain(
    chain: Mapping, prompts: Mapping, reading: Reading, where: str
) -> list[tuple[str, Sequence[dict], str]]:
    """Agent, messages that it reads, and text of the parts to imitate. UserError for a chain with a gap."""
    rows = _checked(chain, prompts, where)
    if [agent for agent, _ in rows] != list(prompts)[: len(rows)]:
        raise UserError(
            f"{where}: a chain of {', '.join(chain)}; it must have one text of each of the first agents of "
            f"{', '.join(prompts)}, in this order"
        )
    texts, before, parts = dict(rows), {}, []
    for step in reading.steps(list(prompts)):
        present = [agent for agent in step if agent in texts]
        for agent in present:
            messages = reading.show(prompts[agent], agent, before) if before else prompts[agent]
            parts += [(agent, messages, texts[agent])] if agent in reading.learners else []
        before = before | {agent: texts[agent] for agent in present}
    return parts


def _checked(by_agent: Mapping, prompts: Mapping, where: str) -> list[tuple[str, str]]:
    """Pairs of agent and text; UserError for an unknown agent, or a value that is not a text."""
    rows = []
    for agent, texts in by_agent.items():
        if agent not in prompts:
            raise UserError(f"{where}: agent {agent!r} is not in the team, it has {', '.join(prompts)}")
        for text in texts if isinstance(texts, list | tuple) else [texts]:
            if not isinstance(text, str) or not text:
                raise UserError(f"{where}: the text of {agent!r} is {text!r:.40}, expected a text")
            rows.append((agent, text))
    return rows


def _some(demonstrations: list[Demonstration], name: str) -> list[Demonstration]:
    if not any(demonstration.weight for demonstration in demonstrations):
        raise UserError(f"{FIELD}={name!r}: there is no demonstration with a weight above 0")
    return demonstrations
