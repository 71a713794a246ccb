"""Generalised advantage estimation (arXiv 1506.02438): over tokens, over turns, and through agents.

    delta_l = r_l + gamma V_{l+1} - V_l
    A_l     = delta_l + gamma lam A_{l+1}                 (both without the next terms where an episode ends)

"Next" is the next position that counts: positions beyond a length are skipped, may hold NaN, and get
advantage 0. The value after the last position is given (``bootstrap``): 0 where the episode is over; where it
was cut off, the critic's value of the next position. With lam = 1, A is the discounted return minus V; with
lam = 0 it is the one-step temporal difference. The critic's target is A + V.

Everything is linear in rewards and values, in their units, and no gradient is stopped here: losses stop
gradients at advantages and targets. Suffixes: B any leading axes, T turns, N agents, L tokens or any other
time axis.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.credit.segments import check_fraction
from jaxmarl_llm.utils.errors import UserError


def gae(
    rewards_BL, values_BL, lengths_B, *, gamma: float = 1.0, lam: float = 1.0, bootstrap_B=0.0, ends_BL=None
) -> jax.Array:
    """Advantages along the last axis: the tokens of a completion, or the turns of an episode.

    The module has the equation. Linear in rewards and values; gradients reach both. Over turns, lam = 0 is
    the target of CoMLRL's IAC and MAAC (arXiv 2601.21972): r + gamma V' - V.

    >>> gae([1.0, 2.0, 9.0], [0.5, 1.0, 9.0], 2, gamma=0.5, lam=1.0).tolist()  # 1 + 0.5 * 2 - 0.5, 2 - 1
    [1.5, 1.0, 0.0]

    Args:
      rewards_BL: rewards, earned at each position.
      values_BL: V, the critic's value before each position.
      lengths_B: positions that count; a scalar applies to all rows.
      gamma: discount of one position, 0..1.
      lam: lambda, 0..1: from one-step differences (bias) to returns (variance).
      bootstrap_B: value after the last position; a scalar applies to all rows.
      ends_BL: bool, True where an episode ends for good and the next position begins another; None: nowhere.

    Returns:
      advantages_BL, float32; 0 beyond the lengths.

    Raises:
      ValueError: gamma or lam outside 0..1, or shapes that do not fit.
    """
    rewards_BL, values_BL = jnp.asarray(rewards_BL, jnp.float32), jnp.asarray(values_BL, jnp.float32)
    if rewards_BL.ndim < 1 or rewards_BL.shape != values_BL.shape:
        raise UserError(f"rewards {rewards_BL.shape} and values {values_BL.shape}; allowed: both [.., L]")
    lengths_B = _rows("lengths", lengths_B, rewards_BL.shape[:-1])
    mask_BL = _within(lengths_B, rewards_BL.shape[-1])
    return _recursion(rewards_BL, values_BL, mask_BL, ends_BL, bootstrap_B, gamma, lam)


def token_gae(
    rewards_B, values_BL, lengths_B, *, gamma: float = 1.0, lam: float = 1.0, bootstrap_B=0.0
) -> jax.Array:
    """`gae` over the tokens of completions whose reward comes at the end, on the last token (the EOS).

    This is PPO's estimate for one response; MAPoRL (arXiv 2502.18439) does not bootstrap beyond its end. For
    rewards on other tokens too (a KL penalty), add them to `rewards_at_end` and call `gae`. Linear in rewards
    and values.

    >>> token_gae(2.0, [0.5, 1.0, 9.0], 2, lam=0.0).tolist()  # 1.0 - 0.5, 2 - 1.0
    [0.5, 1.0, 0.0]

    Args:
      rewards_B: one reward per completion.
      values_BL: V before each token.
      lengths_B: tokens of each completion, EOS included.
      gamma, lam, bootstrap_B: as in `gae`.

    Returns:
      advantages_BL, float32; 0 beyond the lengths.
    """
    rewards_BL = rewards_at_end(rewards_B, lengths_B, num_tokens=np.shape(values_BL)[-1])
    return gae(rewards_BL, values_BL, lengths_B, gamma=gamma, lam=lam, bootstrap_B=bootstrap_B)


def rewards_at_end(rewards_B, lengths_B, *, num_tokens: int) -> jax.Array:
    """Rewards of whole sequences put on their last positions: [..], lengths [..] -> float32 [.., L].

    A sequence of length 0 has no position: its reward is dropped, and gets no gradient.

    >>> rewards_at_end([5.0, 7.0], [2, 0], num_tokens=3).tolist()
    [[0.0, 5.0, 0.0], [0.0, 0.0, 0.0]]
    """
    rewards_B = jnp.asarray(rewards_B, jnp.float32)
    lengths_B = _rows("lengths", lengths_B, rewards_B.shape)
    last_BL = _within(lengths_B, num_tokens) & ~_within(lengths_B - 1, num_tokens)
    return jnp.where(last_BL, rewards_B[..., None], 0.0)


def agent_chained_gae(
    rewards_BTN, values_BTN, steps_B, *, gamma: float = 1.0, lam: float = 1.0, bootstrap_B=0.0, ends_BT=None
) -> jax.Array:
    """GAE of agents that act one after the other in every step, chained through agents, then steps.

        delta_{t,n} = r_{t,n} + gamma V_{t,n+1} - V_{t,n}      n < N
        delta_{t,N} = r_{t,N} + gamma V_{t+1,1} - V_{t,N}      A = delta + gamma lam A of the next, likewise

    This is MARFT's estimate at the level of actions (arXiv 2504.16129): V_{t,n} has seen the earlier agents'
    actions, so the next agent's value contains the effect of agent n. gamma also discounts between agents.
    Linear in rewards and values.

    >>> agent_chained_gae([[0.0, 1.0]], [[0.25, 0.5]], 1, lam=0.0).tolist()  # 0.5 - 0.25, 1 - 0.5
    [[0.25, 0.5]]

    Args:
      rewards_BTN: reward of each agent's action; a shared one is usually given to the last agent.
      values_BTN: V before each agent's action.
      steps_B: steps that count; all agents act in each.
      gamma, lam: as in `gae`.
      bootstrap_B: value after the last step.
      ends_BT: bool, True for steps after which an episode is over; None: nowhere.

    Returns:
      advantages_BTN, float32; 0 beyond the steps.
    """
    shape_BTN = np.shape(rewards_BTN)
    if len(shape_BTN) < 2 or shape_BTN != np.shape(values_BTN):
        raise UserError(f"rewards {shape_BTN} and values {np.shape(values_BTN)}; allowed: both [.., T, N]")
    ends_BL, rows = None, (*shape_BTN[:-2], -1)
    if ends_BT is not None:  # an episode ends with the last agent's action
        ends_BL = jnp.zeros(shape_BTN, bool).at[..., -1].set(jnp.asarray(ends_BT, bool)).reshape(rows)
    advantages_BL = gae(
        jnp.reshape(jnp.asarray(rewards_BTN, jnp.float32), rows),
        jnp.reshape(jnp.asarray(values_BTN, jnp.float32), rows),
        jnp.asarray(steps_B) * shape_BTN[-1],
        gamma=gamma,
        lam=lam,
        bootstrap_B=bootstrap_B,
        ends_BL=ends_BL,
    )
    return advantages_BL.reshape(shape_BTN)


def agent_chained_token_gae(
    rewards_BTN, values_BTNL, lengths_BTN, *, gamma: float = 1.0, lam: float = 1.0, bootstrap_B=0.0
) -> jax.Array:
    """`agent_chained_gae` at the level of tokens: through the tokens of an agent, the agents, the steps.

    Rewards are on the last token of each agent's completion, and the value after it is that of the next
    agent's first token (MARFT, arXiv 2504.16129). One episode per row. Linear in rewards and values.

    >>> agent_chained_token_gae([[0.0, 1.0]], [[[0.25, 9.0], [0.5, 0.75]]], [[1, 2]], lam=0.0).tolist()
    [[[0.25, 0.0], [0.25, 0.25]]]

    Args:
      rewards_BTN: reward of each completion.
      values_BTNL: V before each token.
      lengths_BTN: tokens of each completion; 0 where an agent gave none or an episode was over; its reward
        then does not count.
      gamma, lam, bootstrap_B: as in `gae`.

    Returns:
      advantages_BTNL, float32; 0 beyond the lengths.
    """
    values_BTNL, lengths_BTN = jnp.asarray(values_BTNL, jnp.float32), jnp.asarray(lengths_BTN)
    shape, num_tokens = values_BTNL.shape, values_BTNL.shape[-1]
    if values_BTNL.ndim < 3 or lengths_BTN.shape != shape[:-1] or np.shape(rewards_BTN) != shape[:-1]:
        raise UserError(
            f"rewards {np.shape(rewards_BTN)}, lengths {lengths_BTN.shape} and values {shape}; "
            "allowed: [.., T, N], the same, and [.., T, N, L]"
        )
    rewards_BTNL = rewards_at_end(rewards_BTN, lengths_BTN, num_tokens=num_tokens)
    rows = (*shape[:-3], -1)
    mask_BTNL = _within(lengths_BTN, num_tokens)
    rewards_RL, values_RL, mask_RL = (x.reshape(rows) for x in (rewards_BTNL, values_BTNL, mask_BTNL))
    return _recursion(rewards_RL, values_RL, mask_RL, None, bootstrap_B, gamma, lam).reshape(shape)


def discounted_returns(rewards_BL, lengths_B, *, discount: float = 1.0, bootstrap_B=0.0) -> jax.Array:
    """Returns of a chain, `R_l = r_l + discount R_{l+1}`: [.., L], lengths [..] -> float32 [.., L].

    `gae` with lam = 1 and no critic, linear in the rewards. With discount 1 and one reward at the end it
    gives every turn the outcome (ReMA, arXiv 2503.09501).

    >>> discounted_returns([1.0, 2.0, 4.0, 9.0], 3, discount=0.5).tolist()  # 1 + 0.5 * 4, 2 + 0.5 * 4, 4
    [3.0, 4.0, 4.0, 0.0]

    Args:
      rewards_BL: rewards, earned at each position.
      lengths_B: positions that count.
      discount: gamma, 0..1.
      bootstrap_B: value after the last position.
    """
    zeros_BL = jnp.zeros_like(jnp.asarray(rewards_BL, jnp.float32))
    return gae(rewards_BL, zeros_BL, lengths_B, gamma=discount, bootstrap_B=bootstrap_B)


def _recursion(rewards_BL, values_BL, mask_BL, ends_BL, bootstrap_B, gamma, lam) -> jax.Array:
    """The module's two equations, backwards over the positions where the mask is True."""
    check_fraction("gamma", gamma)
    check_fraction("lam", lam)
    ends_BL = jnp.zeros_like(mask_BL) if ends_BL is None else jnp.asarray(ends_BL, bool)
    if ends_BL.shape != mask_BL.shape:
        raise UserError(f"ends have shape {ends_BL.shape}; the rewards' {mask_BL.shape} is allowed")
    bootstrap_B = _rows("bootstrap", jnp.asarray(bootstrap_B, jnp.float32), mask_BL.shape[:-1])

    def back(carry, position):
        advantage_B, value_B = carry  # of the next position
        reward_B, own_value_B, mask_B, end_B = position
        # Not times 0: there may be a NaN after the end.
        delta_B = reward_B + gamma * jnp.where(end_B, 0.0, value_B) - own_value_B
        own_advantage_B = delta_B + gamma * lam * jnp.where(end_B, 0.0, advantage_B)
        carry = jnp.where(mask_B, own_advantage_B, advantage_B), jnp.where(mask_B, own_value_B, value_B)
        return carry, jnp.where(mask_B, own_advantage_B, 0.0)

    masked = (jnp.where(mask_BL, x, 0.0) for x in (rewards_BL, values_BL))
    positions = [jnp.moveaxis(x, -1, 0) for x in (*masked, mask_BL, ends_BL)]
    start = (jnp.zeros_like(bootstrap_B), bootstrap_B)
    return jnp.moveaxis(jax.lax.scan(back, start, positions, reverse=True)[1], 0, -1)


def _within(lengths_B: jax.Array, num_tokens: int) -> jax.Array:
    """True for the first `lengths_B` positions: [..] -> bool [.., L]."""
    lengths_B1 = jnp.asarray(lengths_B)[..., None]
    shape_BL = (*lengths_B1.shape[:-1], num_tokens)
    return jax.lax.broadcasted_iota(jnp.int32, shape_BL, lengths_B1.ndim - 1) < lengths_B1


def _rows(name: str, values_B, shape_B: tuple[int, ...]) -> jax.Array:
    """The values as an array of that shape; a scalar is broadcast."""
    values_B = jnp.asarray(values_B)
    if values_B.shape not in ((), shape_B):
        raise UserError(f"{name} have shape {values_B.shape}; allowed: {shape_B}, or a scalar")
    return jnp.broadcast_to(values_B, shape_B)
