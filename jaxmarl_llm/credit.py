"""Credit: from rewards of joint actions to one advantage per sample.

Everything here is a pure function of values and integer group keys, float32 inside, and jit-able with a
static `num_groups`. NumPy arrays go in as well as JAX arrays. Suffixes: N agents, B prompts, G group
samples, R rows (any flat list of samples), J groups.

A *group* is a set of samples that answer the same prompt of the same agent, so that their returns can be
compared. `row_groups` numbers them for an `[N, B, G]` array. A key outside `[0, num_groups)` marks a row
that is no sample (padding of the batch): it enters no statistic and its advantage is 0.
"""

import math

import jax
import jax.numpy as jnp

BASELINES = ("mean", "leave_one_out", "max", "none")
REDUCTIONS = ("mean", "sum")
STD_FLOOR = 1e-6


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is unknown; allowed: {', '.join(allowed)}")


def _check_rows(values_R, group_R, num_groups: int):
    values_R, group_R = jnp.asarray(values_R, jnp.float32), jnp.asarray(group_R)
    if values_R.ndim != 1 or values_R.shape != group_R.shape:
        raise ValueError(
            f"values of shape {values_R.shape} and group keys of shape {group_R.shape}: both must be [rows]"
        )
    if not jnp.issubdtype(group_R.dtype, jnp.integer):
        raise ValueError(f"group keys have dtype {group_R.dtype}; allowed: integers")
    if num_groups < 1:
        raise ValueError(f"num_groups={num_groups}; allowed: 1 or more")
    inside_R = (group_R >= 0) & (group_R < num_groups)
    return values_R, jnp.where(inside_R, group_R, num_groups)  # segment ops drop the key num_groups


def _to_rows(stat_J: jax.Array, group_R: jax.Array) -> jax.Array:
    return stat_J.at[group_R].get(mode="fill", fill_value=0.0)


def segment_count(group_R, *, num_groups: int) -> jax.Array:
    """Number of rows per group: integer keys [R] -> float32 [J]."""
    ones_R, group_R = _check_rows(jnp.ones(jnp.shape(group_R)), group_R, num_groups)
    return jax.ops.segment_sum(ones_R, group_R, num_groups)


def segment_sum(values_R, group_R, *, num_groups: int) -> jax.Array:
    """Sum per group: values [R], integer keys [R] -> float32 [J]; an empty group gives 0."""
    values_R, group_R = _check_rows(values_R, group_R, num_groups)
    return jax.ops.segment_sum(values_R, group_R, num_groups)


def segment_mean(values_R, group_R, *, num_groups: int) -> jax.Array:
    """Mean per group: values [R], integer keys [R] -> float32 [J]; an empty group gives 0."""
    total_J = segment_sum(values_R, group_R, num_groups=num_groups)
    return total_J / jnp.maximum(segment_count(group_R, num_groups=num_groups), 1.0)


def segment_std(values_R, group_R, *, num_groups: int) -> jax.Array:
    """Population standard deviation per group: values [R], integer keys [R] -> float32 [J].

    Two passes (mean of squared deviations), because E[x^2] - E[x]^2 cancels in float32. A group
    whose values are all equal, and an empty one, give exactly 0.
    """
    values_R, group_R = _check_rows(values_R, group_R, num_groups)
    deviation_R = _deviation(values_R, group_R, num_groups)
    return jnp.sqrt(segment_mean(deviation_R**2, group_R, num_groups=num_groups))


def segment_max(values_R, group_R, *, num_groups: int) -> jax.Array:
    """Largest value per group: values [R], integer keys [R] -> float32 [J]; an empty group gives -inf."""
    values_R, group_R = _check_rows(values_R, group_R, num_groups)
    return jax.ops.segment_max(values_R, group_R, num_groups)


def _equal_groups(values_R: jax.Array, group_R: jax.Array, num_groups: int) -> jax.Array:
    """[J] bool: True where all values of a group are the same (also for one value or none)."""
    high_J = segment_max(values_R, group_R, num_groups=num_groups)
    low_J = -segment_max(-values_R, group_R, num_groups=num_groups)
    return high_J <= low_J


