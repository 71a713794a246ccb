"""Returns in trees and in chains whose steps have many answers: later returns are backed up."""

import jax
import jax.numpy as jnp

from jaxmarl_llm.credit.segments import (
    check_choice,
    check_fraction,
    check_rows,
    segment_count,
    segment_max,
    segment_mean,
    to_rows,
)

BACKUPS = ("mean", "max", "last")


def backed_up_returns(
    rewards_R, own_R, after_R, *, turns: int, num_keys: int, discount: float = 1.0, backup: str = "mean"
) -> jax.Array:
    """Returns of joint actions over several turns: the reward plus discounted returns of later actions.

        mean   R_j = r_j + discount mean { R_c : after_c = own_j }      what is earned on the way, on average
        max    R_j = r_j + discount max { R_c : after_c = own_j }       .. on the best of the ways taken
        last   R_j = discount mean { R_c : after_c = own_j }            what the last answers earn, on average

    and R_j = r_j where there is no c. ``mean`` is CoMLRL's; Murphy (arXiv 2511.07833) compares it with max.
    That its max also adds the reward on the way, as its mean does, is inferred from its abstract. ``last`` is
    the value of a node in MALT's tree (arXiv 2412.01928), whose inner nodes earn nothing themselves. With one
    answer per turn it is MAPoRL's horizon of the last turn (arXiv 2502.18439): for rewards that measure how
    good an answer is, not how much it improves on the previous one.

    With ``own`` the index of each joint action and ``after`` the index of its predecessor, this is the backup
    of a tree. With ``own`` the joint action's node and ``after`` the node of its predecessor, all actions of
    a node share what comes after any of them. This is the backup of a chain, where only one of them got a
    next turn, and the others must not lose by that. Linear in the rewards except for ``max``, whose gradient
    goes to the best continuation (in equal parts if there are several).

    >>> rewards, before = [1.0, 2.0, 3.0, 5.0], [-1, -1, 0, 0]  # 0 is followed by 2 and 3
    >>> backed_up_returns(rewards, [0, 1, 2, 3], before, turns=2, num_keys=4).tolist()
    [5.0, 2.0, 3.0, 5.0]
    >>> backed_up_returns(rewards, [0, 1, 2, 3], before, turns=2, num_keys=4, backup="last").tolist()
    [4.0, 2.0, 3.0, 5.0]

    Args:
      rewards_R: immediate rewards; NaN where the reward does not apply; such an action does not count.
      own_R, after_R: integer keys below ``num_keys``; ``after`` is negative for actions of the first turn.
      turns: most actions in a row (static).
      num_keys: number of keys (static).
      discount: gamma, 0..1.
      backup: one of BACKUPS.

    Returns:
      returns_R, float32, in units of the reward; NaN where the reward is NaN, 0 where ``own`` is not a key.

    Raises:
      ValueError: a discount outside 0..1, an unknown backup, or bad shapes.
    """
    check_fraction("discount", discount)
    check_choice("backup", backup, BACKUPS)
    rewards_R, own_R = check_rows(rewards_R, own_R, num_keys)
    known_R = ~jnp.isnan(rewards_R)
    after_R = jnp.where(known_R & (own_R < num_keys), jnp.asarray(after_R), -1)
    rewards_R = jnp.where(known_R, rewards_R, 0.0)
    followed_J = segment_count(after_R, num_groups=num_keys) > 0
    followed_R = to_rows(followed_J.astype(jnp.float32), own_R) > 0
    on_the_way_R = jnp.where(followed_R, 0.0, rewards_R) if backup == "last" else rewards_R
    of_all = segment_max if backup == "max" else segment_mean
    returns_R = rewards_R
    for _ in range(turns - 1):  # after k rounds, correct for actions with at most k turns after them
        later_J = jnp.where(followed_J, of_all(returns_R, after_R, num_groups=num_keys), 0.0)
        returns_R = on_the_way_R + discount * to_rows(later_J, own_R)
    return jnp.where(known_R, returns_R, jnp.nan)
