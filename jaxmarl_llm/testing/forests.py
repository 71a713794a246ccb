"""A forest for checks, as a rollout of any team might have returned it; its texts do not matter."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.tasks.judgement import Judgement


def small_forest(
    agents: Sequence[str] = ("aux", "main"), rewards=((1.0, 2.0), (3.0, 0.0)), tokens: int = 90
) -> Forest:
    """The forest of one turn in which every agent has answered every item, sample by sample.

    Args:
      agents: names.
      rewards: by item, the rewards of its aligned joint answers; the same number for each item.
      tokens: token ids are from 1 to less than this; completions have one to three of them.

    Returns:
      A forest whose judgements have local rewards, 1 for each agent, and whose counterfactual rewards are 0.5.
    """
    samples, turns, joints = len(rewards[0]), [], []
    for item, own_rewards in enumerate(rewards):
        first = len(turns)
        for n, agent in enumerate(agents):
            place = dict(request=item * len(agents) + n, agent=agent, item=item, turn=0)
            turns += [_turn(len(turns) + sample, tokens, sample=sample, **place) for sample in range(samples)]
        for sample, reward in enumerate(own_rewards):
            ids = tuple(first + samples * n + sample for n in range(len(agents)))
            judgement = Judgement({}, reward, local=dict.fromkeys(agents, 1.0))
            joints.append(Joint(item, ids, judgement, node=item))
    items = tuple(SimpleNamespace(task_id=f"item {item}") for item in range(len(rewards)))
    rewards_NJ = np.full((len(agents), len(joints)), 0.5, np.float32)
    return Forest(items, tuple(turns), tuple(joints), counterfactuals=rewards_NJ)


def _turn(i: int, tokens: int, **place) -> Turn:
    """Turn i, with a prompt of 2 tokens or more and its own completion."""
    completion = (1 + (7 * i + np.arange(1 + i % 3)) % (tokens - 1)).astype(np.int32)
    return Turn(
        id=i,
        prompt=np.arange(1, 3 + place["item"], dtype=np.int32),
        completion=completion,
        logprobs=np.zeros(len(completion), np.float32),
        text=f"text {i}",
        finished=i % 3 < 2,
        **place,
    )
