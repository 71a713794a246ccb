"""Coding problems with half of the description, for an agent that may ask a partner who has read all of it.

The agent reads the signature and the first half of the docstring's words; the partner knows the whole
docstring. The dialogue ends with a text that defines the function. It is judged by the problem's tests, as in
a `CodingTask` with one agent. After the backend programming tasks of ColBench (arXiv 2503.15478), whose
partner is a model.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.task import CodingTask
from jaxmarl_llm.tasks.coding.text import extract_function
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tasks.programs.prompts import Messages
from jaxmarl_llm.tasks.reasoning import prompts
from jaxmarl_llm.utils.errors import UserError

CUT = "…"
ASK = (
    "The description is cut. Your partner knows all of it: ask one short question at a time. Once you know what is "
    "wanted, write the whole function."
)
_REST = "The description goes on: "


class CodingDialogue:
    """A coding task for one agent, whose prompts leave out half of each description.

    Args:
      task: a task with one agent; its items, judge and scale stay the same.

    Raises:
      ValueError: for several agents, or a problem without a docstring of two words or more.
    """

    def __init__(self, task: CodingTask):
        if len(task.agents) != 1:
            raise UserError(f"agents of the task are {task.agents!r}; one asks in a dialogue")
        self.items, self.normalise, self.reward_range = task.items, task.normalise, task.reward_range
        self.part_names, self.agents, self._task = task.part_names, tuple(task.agents), task
        for item in self.items:
            if len(docstring(item).split()) < 2:
                raise UserError(
                    f"{item.task_id} has no docstring of two words or more in its prompt, which could be cut for "
                    "train.protocol='dialogue'"
                )
            if docstring(cut(item)) != f"{halves(item)[0]} {CUT}":
                raise UserError(
                    f"{item.task_id} has a docstring that cannot be cut for train.protocol='dialogue': the prompt is "
                    "no Python with half of it"
                )

    def prompts(self, item: CodingItem) -> dict[str, Messages]:
        """The task's chat with the shortened problem, and what the agent may do."""
        ((agent, messages),) = self._task.prompts(cut(item)).items()
        *before, question = messages
        return {agent: [*before, {**question, "content": f"{question['content']}\n\n{ASK}"}]}

    def privileged(self, item: CodingItem) -> str:
        """The whole docstring."""
        return docstring(item)

    def briefing(self, item: CodingItem) -> str:
        """What the partner reads before the first question."""
        return prompts.briefing(item.prompt.strip())

    def ends(self, answer) -> bool:
        """Whether a text in a dialogue (`protocols.Answer`) defines the function."""
        (text,) = answer.completions.values()
        return bool(extract_function(text, answer.item.entry_point))

    def references(self, item: CodingItem) -> dict[str, str] | None:
        """The reference answer, None where the data has none."""
        return self._task.references(item)

    def judge(self, items: Sequence[CodingItem], completions: dict[str, list[str]]) -> list[Judgement]:
        """The task's judgements."""
        return self._task.judge(items, completions)

    def score(self, items: Sequence[CodingItem], completions: dict[str, list[str]]) -> list[dict[str, Any]]:
        """Parts and "total" per answer; see `judge`."""
        return self._task.score(items, completions)


def docstring(item: CodingItem) -> str:
    """The docstring of a problem's function, with its spaces squeezed; '' if there is none."""
    function = _function(item)
    return " ".join((ast.get_docstring(function) or "").split()) if function else ""


def _function(item: CodingItem) -> ast.FunctionDef | None:
    """The function that a problem asks for, in its prompt; None if the prompt is not Python."""
    for source in (item.prompt, f"{item.prompt.rstrip()}\n    pass\n"):
        with contextlib.suppress(SyntaxError, ValueError):
            functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
            return next((node for node in reversed(functions) if node.name == item.entry_point), None)
    return None


def halves(item: CodingItem) -> tuple[str, str]:
    """The first half of a docstring's words (the larger half if uneven), and the rest."""
    words = docstring(item).split()
    middle = (len(words) + 1) // 2
    return " ".join(words[:middle]), " ".join(words[middle:])


def cut(item: CodingItem) -> CodingItem:
    """The problem with only the first half of its docstring."""
    node = _function(item).body[0]
    begin = _place(item.prompt, node.lineno, node.col_offset)
    end = _place(item.prompt, node.end_lineno, node.end_col_offset)
    words = halves(item)[0].replace("\\", r"\\").replace('"""', r"\"\"\"")
    return dataclasses.replace(item, prompt=f'{item.prompt[:begin]}"""{words} {CUT}"""{item.prompt[end:]}')


def _place(text: str, line: int, column: int) -> int:
    """The index of a place of Python code in its text."""
    lines = re.split(
        r"(?<=\n)|(?<=\r)(?!\n)", text
    )  # not splitlines, which also splits at ends that Python does not
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


class Describer:
    """The partner, for `experts.scripted.Scripted`: it answers any question with the rest of the description.

    items: the problems that it is asked about.
    """

    def __init__(self, items: Sequence[CodingItem]):
        self._rest = {item.prompt.strip(): halves(item)[1] for item in items}

    def __call__(self, request: Any, draw: int) -> str:
        """The reply."""
        text = request.messages[0]["content"]
        rests = (rest for prompt, rest in self._rest.items() if text.startswith(f"{prompt}\n"))
        return next((_REST + rest for rest in rests), "I do not know.")
