"""MAREINFORCE: REINFORCE (Williams 1992) for a team, without a baseline (CoMLRL's member of the family).

    A_g = R_g

All samples of a group raise their own probability, better ones more; nothing is compared, and the variance is
that of the rewards themselves.
"""

import dataclasses

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit


def assign(forest: Forest, config: CreditConfig) -> Credit:
    """Credit with the return of every turn as its advantage; see `magrpo.assign`."""
    return magrpo.assign(forest, dataclasses.replace(config, baseline="none"))