def _deviation(values_R: jax.Array, group_R: jax.Array, num_groups: int) -> jax.Array:
    """Value minus group mean; exactly 0 in a group of equal values, where the rounded mean may differ."""
    mean_R = _to_rows(segment_mean(values_R, group_R, num_groups=num_groups), group_R)
    equal_J = _equal_groups(values_R, group_R, num_groups)
    return jnp.where(_to_rows(equal_J.astype(jnp.float32), group_R) > 0, 0.0, values_R - mean_R)


def group_advantage(
    returns_R,
    group_R,
    *,
    num_groups: int,
    baseline: str = "mean",
    normalise: bool = False,
    eps: float = STD_FLOOR,
) -> jax.Array:
    """Advantage of every sample relative to its group, `A = (R - b) [/ max(std, eps)]`.

    Baselines b, with the group's returns R_1..R_G:
      mean           (1/G) sum_g R_g: MAGRPO (arXiv 2508.04652), as in Dr. GRPO (arXiv 2503.20783)
      leave_one_out  mean of the *other* returns, A = G/(G-1) (R - mean): RLOO (arXiv 2402.14740)
      max            max_g R_g: no sample is pushed up, the best one stays (CoMLRL's MAReMax)
      none           0: plain REINFORCE

    `normalise` divides by the group's population standard deviation (GRPO, arXiv 2402.03300; the default of
    CoMLRL 1.4.3). It only scales, it never centres again, so the baselines stay different from one
    another. A group of equal returns gets exactly 0 for every baseline but "none" (CoMLRL scales the
    rounding error of its mean there).

    Args:
      returns_R: returns, one row per sample.
      group_R: integer key of each row's group; keys outside [0, num_groups) mark padding.
      num_groups: number of groups (static).
      baseline: one of BASELINES.
      normalise: divide by the standard deviation of the group's returns.
      eps: floor of the divisor, in units of the return.

    Returns:
      advantages_R, float32; 0 for padding rows and, with leave_one_out, for a group of one.

    Raises:
      ValueError: unknown baseline, bad shapes, or normalise with baseline "none" (an uncentred return over
        a standard deviation near 0 has no bound).
    """
    _check_choice("baseline", baseline, BASELINES)
    if normalise and baseline == "none":
        raise ValueError("normalise=True needs a baseline; allowed: mean, leave_one_out, max")
    returns_R, group_R = _check_rows(returns_R, group_R, num_groups)
    if baseline == "none":
        advantages_R = returns_R
    elif baseline == "max":
        advantages_R = returns_R - _to_rows(segment_max(returns_R, group_R, num_groups=num_groups), group_R)
    else:
        advantages_R = _deviation(returns_R, group_R, num_groups)
    if baseline == "leave_one_out":
        size_R = _to_rows(segment_count(group_R, num_groups=num_groups), group_R)
        advantages_R = advantages_R * size_R / jnp.maximum(size_R - 1.0, 1.0)
    if normalise:
        std_J = segment_std(returns_R, group_R, num_groups=num_groups)
        advantages_R = advantages_R / jnp.maximum(_to_rows(std_J, group_R), eps)
    return jnp.where(group_R < num_groups, advantages_R, 0.0)


def row_groups(shape_NBG: tuple[int, ...]) -> tuple[jax.Array, int]:
    """Keys of the rows of an array whose last axis is the group: `[.., G]` -> (int32 keys [R], num_groups).

    The rows come in C order, so they belong to `returns_NBG.reshape(-1)`.
    """
    if len(shape_NBG) < 1 or min(shape_NBG) < 1:
        raise ValueError(f"shape {tuple(shape_NBG)}; allowed: at least one axis, none empty")
    num_groups = math.prod(shape_NBG[:-1])
    return jnp.repeat(jnp.arange(num_groups, dtype=jnp.int32), shape_NBG[-1]), num_groups


def aligned_credit(rewards_BG, *, num_agents: int) -> jax.Array:
    """Returns when joint action g is every agent's sample g: [B, G] -> [N, B, G], the same for all agents.

    The reward is shared (a cooperative Dec-POMDP): every agent's sample g is worth what the joint action
    earned.
    """
    rewards_BG = jnp.asarray(rewards_BG, jnp.float32)
    if rewards_BG.ndim != 2 or num_agents < 1:
        raise ValueError(f"rewards {rewards_BG.shape}, num_agents={num_agents}; allowed: [B, G], 1 or more")
    return jnp.broadcast_to(rewards_BG[None], (num_agents, *rewards_BG.shape))


