"""AT-GRPO: groups by agent and turn, continuing from the best answer (Stronger-MAS, arXiv 2510.11062).

At every turn t of item e each agent i draws its samples from one prompt, and they compete with each other:

    A_k = (r_k - mean) / std  over the group (e, i, t),      r = r_team + w * r_local

The reward is that of the turn itself. Later rewards do not count, because only the best joint answer is
continued (``train.hand_on="best"``), after all agents of the turn were judged. r_local is the agent's own
reward (`Judgement.local`), w its weight. The paper's alpha weighs the team's reward instead; the difference
is a factor that the division by std cancels.
"""

import dataclasses

import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit


def assign(forest: Forest, config: CreditConfig) -> Credit:
    """Credit with the advantages of every turn among the samples that answer the same prompt."""
    options = dict(discount=0.0, normalise=True, chain=False, backup="mean", turn_loss="mean")
    fixed_config = dataclasses.replace(config, **options)
    returns_R = magrpo.returns(forest, fixed_config) + config.local_weight * local_rewards(forest)
    agents, items, stages, before = zip(*magrpo.places(forest), strict=True)
    groups_R, _ = credit.keys_by(
        "environment_agent_turn", environment=list(zip(items, before, strict=True)), agent=agents, turn=stages
    )
    return magrpo.compare(forest, returns_R, magrpo.last_of_calls(forest, groups_R), fixed_config)


def local_rewards(forest: Forest) -> np.ndarray:
    """Return each turn's own reward, float32 (turns,): its mean over joint answers, 0 where unknown."""
    joint_M, turn_M = forest.memberships()
    local_M = [
        forest.joints[j].judgement.local.get(forest.turns[t].agent, 0.0)
        for j, t in zip(joint_M.tolist(), turn_M.tolist(), strict=True)
    ]
    size = len(forest.turns)
    return credit.on_host(credit.segment_mean, np.float32(local_M), turn_M, num_groups=size, length=size)
