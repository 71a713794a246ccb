"""Dr. MAS: every agent's advantages on a scale of their own (after arXiv 2602.08847).

    A_{i,g} = (R_g - mean of the group) / (sigma_i + eps)      sigma_i over all advantages of agent i

Agents whose rewards spread differently make steps of the same size; one scale for all would let the agent
with the wild rewards drown the others. That statistics are each agent's own is the paper's idea; that they
are of all its advantages in an iteration is inferred from the abstract. The released code keeps statistics
per prompt and agent, which is MAGRPO with ``normalise``.
"""

import dataclasses

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit


def assign(forest: Forest, config: CreditConfig) -> Credit:
    """Group-relative advantages over each agent's own standard deviation; see `magrpo.assign`."""
    return magrpo.assign(forest, dataclasses.replace(config, normalise=True, normalise_by="agent"))
