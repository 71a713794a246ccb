"""MAReMax: a team learns against its best sample (after ReMax, arXiv 2310.10505; CoMLRL's form).

    A_g = R_g - max_h R_h

No advantage is positive: samples worse than the best become less likely, and the best is not changed. ReMax
itself uses the reward of the greedy answer as baseline, which does not depend on the sample; the maximum
does, so this gradient is biased.
"""

import dataclasses

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit


def assign(forest: Forest, config: CreditConfig) -> Credit:
    """Credit with advantages against the best sample of the group; see `magrpo.assign`."""
    return magrpo.assign(forest, dataclasses.replace(config, baseline="max"))
