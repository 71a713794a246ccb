"""Centralised MAGRPO: one model writes the answers of all roles (CoMLRL's baseline of the same name).

    L(theta) = - (1/G) sum_g A_g log pi_theta(a_g | h)       a_g holds all roles' parts, A_g as in MAGRPO

The joint policy is one distribution, so no credit has to be divided. A team has the benefit that no
agent reads or writes the others' parts. The task merges the prompts and splits the reply
(`tasks.centralised`).
"""

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.utils.errors import UserError


def assign(forest: Forest, config: CreditConfig) -> Credit:
    """`magrpo.assign` of the one agent; ValueError if there are several."""
    agents = sorted({turn.agent for turn in forest.turns})
    if len(agents) > 1:
        raise UserError(f"a centralised policy is one agent, and there are {', '.join(agents)}")
    return magrpo.assign(forest, config)
