"""A task whose roles are played by different agents in every turn (`protocols.relay`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from jaxmarl_llm.tasks.judgement import Judgement, check_batch
from jaxmarl_llm.tasks.types import Messages, Task
from jaxmarl_llm.utils.errors import UserError


class RelayTask:
    """The task of one turn, for the agents of all turns. Each joint answer comes from one turn's agents.

    Args:
      task: a task with one role per agent of a turn; items, judge and scale stay the same.
      agents: names, the first turn's first, within a turn in the order of the roles.
    """

    def __init__(self, task: Task, agents: Sequence[str]):
        roles = tuple(task.agents)
        if not agents or len(agents) % len(roles):
            raise UserError(
                f"agents is {tuple(agents)!r}; allowed: as many for each turn as roles, {roles!r}"
            )
        self.items, self.normalise, self.reward_range = task.items, task.normalise, task.reward_range
        self.part_names, self.agents = task.part_names, tuple(agents)
        self._task, self._roles = task, roles
        self._turns = [self.agents[i : i + len(roles)] for i in range(0, len(agents), len(roles))]
        for name in ("references", "agree", "vote"):  # optional methods of a task
            if hasattr(task, name):
                setattr(self, name, getattr(self, f"_{name}"))

    def prompts(self, item) -> dict[str, Messages]:
        """Chat messages per agent: those of its role."""
        by_role = self._task.prompts(item)
        return {agent: by_role[role] for agents in self._turns for agent, role in self._named(agents)}

    def judge(self, items: Sequence, completions: dict[str, list[str]]) -> list[Judgement]:
        """Judgements of joint answers, in order; texts of other turns' agents are ''.

        ``Judgement.local`` has each role's own reward, under the name of every agent that plays it.
        """
        check_batch(items, completions, self.agents)
        by_role: dict[str, list[str]] = {role: [] for role in self._roles}
        for texts in zip(*completions.values(), strict=True):
            for role, text in self._of_turn(dict(zip(completions, texts, strict=True))).items():
                by_role[role].append(text)
        return [self._renamed(judgement) for judgement in self._task.judge(items, by_role)]

    def feedback(self, answers: Sequence) -> list[dict[str, str]]:
        """The task's feedback to each role, given to the agents that wrote the answer."""
        texts = self._task.feedback([self._by_role(answer) for answer in answers])
        return [
            {agent: by_role[role] for agent, role in self._named(tuple(answer.completions))}
            for answer, by_role in zip(answers, texts, strict=True)
        ]

    def _references(self, item) -> dict[str, str] | None:
        by_role = self._task.references(item)
        named = [pair for agents in self._turns for pair in self._named(agents)]
        return by_role and {agent: by_role[role] for agent, role in named if role in by_role}

    def _agree(self, answer) -> bool:
        return self._task.agree(self._by_role(answer))

    def _vote(self, item, chains: Sequence[Mapping[str, str]], rule: str) -> tuple[float, float]:
        return self._task.vote(item, [self._of_turn(texts) for texts in chains], rule)

    def _named(self, agents: Sequence[str]) -> list[tuple[str, str]]:
        """The agents of one turn with their roles."""
        return list(zip(agents, self._roles, strict=True))

    def _by_role(self, answer):
        """An answer with its texts by role."""
        return dataclasses.replace(answer, completions=self._of_turn(answer.completions))

    def _of_turn(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The texts by role of the turn that was answered: the one with a text other than ''."""
        answered = [agents for agents in self._turns if any(texts.get(agent) for agent in agents)]
        agents = answered[0] if answered else self._turns[0]
        return {role: texts.get(agent, "") for agent, role in self._named(agents)}

    def _renamed(self, judgement: Judgement) -> Judgement:
        local = judgement.local
        named = [pair for agents in self._turns for pair in self._named(agents) if pair[1] in local]
        return dataclasses.replace(judgement, local={agent: local[role] for agent, role in named})
