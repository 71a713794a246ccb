"""Credit: from rewards of joint actions to one advantage per sample, or per token.

Everything here is a pure function of values and integer group keys, float32 inside, and jit-able with static
sizes; only `group_keys` and `keys_by` run on the host. `on_host` calls the other functions from the host
without a compilation for every number of rows. Padding is marked by a key out of range, a length or a NaN
reward, as each function says: its result is 0 (NaN for an unknown return), and its values affect no other
row.

Losses treat an advantage as a constant. Smooth functions here are still differentiable, and neither padding
nor groups without variance give NaN.
"""

from jaxmarl_llm.credit.advantages import (
    BASELINES,
    GROUPINGS,
    STD_FLOOR,
    group_advantage,
    group_keys,
    keys_by,
    normalise_per_agent,
    row_groups,
)
from jaxmarl_llm.credit.contrast import difference_in_means
from jaxmarl_llm.credit.fidelity import (
    advantage_spread,
    credit_fidelity,
    dominance_rate,
    free_rider_rate,
    rank_correlation,
    sign_agreement,
    within_group_variance,
    zero_signal_share,
)
from jaxmarl_llm.credit.host import on_host
from jaxmarl_llm.credit.influence import influence_returns, transition_bonuses
from jaxmarl_llm.credit.joint import (
    REDUCTIONS,
    Decomposition,
    aligned_credit,
    counterfactual_credit,
    cross_counterfactuals,
    cross_credit,
    decompose_rewards,
    shapley_values,
    sums_of_squares,
    variance_shares,
)
from jaxmarl_llm.credit.segments import (
    segment_count,
    segment_leave_one_out,
    segment_max,
    segment_mean,
    segment_std,
    segment_sum,
    segment_variance,
)
from jaxmarl_llm.credit.temporal import (
    agent_chained_gae,
    agent_chained_token_gae,
    discounted_returns,
    gae,
    rewards_at_end,
    token_gae,
)
from jaxmarl_llm.credit.trees import BACKUPS, backed_up_returns
from jaxmarl_llm.credit.wait_advantage import joint_advantages, ordered_advantages

__all__ = [
    "BACKUPS",
    "BASELINES",
    "GROUPINGS",
    "REDUCTIONS",
    "STD_FLOOR",
    "Decomposition",
    "advantage_spread",
    "agent_chained_gae",
    "agent_chained_token_gae",
    "aligned_credit",
    "backed_up_returns",
    "counterfactual_credit",
    "credit_fidelity",
    "cross_counterfactuals",
    "cross_credit",
    "decompose_rewards",
    "discounted_returns",
    "dominance_rate",
    "free_rider_rate",
    "gae",
    "group_advantage",
    "group_keys",
    "difference_in_means",
    "influence_returns",
    "joint_advantages",
    "keys_by",
    "normalise_per_agent",
    "on_host",
    "ordered_advantages",
    "rank_correlation",
    "rewards_at_end",
    "row_groups",
    "segment_count",
    "segment_leave_one_out",
    "segment_max",
    "segment_mean",
    "segment_std",
    "segment_sum",
    "segment_variance",
    "shapley_values",
    "sign_agreement",
    "sums_of_squares",
    "token_gae",
    "transition_bonuses",
    "variance_shares",
    "within_group_variance",
    "zero_signal_share",
]
