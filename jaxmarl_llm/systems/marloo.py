"""MARLOO: leave-one-out REINFORCE for a team (RLOO, arXiv 2402.14740, eq. 8; CoMLRL's member of the family).

    A_g = R_g - 1/(G-1) sum_{h != g} R_h

The baseline does not contain the sample itself, so the gradient has no bias. It is MAGRPO's times G/(G-1).
"""

import dataclasses

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit


def assign(forest: Forest, config: CreditConfig) -> Credit:
    """Credit with advantages against the mean of the other samples; see `magrpo.assign`."""
    return magrpo.assign(forest, dataclasses.replace(config, baseline="leave_one_out"))
