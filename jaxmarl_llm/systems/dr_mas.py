"""Dr. MAS: advantages divided by each agent's own standard deviation (after arXiv 2602.08847).

    A_{i,g} = (R_g - mean of the group) / (sigma_i + eps)      sigma_i over all advantages of agent i

Agents whose rewards have different variances then make steps of the same size; with one scale for all, the
agent with the largest variance would dominate. Statistics per agent are the paper's idea; that they cover all
its advantages in an iteration is inferred from the abstract. The released code keeps statistics per prompt
and agent, which is MAGRPO with ``normalise``.
The division is `credit.normalise_per_agent`.
"""

import dataclasses

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit


def assign(forest: Forest, config: CreditConfig) -> Credit:
    """Credit with group-relative advantages over each agent's own standard deviation; see `magrpo.assign`."""
    return magrpo.assign(forest, dataclasses.replace(config, normalise=True, normalise_by="agent"))
