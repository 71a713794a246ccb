"""Diagnostics of credit: is there a signal, which agent earned it, and do the agents' signals agree?

Nothing here is trained on. Shares are 0..1; without anything to count a share is NaN and a spread 0. NaN in
an input also marks rows or joint answers that do not exist: they are ignored.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.credit.joint import counterfactual_credit
from jaxmarl_llm.credit.segments import (
    check_rows,
    deviation,
    equal_groups,
    segment_count,
    segment_std,
    segment_sum,
    segment_variance,
)
from jaxmarl_llm.utils.errors import UserError

TOLERANCE = 1e-5  # larger than the rounding error of a mean of rewards of order 1


def zero_signal_share(returns_R, group_R, *, num_groups: int) -> jax.Array:
    """Share of non-empty groups whose returns are all equal (no gradient): [R], [R] -> scalar in [0, 1].

    >>> zero_signal_share([1.0, 2.0, 5.0, 5.0], [0, 0, 1, 1], num_groups=2).tolist()
    0.5
    """
    returns_R, group_R = check_rows(returns_R, group_R, num_groups)
    returns_R, group_R = _known(returns_R, group_R, num_groups)
    used_J = segment_count(group_R, num_groups=num_groups) > 0
    silent_J = used_J & equal_groups(returns_R, group_R, num_groups)
    return jnp.where(jnp.any(used_J), jnp.sum(silent_J) / jnp.maximum(jnp.sum(used_J), 1), jnp.nan)


def advantage_spread(advantages_R, group_R, *, num_groups: int) -> jax.Array:
    """Mean over non-empty groups of the advantages' population standard deviation: [R], [R] -> scalar.

        S = (1/J) sum_j sqrt( (1/G_j) sum_{g in j} (A_g - mean_j)^2 )

    In units of the return (about 1 with `normalise` if every group has a signal: GRPO, arXiv 2402.03300).
    Differentiable, except for groups of equal advantages, whose gradient is 0.

    >>> advantage_spread([-1.0, 1.0, 0.0, 0.0], [0, 0, 1, 1], num_groups=2).tolist()
    0.5
    """
    return _mean_of_used(segment_std, advantages_R, group_R, num_groups)


def within_group_variance(values_R, group_R, *, num_groups: int) -> jax.Array:
    """Mean over non-empty groups of the population variance: returns or advantages [R], keys [R] -> scalar.

        V = (1/J) sum_j (1/G_j) sum_{g in j} (x_g - mean_j)^2         in squared units of the values

    A diagnostic of C3 (arXiv 2603.06859): of two kinds of credit that rank samples alike, the one with less
    variance learns with less noise. Differentiable; a group of equal values has gradient 0.

    >>> within_group_variance([-3.0, 3.0, 1.0, 1.0], [0, 0, 1, 1], num_groups=2).tolist()
    4.5
    """
    return _mean_of_used(segment_variance, values_R, group_R, num_groups)


def free_rider_rate(rewards_J, counterfactuals_NJ, *, tolerance: float = TOLERANCE) -> jax.Array:
    """Share of joint answers whose reward does not fall when an agent's part is replaced: -> float32 [N].

        F_n = mean_j 1[ R_j - C_n,j <= tolerance ]

    A joint answer that earns nothing cannot fall: make its reward NaN to measure only the others. It is a
    count, so it has no gradient. The marginal is that of difference rewards (Wolpert and Tumer 2001; CCPO,
    arXiv 2603.21563).

    >>> free_rider_rate([3.0, 1.0], [[1.0, 1.0], [3.0, 2.0]]).tolist()
    [0.5, 1.0]

    Args:
      rewards_J: rewards of the joint answers, any axes; NaN without a reward.
      counterfactuals_NJ: rewards of the same answers with agent n's part replaced, [N, ..]; see
        `counterfactual_credit`. NaN where they were not computed.
      tolerance: a fall of at most this does not count, in units of the reward; the default is for rounding.

    Returns:
      [N]; NaN for an agent without a counterfactual.
    """
    marginals_NJ = _marginals(rewards_J, counterfactuals_NJ)
    return _share(marginals_NJ <= tolerance, ~jnp.isnan(marginals_NJ))


def dominance_rate(rewards_J, counterfactuals_NJ, *, tolerance: float = TOLERANCE) -> jax.Array:
    """Share of joint answers whose reward falls only if this agent's part is replaced: -> float32 [N].

        D_n = mean_j 1[ R_j - C_n,j > tolerance  and  R_j - C_m,j <= tolerance for all m != n ]

    Each joint answer counts for at most one agent, so the sum over agents is the share that depends on
    exactly one agent. Only joint answers with all counterfactuals count; arguments and marginals as in
    `free_rider_rate`. It is a count, so it has no gradient.

    >>> dominance_rate([3.0, 1.0], [[1.0, 0.0], [3.0, 0.0]]).tolist()
    [0.5, 0.0]
    """
    marginals_NJ = _marginals(rewards_J, counterfactuals_NJ)
    matters_NJ = marginals_NJ > tolerance
    alone_NJ = matters_NJ & (jnp.sum(matters_NJ, axis=0, keepdims=True) == 1)
    known_J = ~jnp.any(jnp.isnan(marginals_NJ), axis=0, keepdims=True)
    return _share(alone_NJ, jnp.broadcast_to(known_J, marginals_NJ.shape))


def sign_agreement(advantages_NJ) -> jax.Array:
    """Share of the pairs of agents whose advantages in a joint answer have the same sign: [N, J] -> scalar.

        S = sum_{j, n<m} 1[ A_n,j A_m,j > 0 ] / sum_{j, n<m} 1[ A_n,j A_m,j != 0 ]

    1 where all agents learn the same from every joint answer (``aligned``: they share one number), 1/2 where
    their signals are unrelated; lower where what is good for one is bad for another. Advantages that are 0 or
    NaN are ignored, and without any pair S is NaN. It is a count, so it has no gradient.

    >>> sign_agreement([[1.0, -1.0, 2.0, 0.0], [3.0, 1.0, 1.0, 1.0]]).tolist()
    0.6666666865348816
    """
    advantages_NJ = jnp.asarray(advantages_NJ, jnp.float32)
    if advantages_NJ.ndim != 2:
        raise UserError(f"advantages have shape {advantages_NJ.shape}; allowed: [agents, joint answers]")
    signs_NJ = jnp.sign(jnp.nan_to_num(advantages_NJ))
    size_J = jnp.sum(jnp.abs(signs_NJ), axis=0)
    # The squared sum of signs counts every pair twice (1 if it agrees, else -1), and each agent with itself.
    surplus = jnp.sum(jnp.sum(signs_NJ, axis=0) ** 2 - size_J) / 2
    pairs = jnp.sum(size_J**2 - size_J) / 2
    return jnp.where(pairs > 0, (1 + surplus / jnp.maximum(pairs, 1.0)) / 2, jnp.nan)


def rank_correlation(x_R, y_R, group_R=None, *, num_groups: int = 1) -> jax.Array:
    """Spearman's rank correlation of values within each group: [R], [R], keys [R] -> float32 [J].

        rho = sum (p - mean p)(q - mean q) / sqrt( sum (p - mean p)^2  sum (q - mean q)^2 )

    where p, q are the ranks of x, y; tied values share the mean of their ranks (Spearman 1904). NaN for a
    group where all x, or all y, are equal, or with one row. Time and memory grow with R^2. Ranks have no
    gradient.

    >>> rank_correlation([1.0, 2.0, 2.0, 9.0], [10.0, 20.0, 30.0, 40.0]).tolist()
    [0.9486833214759827]
    """
    group_R = jnp.zeros(np.shape(x_R), jnp.int32) if group_R is None else group_R
    x_R, group_R = check_rows(x_R, group_R, num_groups)
    y_R, _ = check_rows(y_R, group_R, num_groups)
    x_R, group_R = _known(x_R, group_R, num_groups)
    y_R, group_R = _known(y_R, group_R, num_groups)
    p_R, q_R = (deviation(_ranks(values_R, group_R), group_R, num_groups) for values_R in (x_R, y_R))
    total = {"group_R": group_R, "num_groups": num_groups}
    squares_J = segment_sum(p_R**2, **total) * segment_sum(q_R**2, **total)
    rho_J = segment_sum(p_R * q_R, **total) / jnp.sqrt(jnp.where(squares_J > 0, squares_J, 1.0))
    return jnp.where(squares_J > 0, jnp.clip(rho_J, -1.0, 1.0), jnp.nan)


def credit_fidelity(credit_R, truth_R, group_R=None, *, num_groups: int = 1) -> jax.Array:
    """Measure how well credit ranks samples compared with replay: the mean `rank_correlation` over the
    groups.

    The true value of a sample is measured by fixing everything before it and drawing what follows again many
    times; C3 (arXiv 2603.06859) reports this correlation. Without keys all samples are one group, and easy
    and hard problems are compared too; with keys, only samples of the same prompt. Ranks have no gradient.

    >>> credit_fidelity([1.0, 2.0, 5.0, 3.0], [0.0, 1.0, 9.0, 7.0], [0, 0, 1, 1], num_groups=2).tolist()
    1.0

    Args:
      credit_R: assigned credit, one per sample.
      truth_R: replayed ground truth, in any unit: only its order matters.
      group_R: integer keys; those outside [0, num_groups) mark rows that are not samples.
      num_groups: number of groups (static).

    Returns:
      Scalar in [-1, 1]; NaN where no group has a correlation.
    """
    rho_J = rank_correlation(credit_R, truth_R, group_R, num_groups=num_groups)
    return jnp.nanmean(rho_J)


def _known(values_R: jax.Array, group_R: jax.Array, num_groups: int) -> tuple[jax.Array, jax.Array]:
    """Values and keys from `check_rows`, where rows with NaN are marked as padding."""
    missing_R = jnp.isnan(values_R)
    return jnp.where(missing_R, 0.0, values_R), jnp.where(missing_R, num_groups, group_R)


def _ranks(values_R: jax.Array, group_R: jax.Array) -> jax.Array:
    """Ranks from 1 within the groups; tied values get the mean of their ranks."""
    same_RR = group_R[:, None] == group_R[None, :]
    below_R = jnp.sum(same_RR & (values_R[None, :] < values_R[:, None]), axis=1)
    tied_R = jnp.sum(same_RR & (values_R[None, :] == values_R[:, None]), axis=1)
    return below_R + (tied_R + 1) / 2


def _mean_of_used(statistic: Callable, values_R, group_R, num_groups: int) -> jax.Array:
    """Mean of a statistic over the non-empty groups (empty ones hold 0); 0 if there are none."""
    values_R, group_R = _known(*check_rows(values_R, group_R, num_groups), num_groups)
    used = jnp.sum(segment_count(group_R, num_groups=num_groups) > 0)
    return jnp.sum(statistic(values_R, group_R, num_groups=num_groups)) / jnp.maximum(used, 1)


def _share(counted_NJ: jax.Array, known_NJ: jax.Array) -> jax.Array:
    """Share of the counted entries among the known ones, per agent [N]; NaN if none is known."""
    known_N = jnp.sum(known_NJ, axis=1)
    return jnp.where(known_N > 0, jnp.sum(counted_NJ & known_NJ, axis=1) / jnp.maximum(known_N, 1), jnp.nan)


def _marginals(rewards_J, counterfactuals_NJ) -> jax.Array:
    """Reward minus counterfactual reward, [N, J] for any axes of the joint answers; NaN where either is."""
    marginals_NJ = counterfactual_credit(rewards_J, counterfactuals_NJ)
    missing = jnp.isnan(jnp.asarray(rewards_J))[None] | jnp.isnan(jnp.asarray(counterfactuals_NJ))
    return jnp.where(missing, jnp.nan, marginals_NJ).reshape(len(marginals_NJ), -1)
