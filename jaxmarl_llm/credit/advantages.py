"""Which samples are compared (group keys), and what a sample is worth among them (advantages).

NumPy arrays and lists are accepted as well as JAX arrays. Suffixes: N agents, B prompts, G group samples,
R rows, J groups.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.credit.segments import (
    check_choice,
    check_rows,
    deviation,
    equal_rows,
    segment_count,
    segment_max,
    segment_std,
    to_rows,
)
from jaxmarl_llm.utils.errors import UserError

BASELINES = ("mean", "leave_one_out", "max", "none")
STD_FLOOR = 1e-6
# What the samples of a group have in common.
GROUPINGS = {
    "item": ("item",),  # all agents of a problem against each other: GRPO on the team as one policy
    "item_agent": ("item", "agent"),  # MAGRPO (arXiv 2508.04652); Dr. MAS's released code (2602.08847)
    "environment_agent_turn": ("environment", "agent", "turn"),  # AT-GRPO (2510.11062): equal prompts only
    "parent": ("item", "agent", "parent"),  # siblings, for C3's leave-one-out replay (2603.06859)
    "joint": ("joint",),  # what belongs to one joint answer
}


def group_keys(*columns_R: Sequence[Any]) -> tuple[np.ndarray, int]:
    """Number the distinct tuples of some columns, on the host: columns [R] -> (int32 keys [R], num_groups).

    Keys count from 0 in the order of first appearance. A column holds numbers, texts or None.

    >>> keys_R, num_groups = group_keys(["a", "b", "a", "b"], [0, 0, 0, 1])
    >>> keys_R.tolist(), num_groups
    ([0, 1, 0, 2], 3)

    Raises:
      ValueError: no column, or columns of different lengths.
    """
    columns = [column.tolist() if hasattr(column, "tolist") else list(column) for column in columns_R]
    lengths = [len(column) for column in columns]
    if len(set(lengths)) != 1:
        raise UserError(f"columns of lengths {lengths}; allowed: one or more, all of one length")
    rows = list(zip(*columns, strict=True))
    number = {row: key for key, row in enumerate(dict.fromkeys(rows))}
    return np.array([number[row] for row in rows], np.int32), len(number)


def keys_by(grouping: str, **columns_R: Sequence[Any]) -> tuple[np.ndarray, int]:
    """`group_keys` by one of `GROUPINGS`, which names the columns: -> (int32 keys [R], num_groups).

    Roots of a tree have no parent (None): this is why ``parent`` also uses item and agent.

    >>> keys_by("parent", item=[0, 0, 0], agent=["a", "b", "b"], parent=[None, 0, 0])[0].tolist()
    [0, 1, 1]

    Raises:
      ValueError: unknown grouping, or one of its columns is missing; more columns than it needs are allowed.
    """
    check_choice("grouping", grouping, tuple(GROUPINGS))
    needed = GROUPINGS[grouping]
    if missing := [name for name in needed if name not in columns_R]:
        raise UserError(f"grouping={grouping!r} needs the columns {needed}; missing: {', '.join(missing)}")
    return group_keys(*(columns_R[name] for name in needed))


def row_groups(shape_NBG: tuple[int, ...]) -> tuple[jax.Array, int]:
    """Keys of the rows of an array whose last axis is the group: `[.., G]` -> (int32 keys [R], num_groups).

    Rows are in C order, so they match `returns_NBG.reshape(-1)`.

    >>> row_groups((2, 1, 3))[0].tolist()
    [0, 0, 0, 1, 1, 1]
    """
    if len(shape_NBG) < 1 or min(shape_NBG) < 1:
        raise UserError(f"shape {tuple(shape_NBG)}; allowed: at least one axis, none empty")
    num_groups = math.prod(shape_NBG[:-1])
    return jnp.repeat(jnp.arange(num_groups, dtype=jnp.int32), shape_NBG[-1]), num_groups


def group_advantage(
    returns_R,
    group_R,
    *,
    num_groups: int,
    baseline: str = "mean",
    normalise: bool = False,
    eps: float = STD_FLOOR,
) -> jax.Array:
    """Compute the advantage of every sample relative to its group, from the group's returns R_1..R_G.

        normalise=False    A_g = R_g - b_g
        normalise=True     A_g = (R_g - mean) / max(std, eps)        std = sqrt( (1/G) sum_h (R_h - mean)^2 )

    Baselines b:
      mean           (1/G) sum_g R_g: MAGRPO (arXiv 2508.04652), as in Dr. GRPO (arXiv 2503.20783)
      leave_one_out  mean of the *other* returns, A = G/(G-1) (R - mean): RLOO (arXiv 2402.14740)
      max            max_g R_g: no advantage is positive, that of the best sample is 0 (CoMLRL's MAReMax)
      none           0: plain REINFORCE

    `normalise` standardises the group (GRPO, arXiv 2402.03300; the default of CoMLRL 1.4.3). Shift and scale
    cancel, so all four baselines give the same numbers. A group of returns that are equal up to rounding gets
    exactly 0, except for "none" without normalise (CoMLRL divides the rounding error of its mean by eps
    there).

    >>> group_advantage([1.0, 3.0, 8.0], [0, 0, 0], num_groups=1, baseline="leave_one_out").tolist()
    [-4.5, -1.5, 6.0]
    >>> [round(float(a), 3) for a in group_advantage([1.0, 2.0, 6.0], [0] * 3, num_groups=1, normalise=True)]
    [-0.926, -0.463, 1.389]

    Args:
      returns_R: returns, one row per sample.
      group_R: integer key of each row's group; keys outside [0, num_groups) mark padding.
      num_groups: number of groups (static).
      baseline: one of BASELINES.
      normalise: give each group mean 0 and standard deviation 1, whatever the baseline.
      eps: floor of the divisor, in units of the return.

    Returns:
      advantages_R, float32; 0 for padding rows and, with leave_one_out or normalise, for a group of one. In
      units of the return, or of its standard deviation. Differentiable, but meant as a constant: losses stop
      gradients.

    Raises:
      ValueError: unknown baseline, or bad shapes.
    """
    check_choice("baseline", baseline, BASELINES)
    returns_R, group_R = check_rows(returns_R, group_R, num_groups)
    if normalise:
        std_J = segment_std(returns_R, group_R, num_groups=num_groups)
        return deviation(returns_R, group_R, num_groups) / jnp.maximum(to_rows(std_J, group_R), eps)
    if baseline == "none":
        return returns_R
    if baseline == "max":
        most_R = to_rows(segment_max(returns_R, group_R, num_groups=num_groups), group_R)
        return jnp.where(equal_rows(returns_R, group_R, num_groups), 0.0, returns_R - most_R)
    advantages_R = deviation(returns_R, group_R, num_groups)
    if baseline == "leave_one_out":
        size_R = to_rows(segment_count(group_R, num_groups=num_groups), group_R)
        advantages_R = advantages_R * size_R / jnp.maximum(size_R - 1.0, 1.0)
    return advantages_R


def normalise_per_agent(
    values_R, agent_R, *, num_agents: int, centre: bool = False, eps: float = STD_FLOOR
) -> jax.Array:
    """Scale the values per agent, `A' = (A [- mean_n]) / max(std_n, eps)` over all rows of agent n.

    After a baseline by group it gives all agents steps of similar size, however different their rewards are.
    Unlike division by a group's own standard deviation, it keeps the information that some prompts have more
    signal than others. The idea is Dr. MAS's (arXiv 2602.08847): statistics per agent instead of over all
    agents. That they cover all the agent's rows in the batch is an inference here. Its released code uses
    those of one prompt, which is `group_advantage` with ``normalise`` and keys by item and agent. With
    ``centre`` and returns instead of advantages, the agent's mean return is the only baseline.

    Where all groups have G samples, it cancels the factor G/(G-1) of leave_one_out: mean and leave_one_out
    become the same. Without ``centre``, values far from 0 compared with their spread have no bound: subtract
    a baseline first. Differentiable, but meant as a constant, like `group_advantage`.

    >>> normalise_per_agent([-1.0, 1.0, -30.0, 30.0], [0, 0, 1, 1], num_agents=2).tolist()
    [-1.0, 1.0, -1.0, 1.0]

    Args:
      values_R: advantages, or returns.
      agent_R: integer key of each row's agent; keys outside [0, num_agents) mark padding.
      num_agents: N (static).
      centre: also subtract the agent's mean.
      eps: floor of the divisor, in units of the values.

    Returns:
      float32 [R], in standard deviations; 0 for padding rows, and for an agent of equal values with centre.

    Raises:
      ValueError: bad shapes.
    """
    values_R, agent_R = check_rows(values_R, agent_R, num_agents)
    std_N = segment_std(values_R, agent_R, num_groups=num_agents)
    scaled_R = deviation(values_R, agent_R, num_agents) if centre else values_R
    return scaled_R / jnp.maximum(to_rows(std_N, agent_R), eps)
