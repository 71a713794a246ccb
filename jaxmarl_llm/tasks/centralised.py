"""One model that writes all roles of a task, each under its tag: the centralised baseline (N = 1).

The reply of every role stands under a line with the role's name in brackets. A role whose tag is missing has
said nothing.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from jaxmarl_llm.tasks.judgement import Judgement, check_batch
from jaxmarl_llm.tasks.types import Task


class CentralisedTask:
    """A task whose agents are all played by one.

    Args:
      task: with several agents; its items, judge and scale stay what they are.
      agent: name of the one that plays them.
    """

    def __init__(self, task: Task, agent: str = "team"):
        if len(task.agents) < 2:
            raise ValueError(f"agents of the task are {task.agents!r}; a centralised task needs two or more")
        self.items, self.normalise, self.reward_range = task.items, task.normalise, task.reward_range
        self.part_names, self.agents, self.roles = task.part_names, (agent,), tuple(task.agents)
        self._task = task

    def prompts(self, item) -> dict[str, list[dict[str, str]]]:
        """Chat messages: those of all roles side by side."""
        return {self.agents[0]: merge(self._task.prompts(item))}

    def references(self, item) -> dict[str, str] | None:
        """Reference answers of all roles, each under its tag; None where the task has none for the item."""
        references = getattr(self._task, "references", None)
        if references is None:
            raise ValueError("the task has no reference answers")
        own = references(item)
        return own and {self.agents[0]: tagged(own)}

    def judge(self, items: Sequence, completions: dict[str, list[str]]) -> list[Judgement]:
        """Judgements of the roles' joint answers, in order; see the task's own."""
        check_batch(items, completions, self.agents)
        said = [split(text, self.roles) for text in completions[self.agents[0]]]
        return self._task.judge(items, {role: [texts[role] for texts in said] for role in self.roles})

    def feedback(self, answers: Sequence) -> list[dict[str, str]]:
        """Return what every role is told, under its tag."""
        roles = self.roles
        apart = [
            dataclasses.replace(a, completions=split(a.completions[self.agents[0]], roles)) for a in answers
        ]
        return [{self.agents[0]: tagged(told)} for told in self._task.feedback(apart)]


def merge(prompts: Mapping[str, Sequence[dict[str, str]]]) -> list[dict[str, str]]:
    """Merge the chats of all roles into one: message by message, every role's under its tag.

    Of system messages the first role's stays. ValueError if the chats do not alternate alike.
    """
    kinds = {tuple(message["role"] for message in messages) for messages in prompts.values()}
    if len(kinds) != 1:
        raise ValueError(f"the prompts of {', '.join(prompts)} differ in their order: {sorted(kinds)}")
    merged = []
    for said in zip(*prompts.values(), strict=True):
        texts = {role: message["content"] for role, message in zip(prompts, said, strict=True)}
        first = said[0]
        merged.append(first if first["role"] == "system" else {**first, "content": tagged(texts)})
    return merged


def tagged(texts: Mapping[str, str]) -> str:
    """Every role's text under its tag. No blank lines between them: a blank line may end a completion."""
    return "\n".join(f"[{role}]\n{text.strip()}" for role, text in texts.items())


def split(text: str, roles: Sequence[str]) -> dict[str, str]:
    """Return what stands under each role's tag, the last one if it occurs twice; '' where there is none."""
    pieces = re.split(rf"^\[({'|'.join(map(re.escape, roles))})\][ \t]*$", text, flags=re.MULTILINE)
    found = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    return {role: found.get(role, "").strip("\n") for role in roles}
