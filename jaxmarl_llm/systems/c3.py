"""C3: contextual counterfactual credit by replay (arXiv 2603.06859).

A transcript can be restored exactly, so at every point of the conversation alternatives can be drawn from
the same context and continued. With Rbar_k the mean reward of all conversations that go through sample k,

    A_k = Rbar_k - 1/(n-1) sum_{j != k} Rbar_j        over the n siblings: same agent, same context

The agents speak in order, each sees what those before it said (`protocols.Tree`); the siblings are the
samples that continue the same turn. The contrast is between two contexts that differ in one decision alone,
so partners' luck stays out of it, as far as the subtree's mean reaches.
"""

import dataclasses

from jaxmarl_llm import credit
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit


def assign(forest: Forest, config: CreditConfig) -> Credit:
    """Advantages of every turn against the other continuations of what it continues."""
    groups_R, _ = credit.keys_by(
        "parent",
        item=[turn.item for turn in forest.turns],
        agent=[turn.agent for turn in forest.turns],
        parent=[turn.parent for turn in forest.turns],
    )
    own = dataclasses.replace(config, baseline="leave_one_out")
    return magrpo.compare(forest, magrpo.returns(forest, own), groups_R, own)
