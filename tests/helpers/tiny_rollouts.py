"""Rollouts of the tiny team with a task whose reward is a function of the texts."""

import functools

import jax
import tiny

from jaxmarl_llm import rollout, team
from jaxmarl_llm.protocols import Simultaneous
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams

PARAMS = SamplingParams(4)
KEY = jax.random.key(7)
ITEM_IDS = [2, 0]  # "zzz", then "x"


def total(item, *texts):
    """The item's length, plus a hundredth of each agent's first token, agent by agent in its own decade."""
    return len(item) + sum(int(text.split()[0]) / 100 ** (n + 1) for n, text in enumerate(texts))


@functools.cache
def built(models=("small", "small")):
    every = {"small": tiny.model(0), "other": tiny.model(1)}
    return team.build(every, dict(zip(tiny.AGENTS, models, strict=True)), jax.random.key(0), rank=2)


def run(task, mode="aligned", members=None, protocol=None, **options):
    members = members or built()
    trainables = [member.trainable for member in members.members]
    protocol = protocol or Simultaneous(task.prompts, samples=2)
    options = {"max_prompt_tokens": 16, "params": PARAMS} | options
    scorer = TaskScorer.of_team(task, members, mode)
    return rollout.run(protocol, members, trainables, scorer, ITEM_IDS, KEY, **options)
