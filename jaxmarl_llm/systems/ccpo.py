"""CCPO: every agent learns from its own marginal contribution (arXiv 2603.21563).

    M_n,j = R_j - C_n,j        C_n,j: what joint answer j would have earned without agent n
    A_n,k = M_n,k - baseline of its group [/ std]

C comes from further answers that are judged after the rollout (``train.counterfactual``, see
`counterfactuals`), so no critic is needed. M of a completion is its mean over the joint answers that contain
it; with several turns, later rewards count as in `magrpo`. Where partners answer without seeing each other
and with ``aligned``, C_n,j contains their luck in sample j, which cancels in M. An agent that contributes
nothing has M = 0.

The paper's setting is a thinker and a solver in a pipeline, where C is only the solver's mean reward
(``train.counterfactual="solo"``). Its released code adds the thinker's marginal, as a bonus, to a joint
reward that the solver receives in full. Here C is subtracted for every agent, and nothing is added. C of
``solo`` is one number per problem, so it is already a baseline and any other baseline cancels it: use it with
``train.baseline="none"``. SEPO, the paper's second kind of credit (self-evaluations), is not implemented.

C3 (arXiv 2603.06859, second version) objects that a conversation without an agent is not the one that took
place. Removing an answer is not replacing it: it measures how much the partners depend on having any answer
there. ``sample`` and ``reference`` replace the answer.
"""

from jaxmarl_llm.forest import Forest, marginals
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.utils.errors import UserError


def assign(forest: Forest, config: CreditConfig) -> Credit:
    """Credit from every agent's own marginal contributions; ValueError where they were not judged."""
    if forest.counterfactuals is None:
        raise UserError("CCPO needs counterfactual rewards, and the forest has none (train.counterfactual)")
    gains_NJ = magrpo.joint_returns(forest, config) - forest.counterfactuals
    returns_R = marginals.over_answers(forest, marginals.of_members(forest, gains_NJ), config.reduce)
    return magrpo.compare(forest, returns_R, magrpo.groups(forest, config.group_by), config)
