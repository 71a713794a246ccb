"""C3: contextual counterfactual credit by replay (arXiv 2603.06859).

A transcript can be restored exactly, so at every point of the conversation alternatives can be drawn from the
same context and continued. With Rbar_k the mean reward of all conversations that contain sample k,

    A_k = Rbar_k - 1/(n-1) sum_{j != k} Rbar_j        over the n siblings: same agent, same context

The agents answer in order, and each sees the earlier answers (`protocols.Tree`); the siblings are the samples
that continue the same turn. The compared contexts differ in one decision only, so the partners' luck does not
count, as far as the mean over the subtree averages it out.
"""

import dataclasses

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit


def assign(forest: Forest, config: CreditConfig) -> Credit:
    """Credit with the advantages of every turn against its siblings, the samples of the same parent."""
    loo_config = dataclasses.replace(config, baseline="leave_one_out")
    inputs = forest, magrpo.returns(forest, loo_config), magrpo.sibling_groups(forest)
    return magrpo.compare(*inputs, loo_config)
