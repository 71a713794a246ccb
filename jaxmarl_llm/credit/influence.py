"""Influence-aware returns and transition bonuses of answers revised in turns (MAPoRL, arXiv 2502.18439).

With V_{t,a} the score of agent a's answer in turn t, the return of an answer is its own score plus the value
of all agents' later answers, on the scale of a score:

    R_{t,a} = (V_{t,a} + sum_{k=1..} g^k mean_j V_{t+k,j}) / sum_{k=0..} g^k

Bonuses reward changes of an answer between right (a score of at least 0.5) and wrong: the agent's own change
since the previous turn, and the others' changes in the next turn. Each is positive where an answer becomes
right, and negative where it becomes wrong. (In the released code the others' changes have the opposite
signs.)

Suffixes: B any leading axes, T turns, N agents.
"""

import jax
import jax.numpy as jnp

from jaxmarl_llm.credit.segments import check_fraction
from jaxmarl_llm.utils.errors import UserError

HORIZONS = ("discounted", "current", "last")
SHARES = ("all", "individual")


def influence_returns(
    scores_BTN, *, discount: float = 0.3, horizon: str = "discounted", share: str = "all"
) -> jax.Array:
    """Return of every answer in conversations of T turns, from all answers' scores (MAPoRL, arXiv
    2502.18439).

    The module has the equation. Linear in the scores; gradients reach all of them.

    >>> influence_returns([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])[:, 0].round(4).tolist()  # (.15 + .09) / 1.39
    [0.17270000278949738, 1.0, 1.0]

    Args:
      scores_BTN: V, in 0..1 or any unit.
      discount: g, 0..1; the value of a later turn counts this much one turn earlier.
      horizon: ``discounted``, the equation of the module; ``current``, only the score of the turn itself;
        ``last``, that of the last turn.
      share: ``all``, later turns (with the other horizons, the turn that counts) enter with the mean of all
        agents; ``individual``, with the agent's own score.

    Returns:
      returns_BTN, float32.

    Raises:
      ValueError: for another horizon or share, a discount outside 0..1, or scores without turns and agents.
    """
    scores_BTN = jnp.asarray(scores_BTN, jnp.float32)
    _check(scores_BTN, horizon, share)
    check_fraction("discount", discount)
    mean_BT1 = scores_BTN.mean(axis=-1, keepdims=True)
    shared_BTN = jnp.broadcast_to(mean_BT1, scores_BTN.shape) if share == "all" else scores_BTN
    if horizon == "current":
        return shared_BTN
    if horizon == "last":
        return jnp.broadcast_to(shared_BTN[..., -1:, :], scores_BTN.shape)
    turns = scores_BTN.shape[-2]
    later_BN, scale, returns = jnp.zeros_like(shared_BTN[..., 0, :]), 1.0, []
    for t in reversed(range(turns)):
        returns.append((scores_BTN[..., t, :] + later_BN) / scale)
        later_BN = discount * (shared_BTN[..., t, :] + later_BN)
        scale = 1.0 + discount * scale
    return jnp.stack(returns[::-1], axis=-2)


def transition_bonuses(
    scores_BTN,
    *,
    with_majority: float = 0.0,
    on_own: float = 0.0,
    persuade: float = 0.0,
    provoke: float = 0.0,
) -> jax.Array:
    """Bonuses on the return of every answer for changes between right and wrong (MAPoRL, arXiv 2502.18439).

    Whether an answer is right is a threshold, so no gradient reaches the scores.

    For the agent's own change since the previous turn: ``with_majority`` if it changes to what the majority
    of the others was in that turn (right, or wrong), otherwise ``on_own``; plus if the answer becomes right,
    minus if it becomes wrong. For the others' changes in the next turn, times the share of others that
    change: ``persuade`` if they change to what the agent's answer is, ``provoke`` if to the opposite; signs
    as before.

    >>> transition_bonuses([[1.0, 0.0], [1.0, 1.0]], with_majority=2.0, persuade=1.0).tolist()
    [[1.0, 0.0], [0.0, 2.0]]

    Args:
      scores_BTN: V; an answer is right from 0.5 on.
      with_majority, on_own, persuade, provoke: coefficients, at least 0.

    Returns:
      bonuses_BTN, float32.

    Raises:
      ValueError: for a negative coefficient, or fewer than two agents.
    """
    scores_BTN = jnp.asarray(scores_BTN, jnp.float32)
    _check(scores_BTN, HORIZONS[0], SHARES[0])
    agents = scores_BTN.shape[-1]
    given = dict(with_majority=with_majority, on_own=on_own, persuade=persuade, provoke=provoke)
    for name, value in given.items():
        if value < 0:
            raise UserError(f"{name}={value}; allowed: at least 0")
    if agents < 2:
        raise UserError(f"scores are of {agents} agent; bonuses need two or more")
    right_BTN = (scores_BTN >= 0.5).astype(jnp.float32)
    change_BTN = right_BTN[..., 1:, :] - right_BTN[..., :-1, :]  # from each turn to the next: 1, 0 or -1

    def of_others(values_BTN):
        return (values_BTN.sum(axis=-1, keepdims=True) - values_BTN) / (agents - 1)

    others_BTN = of_others(right_BTN)[..., :-1, :]
    majority_BTN = jnp.where(
        others_BTN > 0.5, 1.0, jnp.where(others_BTN < 0.5, 0.0, -1.0)
    )  # -1: there is none
    followed_BTN = majority_BTN == right_BTN[..., 1:, :]
    own_BTN = jnp.where(followed_BTN, with_majority, on_own) * change_BTN
    rises_BTN, falls_BTN = of_others(change_BTN == 1), of_others(change_BTN == -1)
    was_right_BTN = right_BTN[..., :-1, :] == 1
    led_BTN = jnp.where(
        was_right_BTN, persuade * rises_BTN - provoke * falls_BTN, provoke * rises_BTN - persuade * falls_BTN
    )
    none_B1N = jnp.zeros_like(right_BTN[..., :1, :])
    return jnp.concatenate([none_B1N, own_BTN], axis=-2) + jnp.concatenate([led_BTN, none_B1N], axis=-2)


def _check(scores_BTN: jax.Array, horizon: str, share: str) -> None:
    if scores_BTN.ndim < 2 or 0 in scores_BTN.shape[-2:]:
        raise UserError(f"scores {scores_BTN.shape}; allowed: [.., T, N], one turn and one agent or more")
    if horizon not in HORIZONS:
        raise UserError(f"horizon={horizon!r}; allowed: {', '.join(HORIZONS)}")
    if share not in SHARES:
        raise UserError(f"share={share!r}; allowed: {', '.join(SHARES)}")
