"""From rewards of joint answers to the credit of each agent's part in them.

Suffixes: N agents, B prompts, G group samples. A reward array of ``cross`` joint answers is [B, G, .., G],
axis 1+n for agent n's sample. A NaN in it is a reward that does not apply, or padding. Returns ignore it.
Decompositions and counterfactuals need full tables: an item (row of B) with a NaN gets 0 everywhere and
enters no sum. All functions except the shares and sums of squares are linear in the rewards.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_llm.credit.segments import check_choice, deviation
from jaxmarl_llm.utils.errors import UserError

REDUCTIONS = ("mean", "sum")


def aligned_credit(rewards_BG, *, num_agents: int) -> jax.Array:
    """Returns when joint action g is every agent's sample g: [B, G] -> [N, B, G], the same for all agents.

        R_n[b, g] = r[b, g]

    The reward is shared (a cooperative Dec-POMDP; MAGRPO, arXiv 2508.04652, with ``aligned`` joint answers):
    every agent's sample g gets the reward of the joint action. NaN stays NaN. The gradient to a reward is the
    sum of the gradients to the agents' returns.

    >>> aligned_credit([[1.0, 2.0]], num_agents=2).tolist()
    [[[1.0, 2.0]], [[1.0, 2.0]]]

    Raises:
      ValueError: rewards that are not [B, G], or no agent.
    """
    rewards_BG = jnp.asarray(rewards_BG, jnp.float32)
    if rewards_BG.ndim != 2 or num_agents < 1:
        raise UserError(f"rewards {rewards_BG.shape}, num_agents={num_agents}; allowed: [B, G], 1 or more")
    return jnp.broadcast_to(rewards_BG[None], (num_agents, *rewards_BG.shape))


def cross_credit(rewards_BGG, *, reduce: str = "mean") -> jax.Array:
    """Returns when every combination of the agents' samples was scored: [B, G, .., G] -> [N, B, G].

    Axis 1+n of the input is agent n's sample. The return of agent n's sample k is the mean (or the sum) of
    the G^(N-1) rewards of the joint actions that contain it:

        R_n[b, k] = mean_{g: g_n = k} r[b, g_1, .., g_N]

    The mean estimates E[r | agent n gives k], averaged over the partners' samples, and keeps the scale
    (MAGRPO, arXiv 2508.04652). The sum is what CoMLRL 1.4.3 uses: it grows with G^(N-1). Linear: a reward
    gets the gradients of its N samples (for the mean, divided by G^(N-1)).

    >>> cross_credit([[[1.0, 2.0], [5.0, 8.0]]]).tolist()
    [[[1.5, 6.5]], [[3.0, 5.0]]]

    Args:
      rewards_BGG: [B, G, .., G], one axis per agent. NaN where no reward applies: the mean ignores it, and in
        the sum it counts as the mean of the others.
      reduce: one of REDUCTIONS.

    Returns:
      float32 [N, B, G], in units of the reward; NaN for a sample without any reward that applies.

    Raises:
      ValueError: rewards of another shape, or an unknown reduce.
    """
    check_choice("reduce", reduce, REDUCTIONS)
    rewards = _matrix(rewards_BGG)
    sizes = rewards.shape[1:]
    agent_axes = range(1, rewards.ndim)
    others = [tuple(a for a in agent_axes if a != agent_axis) for agent_axis in agent_axes]
    known = ~jnp.isnan(rewards)
    # Twice: a NaN that is only selected out afterwards would still reach the gradient.
    rewards = jnp.where(known, rewards, 0.0)
    total_NBG = jnp.stack([jnp.sum(rewards, axis=axes) for axes in others])
    count_NBG = jnp.stack([jnp.sum(known, axis=axes) for axes in others])
    share_NBG = (1.0 if reduce == "mean" else sizes[0] ** (len(sizes) - 1)) / jnp.maximum(count_NBG, 1)
    return jnp.where(count_NBG > 0, total_NBG * share_NBG, jnp.nan)


class Decomposition(NamedTuple):
    """The result of `decompose_rewards`; ``interaction`` has the shape of the rewards."""

    mean_B: jax.Array
    main_NBG: jax.Array
    interaction: jax.Array


def decompose_rewards(rewards_BGG) -> Decomposition:
    """Split rewards of all joint answers into the effect of each agent alone and that of their combination.

        r[b, g_1, .., g_N] = mean[b] + sum_n main_n[b, g_n] + interaction[b, g_1, .., g_N]
        main_n[b, k] = mean_{g: g_n = k} r[b, g] - mean[b]

    This is the N-way analysis of variance of a full table with one value per cell, all interactions together.
    Main effects sum to 0 over their samples and the interaction to 0 over all partners' samples, so the parts
    are orthogonal and their sums of squares add up (`sums_of_squares`). mean + main_n is `cross_credit`, and
    main_n is its advantage: ``cross`` trains only on the main effects. The decomposition is Fisher's (1925),
    for functions of independent variables Hoeffding's (1948). It is linear in the rewards and a projection:
    the gradient to a reward is the same decomposition of the gradients to the parts.

    >>> parts = decompose_rewards([[[1.0, 2.0], [5.0, 8.0]]])
    >>> parts.mean_B.tolist(), parts.main_NBG.tolist(), parts.interaction.tolist()
    ([4.0], [[[-2.5, 2.5]], [[-1.0, 1.0]]], [[[0.5, -0.5], [-0.5, 0.5]]])

    Args:
      rewards_BGG: [B, G, .., G], one axis per agent.

    Returns:
      mean_B, main_NBG and the interaction [B, G, .., G], float32, in units of the reward.

    Raises:
      ValueError: rewards of another shape.
    """
    rewards, _ = _complete(rewards_BGG)
    agent_axes = tuple(range(1, rewards.ndim))
    items_R = jnp.repeat(jnp.arange(len(rewards)), rewards[0].size)
    remainder = deviation(rewards.reshape(-1), items_R, len(rewards)).reshape(rewards.shape)
    # The rounding error of a mean far from 0 can be as large as the effects: also subtract the remaining
    # mean.
    rest_B = jnp.mean(remainder, axis=agent_axes)
    remainder = remainder - _spread(rest_B, (0,), rewards.ndim)
    mean_B = jnp.mean(rewards, axis=agent_axes) + rest_B
    main_NBG = cross_credit(remainder)
    for n, axis in enumerate(agent_axes):
        remainder = remainder - _spread(main_NBG[n], (0, axis), rewards.ndim)
    return Decomposition(mean_B, main_NBG, remainder)


def sums_of_squares(parts: Decomposition) -> tuple[jax.Array, jax.Array]:
    """Sum squares over every item's G^N joint answers: main effects [N, B] and interaction [B].

        SS_n[b] = G^(N-1) sum_k main_n[b, k]^2        SS_int[b] = sum_g interaction[b, g]^2

    Together they are the sum over joint answers of (r - mean)^2, in squared units of the reward (Fisher
    1925). Differentiable; the gradient to an effect is twice the effect, times G^(N-1) for a main effect.

    >>> [ss.tolist() for ss in sums_of_squares(decompose_rewards([[[1.0, 2.0], [5.0, 8.0]]]))]
    [[[25.0], [4.0]], [1.0]]
    """
    agents, _, samples = parts.main_NBG.shape
    main_NB = samples ** (agents - 1) * jnp.sum(parts.main_NBG**2, axis=-1)
    return main_NB, jnp.sum(parts.interaction**2, axis=tuple(range(1, parts.interaction.ndim)))


def variance_shares(rewards_BGG) -> tuple[jax.Array, jax.Array]:
    """Share of the rewards' variance within items by each agent's main effect [N], and by interaction [].

    The `sums_of_squares` over all items, each divided by their total. A large interaction means that an
    agent's sample is good or bad only in combination with others' samples: then ``cross`` returns, which
    average over the others, show little of it. All 0 where no item has any variance. First-order Sobol'
    indices (1993) of the agents' samples. Differentiable if there is any variance; it is a diagnostic, used
    by no loss.

    >>> [share.tolist() for share in variance_shares([[[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 2.0]]])]
    [[0.5, 0.25], 0.25]
    """
    main_NB, interaction_B = sums_of_squares(decompose_rewards(rewards_BGG))
    main_N, interaction = jnp.sum(main_NB, axis=1), jnp.sum(interaction_B)
    total = jnp.sum(main_N) + interaction
    total = jnp.where(total > 0, total, 1.0)
    return main_N / total, interaction / total


def counterfactual_credit(rewards_B, counterfactuals_NB) -> jax.Array:
    """Each agent's marginal contribution to each joint answer, `A_n = R(joint) - R(joint without n's part)`.

    "Without" means with a replacement in the counterfactual answers: nothing (CCPO, arXiv 2603.21563), the
    untrained agent's greedy answer, or other samples of the agent (their mean reward: COMA, arXiv 1705.08926;
    with all of them scored, `cross_counterfactuals`). Where the partners answered without seeing the agent's
    part, the subtracted reward does not depend on it, and the policy gradient keeps its mean. Removing a part
    is not the same as replacing it: the partners may have relied on it. Linear in both rewards.

    >>> counterfactual_credit([3.0, 1.0], [[1.0, 1.0], [3.0, 2.0]]).tolist()
    [[2.0, 0.0], [0.0, -1.0]]

    Args:
      rewards_B: rewards of the joint answers, any axes.
      counterfactuals_NB: rewards of the same answers with agent n's part replaced, [N, ..].

    Returns:
      float32 [N, ..], in units of the reward; 0 where either reward is NaN (none applies, padding).

    Raises:
      ValueError: shapes that do not fit.
    """
    rewards_B = jnp.asarray(rewards_B, jnp.float32)
    counterfactuals_NB = jnp.asarray(counterfactuals_NB, jnp.float32)
    if counterfactuals_NB.shape[1:] != rewards_B.shape or counterfactuals_NB.ndim != rewards_B.ndim + 1:
        raise UserError(
            f"rewards {rewards_B.shape} and counterfactual rewards {counterfactuals_NB.shape}; "
            "allowed: [..] and [N, ..]"
        )
    rewards_NB = jnp.broadcast_to(rewards_B[None], counterfactuals_NB.shape)
    known_NB = ~jnp.isnan(rewards_NB) & ~jnp.isnan(counterfactuals_NB)
    # Twice: a NaN that is only selected out afterwards would still reach the gradient.
    return jnp.where(known_NB, rewards_NB, 0.0) - jnp.where(known_NB, counterfactuals_NB, 0.0)


def cross_counterfactuals(rewards_BGG) -> jax.Array:
    """Mean reward of joint answers with agent n's sample replaced by its others: -> [N, B, G, .., G].

        C_n[b, g] = 1/(G-1) sum_{k != g_n} r[b, g_1, .., k, .., g_N]

    COMA's baseline (arXiv 1705.08926, equation 4) with samples of the policy instead of a critic's sum over
    all actions, without the sample itself. `counterfactual_credit` subtracts it; its mean over the partners'
    samples is the leave-one-out advantage of `cross_credit`. Linear: a reward has no gradient from its own
    counterfactual, and 1/(G-1) from each of those of the agent's other samples.

    >>> cross_counterfactuals([[[1.0, 2.0], [5.0, 8.0]]]).tolist()
    [[[[5.0, 8.0], [1.0, 2.0]]], [[[2.0, 1.0], [8.0, 5.0]]]]

    Args:
      rewards_BGG: [B, G, .., G], one axis per agent.

    Returns:
      float32 [N, B, G, .., G], in units of the reward; 0 for an item with a NaN in it.

    Raises:
      ValueError: rewards of another shape, or fewer than two samples.
    """
    rewards, complete_B = _complete(rewards_BGG)
    samples = rewards.shape[1]
    if samples < 2:
        raise UserError(f"rewards {rewards.shape}: a sample can be replaced where there are 2 or more")
    totals = [jnp.sum(rewards, axis=axis, keepdims=True) for axis in range(1, rewards.ndim)]
    means = jnp.stack([(total - rewards) / (samples - 1) for total in totals])
    return jnp.where(_spread(complete_B, (0,), rewards.ndim)[None], means, 0.0)


def shapley_values(coalition_rewards_CB) -> jax.Array:
    """Shapley values of the agents from the rewards of all 2^N teams: [2^N, ..] -> float32 [N, ..].

        phi_n = sum over teams S without n of |S|! (N - |S| - 1)! / N! (r[S + n] - r[S])

    Bit n of an index says whether the joint answer has agent n's own part, or its replacement. The values add
    up to r[all] - r[none]. Agents that need each other get equal halves, where `counterfactual_credit` gives
    the whole to both (Shapley 1953; SHARP, arXiv 2602.08335, trains on them). 2^N joint answers have to be
    run. Linear: the gradient to a team's reward is its weight, positive for the agents in it.

    >>> shapley_values([0.0, 1.0, 0.0, 3.0]).tolist()  # none, agent 0, agent 1, both
    [2.0, 1.0]

    Args:
      coalition_rewards_CB: rewards of the teams, [2^N, ..].

    Returns:
      float32 [N, ..], in units of the reward; 0 in a column where any team's reward is NaN.

    Raises:
      ValueError: a first axis that is not a power of 2, at least 2.
    """
    rewards = jnp.asarray(coalition_rewards_CB, jnp.float32)
    agents = rewards.shape[0].bit_length() - 1 if rewards.ndim else 0
    if agents < 1 or rewards.shape[0] != 2**agents:
        raise UserError(f"rewards {rewards.shape}; allowed: [2, ..], [4, ..], [8, ..], one per team")
    rewards = jnp.where(jnp.any(jnp.isnan(rewards), axis=0), 0.0, rewards)
    values = [jnp.zeros(rewards.shape[1:])] * agents
    for team in range(2**agents):
        size = team.bit_count()
        for n in (n for n in range(agents) if not team >> n & 1):
            weight = math.factorial(size) * math.factorial(agents - size - 1) / math.factorial(agents)
            values[n] = values[n] + weight * (rewards[team | 1 << n] - rewards[team])
    return jnp.stack(values)


def _matrix(rewards_BGG) -> jax.Array:
    """The rewards as float32; ValueError unless they are [B, G, .., G]."""
    rewards = jnp.asarray(rewards_BGG, jnp.float32)
    if not rewards.shape[1:] or len(set(rewards.shape[1:])) != 1:
        raise UserError(f"rewards {rewards.shape}; allowed: [B, G, .., G], one axis of size G per agent")
    return rewards


def _complete(rewards_BGG) -> tuple[jax.Array, jax.Array]:
    """The rewards, set to 0 in items with a NaN, and which items have no NaN [B]."""
    rewards = _matrix(rewards_BGG)
    complete_B = ~jnp.any(jnp.isnan(rewards), axis=tuple(range(1, rewards.ndim)))
    return jnp.where(_spread(complete_B, (0,), rewards.ndim), rewards, 0.0), complete_B


def _spread(values: jax.Array, axes: tuple[int, ...], ndim: int) -> jax.Array:
    """Values with these axes of an array with ndim axes, as an array with size 1 for the other axes."""
    return jnp.expand_dims(values, tuple(axis for axis in range(ndim) if axis not in axes))
