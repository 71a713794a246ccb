"""Rollouts of a tiny team in rounds of answers and lessons, which can be broken off."""

import dataclasses

import jax
import numpy as np
from scripted_team import CountingTask, tiny_team

from jaxmarl_llm import rollout
from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.rollout.journal import Journal
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.tasks.outcomes import Outcome, ProgramJudgement

KEY = jax.random.key(3)
ROUNDS, STEPS = 2, 4  # every round is a step of answers and one of lessons


class Stop(Exception):
    pass


class Programs(CountingTask):
    """Judges as a task does whose answers are a program of each agent."""

    def judge(self, items, completions):
        return [self._with_outcomes(judgement) for judgement in super().judge(items, completions)]

    def _with_outcomes(self, judgement):
        scores = dict(zip(self.agents, judgement.parts.values(), strict=True))
        outcomes = {a: Outcome("ok", "p", s / 3, log="\n é", executions=1) for a, s in scores.items()}
        return ProgramJudgement(**dataclasses.asdict(judgement) | {"outcomes": outcomes, "local": scores})


@dataclasses.dataclass
class Rounds:
    """Answers that are judged, then lessons that are not; what is said next holds a random word and theirs.

    It keeps a count of its own, and breaks off when it is about to ask for step ``stop``.
    """

    task: CountingTask
    stop: int = -1
    count: int = 0

    def step(self, state):
        if self.count == STEPS:
            return []
        if self.count == self.stop:
            raise Stop
        lessons = tuple(turn.id for turn in state.turns if turn.turn % 2)
        word = {"role": "user", "content": f"w{3 + state.random.integers(50)}"}
        lesson_messages = tuple({"role": "user", "content": state.turns[i].text or "w3"} for i in lessons[-2:])
        own = {a: m for a, m in self.task.prompts(state.items[0]).items()}
        return [
            SpeakRequest(agent, i, (*own[agent], word, *lesson_messages), 2, self.count, shown=lessons[-2:])
            for i in range(len(state.items))
            for agent in own
        ]

    def observe(self, state, turns):
        self.count += 1
        if turns[0].turn % 2:
            return []
        ids = {(t.item, t.agent): [] for t in turns}
        for turn in turns:
            ids[turn.item, turn.agent].append(turn.id)
        return [
            Node(i, {a: tuple(ids[i, a]) for a in self.task.agents}, turns[0].turn)
            for i in range(len(state.items))
        ]


def run(task, folder=None, key=KEY, stop=-1, temperature=1.0, like=()):
    team = tiny_team()
    options = dict(params=SamplingParams(3, temperature), max_prompt_tokens=64)
    trainables = [member.trainable for member in team.members]
    scorer = TaskScorer.of_team(task, team, "aligned")
    kept = folder and Journal(folder, like)
    return rollout.run(
        Rounds(task, stop), team, trainables, scorer, [1, 0], key, journal=kept, **options
    )


def assert_equal(one, other):
    assert one.joints == other.joints and one.items == other.items and len(one.turns) == len(other.turns)
    for turn, same in zip(one.turns, other.turns, strict=True):
        for field in dataclasses.fields(Turn):
            value, again = getattr(turn, field.name), getattr(same, field.name)
            if isinstance(value, np.ndarray):
                assert value.dtype == again.dtype
            np.testing.assert_array_equal(value, again, strict=True)