def cross_credit(rewards_BGG, *, reduce: str = "mean") -> jax.Array:
    """Returns when every combination of the agents' samples was scored: [B, G, .., G] -> [N, B, G].

    Axis 1+n of the input is agent n's sample. The return of agent n's sample k is the mean (or the sum) of
    the G^(N-1) rewards of the joint actions that contain it:

        R_n[b, k] = mean_{g: g_n = k} r[b, g_1, .., g_N]

    The mean estimates E[r | agent n says k], partners' luck averaged out, and keeps the reward's scale. The
    sum is what CoMLRL 1.4.3 does: it grows with G^(N-1).
    """
    _check_choice("reduce", reduce, REDUCTIONS)
    rewards = jnp.asarray(rewards_BGG, jnp.float32)
    sizes = rewards.shape[1:]
    if not sizes or len(set(sizes)) != 1:
        raise ValueError(f"rewards {rewards.shape}; allowed: [B, G, .., G], one axis of size G per agent")
    agent_axes = range(1, rewards.ndim)
    others = [tuple(a for a in agent_axes if a != own) for own in agent_axes]
    total_NBG = jnp.stack([jnp.sum(rewards, axis=axes) for axes in others])
    return total_NBG / sizes[0] ** (len(sizes) - 1) if reduce == "mean" else total_NBG


def backed_up_returns(
    rewards_R, own_R, after_R, *, turns: int, num_keys: int, discount: float = 1.0
) -> jax.Array:
    """Returns of joint actions in many turns: reward plus the discounted mean return of what comes after.

        R_j = r_j + discount * mean { R_c : after_c = own_j },    without the second term where there is no c

    With ``own`` the index of each joint action and ``after`` the index of the one it follows, this is the
    backup of a tree (CoMLRL's). With ``own`` the joint action's node and ``after`` the node of the one it
    follows, all actions of a node share what comes after any of them: the backup of a chain, where only one
    of them was handed on and its luck is not the others' fault.

    Args:
      rewards_R: immediate rewards; NaN where the reward does not apply, and such an action counts nowhere.
      own_R, after_R: integer keys below ``num_keys``; ``after`` is negative for actions of the first turn.
      turns: most actions in a row (static).
      num_keys: number of keys (static).
      discount: gamma, 0..1.

    Returns:
      returns_R, float32, in units of the reward; NaN where the reward is.

    Raises:
      ValueError: a discount outside 0..1, or bad shapes.
    """
    if not 0 <= discount <= 1:
        raise ValueError(f"discount={discount}; allowed: 0 to 1")
    rewards_R, own_R = _check_rows(rewards_R, own_R, num_keys)
    known_R = ~jnp.isnan(rewards_R)
    after_R = jnp.where(known_R, jnp.asarray(after_R), -1)
    rewards_R = jnp.where(known_R, rewards_R, 0.0)
    returns_R = rewards_R
    for _ in range(turns - 1):  # after k rounds, right for whatever has at most k turns after it
        later_J = segment_mean(returns_R, after_R, num_groups=num_keys)
        returns_R = rewards_R + discount * _to_rows(later_J, own_R)
    return jnp.where(known_R, returns_R, jnp.nan)


def zero_signal_share(returns_R, group_R, *, num_groups: int) -> jax.Array:
    """Share of non-empty groups whose returns are all equal (no gradient): [R], [R] -> scalar in [0, 1]."""
    returns_R, group_R = _check_rows(returns_R, group_R, num_groups)
    used_J = segment_count(group_R, num_groups=num_groups) > 0
    silent_J = used_J & _equal_groups(returns_R, group_R, num_groups)
    return jnp.sum(silent_J) / jnp.maximum(jnp.sum(used_J), 1)


def advantage_spread(advantages_R, group_R, *, num_groups: int) -> jax.Array:
    """Mean over non-empty groups of the advantages' population standard deviation: [R], [R] -> scalar.

    In units of the return (about 1 where `normalise` is on and every group has a signal).
    """
    std_J = segment_std(advantages_R, group_R, num_groups=num_groups)
    used_J = segment_count(group_R, num_groups=num_groups) > 0
    return jnp.sum(std_J) / jnp.maximum(jnp.sum(used_J), 1)
