"""One model that writes all roles of a task, each under its tag: the centralised baseline (N = 1).

The reply of every role stands under a line with the role's name in brackets. A role whose tag is missing has
an empty reply.
"""

from __future__ import annotations

import dataclasses
import os.path
import re
from collections.abc import Mapping, Sequence

from jaxmarl_llm.tasks.judgement import Judgement, check_batch
from jaxmarl_llm.tasks.types import Task
from jaxmarl_llm.utils.errors import UserError


class CentralisedTask:
    """One agent plays all agents of a task.

    Args:
      task: a task with several agents; items, judge and scale stay the same.
      agent: the name of the single agent.
    """

    def __init__(self, task: Task, agent: str = "team"):
        if len(task.agents) < 2:
            raise UserError(f"agents of the task are {task.agents!r}; a centralised task needs two or more")
        self.items, self.normalise, self.reward_range = task.items, task.normalise, task.reward_range
        self.part_names, self.agents, self.roles = task.part_names, (agent,), tuple(task.agents)
        self._task = task
        self.tools = getattr(task, "tools", None)

    def prompts(self, item) -> dict[str, list[dict[str, str]]]:
        """Chat messages: the chats of all roles, merged into one."""
        return {self.agents[0]: merge(self._task.prompts(item))}

    def references(self, item) -> dict[str, str | list[str]] | None:
        """Reference answers of all roles, each under its tag; None where the task has none for the item.

        If roles have lists of texts, the n-th texts of all roles form one answer.
        """
        references = getattr(self._task, "references", None)
        if references is None:
            raise UserError("the task has no reference answers")
        by_role = references(item)
        if not by_role or all(isinstance(text, str) for text in by_role.values()):
            return by_role and {self.agents[0]: tagged(by_role)}
        return {self.agents[0]: _tagged_lists(by_role)}

    def judge(self, items: Sequence, completions: dict[str, list[str]]) -> list[Judgement]:
        """Judgements of joint answers, in order, by the wrapped task.

        The roles' own rewards (`Judgement.local`) are left out: the single agent earns the total.
        """
        check_batch(items, completions, self.agents)
        replies = [split(text, self.roles) for text in completions[self.agents[0]]]
        by_role = {role: [texts[role] for texts in replies] for role in self.roles}
        return [dataclasses.replace(judged, local={}) for judged in self._task.judge(items, by_role)]

    def feedback(self, answers: Sequence) -> list[dict[str, str]]:
        """The feedback for all roles, each under its tag."""
        roles = self.roles
        apart = [
            dataclasses.replace(a, completions=split(a.completions[self.agents[0]], roles)) for a in answers
        ]
        return [{self.agents[0]: tagged(texts)} for texts in self._task.feedback(apart)]


def merge(prompts: Mapping[str, Sequence[dict[str, str]]]) -> list[dict[str, str]]:
    """Merge the chats of all roles message by message, each role's text under its tag.

    Lines with which all roles' questions begin, such as the problem, are written once, before the tags. Only
    the first role's system message is kept. ValueError if the message roles of the chats differ in order.
    """
    kinds = {tuple(message["role"] for message in messages) for messages in prompts.values()}
    if len(kinds) != 1:
        raise UserError(f"the prompts of {', '.join(prompts)} differ in their order: {sorted(kinds)}")
    merged = []
    for messages in zip(*prompts.values(), strict=True):
        first = messages[0]
        texts = {role: message["content"] for role, message in zip(prompts, messages, strict=True)}
        if first["role"] == "user":
            first = {**first, "content": _question(texts)}
        elif first["role"] != "system":
            first = {**first, "content": tagged(texts)}
        merged.append(first)
    return merged


def _question(texts: Mapping[str, str]) -> str:
    """All roles' questions as one: first the lines that they share, then the rest of each, under its tag."""
    lines = [text.strip().split("\n") for text in texts.values()]
    shared = os.path.commonprefix(lines)
    rests = ["\n".join(of_role[len(shared) :]) for of_role in lines]
    tagged_rests = tagged(dict(zip(texts, rests, strict=True))) if any(rests) else ""
    return "\n".join([*shared, tagged_rests] if tagged_rests else shared)


def tagged(texts: Mapping[str, str]) -> str:
    """Every role's text under its tag. No blank lines between them: a blank line may end a completion."""
    return "\n".join(f"[{role}]\n{text.strip()}" for role, text in texts.items())


def _tagged_lists(by_role: Mapping[str, str | Sequence[str]]) -> list[str]:
    """`tagged` of the n-th texts of all roles, for every n. UserError where one role has more of them."""
    lists = {role: [texts] if isinstance(texts, str) else list(texts) for role, texts in by_role.items()}
    if len({len(texts) for texts in lists.values()}) > 1:
        counts = ", ".join(f"{role} {len(texts)}" for role, texts in lists.items())
        raise UserError(
            f"the roles of a centralised task need equally many reference answers, there are: {counts}"
        )
    return [tagged(dict(zip(lists, texts, strict=True))) for texts in zip(*lists.values(), strict=True)]


def split(text: str, roles: Sequence[str]) -> dict[str, str]:
    """The text under each role's tag, under the last one if a tag occurs twice; '' if a tag is missing."""
    pieces = re.split(rf"^\[({'|'.join(map(re.escape, roles))})\][ \t]*$", text, flags=re.MULTILINE)
    parts = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    return {role: parts.get(role, "").strip("\n") for role in roles}
