"""Losses over pairs of a winner and a loser: Bradley-Terry on scores, DPO, multi-agent DPO.

Arrays are [..., P], one value per pair: a score, or the summed log-probability of all tokens of an agent
(`masked_sum`). ``mask_P`` is False for pairs that are padding; it may be omitted. All losses are -log sigmoid
of a margin x, the negative log-likelihood of the preference under Bradley and Terry's model (1952), and all
gradients are

    - sigmoid(-x) grad x                with label_smoothing e: (e - sigmoid(-x)) grad x

so pairs that are already ranked correctly have a small gradient. Label smoothing assumes that a share e of
the labels is wrong, loss = - (1 - e) log sigmoid(x) - e log sigmoid(-x), and the gradient is 0 where
sigmoid(-x) = e (conservative DPO; E. Mitchell, "A note on DPO with noisy preferences", 2023).
"""

import jax
import jax.numpy as jnp

from jaxmarl_llm.losses.checks import check_alike, check_positive
from jaxmarl_llm.losses.sums import SumCount, masked_sum
from jaxmarl_llm.utils.errors import UserError


def bradley_terry(winner_P, loser_P, *, mask_P=None, label_smoothing: float = 0.0) -> SumCount:
    """-log sigmoid(s_w - s_l) of pairs of scores, summed, and the number of pairs: [..., P] -> SumCount.

    Fits a reward model or critic to preferences (Bradley and Terry 1952); only differences of scores are
    learned. gradient to s_w: - sigmoid(s_l - s_w); to s_l: its negative.

    >>> round(float(bradley_terry([1.0, 5.0], [1.0, 5.0]).mean()), 4)  # undecided: log 2
    0.6931

    Raises:
      ValueError: shapes that differ, or a label_smoothing outside 0 to below 0.5.
    """
    check_alike(winner_P=winner_P, loser_P=loser_P, mask_P=mask_P)
    losses_P = _pair_losses(_difference(winner_P, loser_P), mask_P, label_smoothing)
    return SumCount(jnp.sum(losses_P), _count(losses_P, mask_P))


def bradley_terry_sums(
    winner_PT, loser_PT, winner_mask_PT, loser_mask_PT, *, mask_P=None, label_smoothing: float = 0.0
) -> SumCount:
    """`bradley_terry` of trajectories whose scores are sums over T turns, or tokens: [..., P, T] -> SumCount.

        loss = - log sigmoid(sum_t s(winner, t) - sum_t s(loser, t))

    Every unmasked turn gets the gradient of its trajectory's score, so pairs of trajectories train scores of
    turns. The critic of SWEET-RL (arXiv 2503.15478) scores a turn by the mean of beta log(phi/ref) over its
    tokens: `beta * masked_mean(logprobs_PTL - ref_logprobs_PTL, mask_PTL)`. Winner and loser may have
    different numbers of turns. A pair without any turn on one side does not count.

    >>> loss = bradley_terry_sums([[1.0, 2.0]], [[3.0]], [[True, True]], [[True]])
    >>> round(float(loss.mean()), 4)
    0.6931

    Raises:
      ValueError: as in `bradley_terry`.
    """
    mask_P = _complete(winner_mask_PT, loser_mask_PT, mask_P)
    winner_P, loser_P = masked_sum(winner_PT, winner_mask_PT), masked_sum(loser_PT, loser_mask_PT)
    return bradley_terry(winner_P, loser_P, mask_P=mask_P, label_smoothing=label_smoothing)


def dpo(
    winner_P,
    loser_P,
    *,
    ref_winner_P=None,
    ref_loser_P=None,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    mask_P=None,
) -> SumCount:
    """Direct preference optimisation (arXiv 2305.18290, eq. 7): log-probs [..., P] -> SumCount.

        loss = - log sigmoid(beta ((log pi(w) - log ref(w)) - (log pi(l) - log ref(l))))

    where w and l answer the same prompt. gradient: - beta sigmoid(-x) (grad log pi(w) - grad log pi(l)); it
    grows as the implicit reward beta log(pi/ref) ranks them more wrongly; none flows to the reference.
    Without the reference it is taken as uniform (arXiv 2401.08417; CoMLRL's MADPO), and only the margin
    limits the drift away from the initial policy.

    Turn level: turns that answer the same context are separate pairs, log-probs [P, T] with mask_P [P, T]
    (SWEET-RL's actor, arXiv 2503.15478). Trajectory level: `trajectory_dpo`.

    >>> margin = dpo([-1.0], [-3.0], ref_winner_P=[-2.0], ref_loser_P=[-2.0], beta=0.5)
    >>> round(float(margin.mean()), 4)  # -log sigmoid(0.5 ((-1 + 2) - (-3 + 2))) = log(1 + 1/e)
    0.3133

    Raises:
      ValueError: shapes that differ, half a reference, beta <= 0, a label_smoothing outside 0 to below 0.5.
    """
    deltas_P = _log_ratio_gap(winner_P, loser_P, ref_winner_P, ref_loser_P, beta)
    check_alike(winner_P=winner_P, mask_P=mask_P)
    losses_P = _pair_losses(beta * deltas_P, mask_P, label_smoothing)
    return SumCount(jnp.sum(losses_P), _count(losses_P, mask_P))


def trajectory_dpo(
    winner_PT,
    loser_PT,
    winner_mask_PT,
    loser_mask_PT,
    *,
    ref_winner_PT=None,
    ref_loser_PT=None,
    mask_P=None,
    **options,
) -> SumCount:
    """`dpo` of whole trajectories: log-probs of their turns [..., P, T], or tokens, are summed first.

    Turns of other agents in a trajectory are masked. Winner and loser may have different numbers of turns; a
    pair without any turn on one side does not count. Every turn gets the gradient of `dpo` to its
    trajectory's log-prob; SWEET-RL fits its critic in this way (arXiv 2503.15478). ``options`` are beta and
    label_smoothing.

    >>> whole = trajectory_dpo([[-1.0, -2.0]], [[-3.0]], [[True, True]], [[True]])
    >>> float(whole.sum) == float(dpo([-3.0], [-3.0]).sum)
    True

    Raises:
      ValueError: as in `dpo`.
    """
    sides = ((winner_PT, winner_mask_PT), (loser_PT, loser_mask_PT))
    winner_P, loser_P = (masked_sum(*side) for side in sides)
    refs = ((ref_winner_PT, winner_mask_PT), (ref_loser_PT, loser_mask_PT))
    ref_winner_P, ref_loser_P = (None if ref is None else masked_sum(ref, mask) for ref, mask in refs)
    mask_P = _complete(winner_mask_PT, loser_mask_PT, mask_P)
    return dpo(
        winner_P, loser_P, ref_winner_P=ref_winner_P, ref_loser_P=ref_loser_P, mask_P=mask_P, **options
    )


def madpo(
    winner_NP,
    loser_NP,
    *,
    ref_winner_NP=None,
    ref_loser_NP=None,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    mask_P=None,
) -> SumCount:
    """Multi-agent DPO on pairs of joint answers (CoMLRL 1.4.3): [N, ..., P] -> SumCount of shape [N].

    With Delta_i = log pi_i(w_i) - log pi_i(l_i), minus the same difference of the reference if there is one:

        loss_i = - log sigmoid(beta (Delta_i + sum_{j != i} stopgrad Delta_j))

    gradient to agent i: - beta sigmoid(-x) grad Delta_i, where x is the margin of all agents together. It is
    that of the joint loss - log sigmoid(beta sum_i Delta_i), which is DPO of the team as one policy that
    factorises over its agents; where some agents rank a pair correctly, the others' gradients are small. All
    agents have the same value, so take the gradient of `mean().sum()`, or of each agent's part separately.

    >>> losses_N = madpo([[-1.0], [-2.0]], [[-2.0], [-1.0]]).mean()  # the Deltas 1 and -1 cancel
    >>> [round(float(loss), 4) for loss in losses_N]
    [0.6931, 0.6931]

    Args:
      winner_NP, loser_NP: log-prob of each agent's part of the joint answers.
      ref_winner_NP, ref_loser_NP: the same of the reference policies, both or neither.
      beta: temperature > 0 of the preference.
      label_smoothing: see the module.
      mask_P: pairs [..., P] to count, all if None; agents share them.

    Raises:
      ValueError: as in `dpo`, or for a mask of another shape than the pairs'.
    """
    deltas_NP = _log_ratio_gap(winner_NP, loser_NP, ref_winner_NP, ref_loser_NP, beta)
    if mask_P is not None:
        check_alike(pairs_P=deltas_NP[0], mask_P=mask_P)
        mask_P = jnp.broadcast_to(jnp.asarray(mask_P, bool)[None], deltas_NP.shape)
    fixed_NP = jax.lax.stop_gradient(deltas_NP)
    others_NP = jnp.sum(fixed_NP, axis=0, keepdims=True) - fixed_NP
    losses_NP = _pair_losses(beta * (deltas_NP + others_NP), mask_P, label_smoothing)
    pairs = tuple(range(1, losses_NP.ndim))
    return SumCount(jnp.sum(losses_NP, axis=pairs), _count(losses_NP, mask_P, axis=pairs))


def _difference(winner_P, loser_P) -> jax.Array:
    return jnp.asarray(winner_P, jnp.float32) - jnp.asarray(loser_P, jnp.float32)


def _log_ratio_gap(winner_P, loser_P, ref_winner_P, ref_loser_P, beta: float) -> jax.Array:
    """Delta: log pi of the winner minus that of the loser, minus the same difference of the reference."""
    check_positive("beta", beta)
    if (ref_winner_P is None) != (ref_loser_P is None):
        lacks = "ref_winner" if ref_winner_P is None else "ref_loser"
        raise UserError(f"{lacks}=None; allowed: both references or neither")
    check_alike(winner=winner_P, loser=loser_P, ref_winner=ref_winner_P, ref_loser=ref_loser_P)
    deltas_P = _difference(winner_P, loser_P)
    if ref_winner_P is None:
        return deltas_P
    return deltas_P - jax.lax.stop_gradient(_difference(ref_winner_P, ref_loser_P))


def _pair_losses(margins_P: jax.Array, mask_P, label_smoothing: float) -> jax.Array:
    """-log sigmoid of the margins, smoothed; 0 where masked."""
    if not 0 <= label_smoothing < 0.5:
        raise UserError(f"label_smoothing={label_smoothing}; allowed: 0 to below 0.5")
    if mask_P is not None:
        margins_P = jnp.where(jnp.asarray(mask_P, bool), margins_P, 0.0)
    right_P, wrong_P = jax.nn.log_sigmoid(margins_P), jax.nn.log_sigmoid(-margins_P)
    losses_P = -(1 - label_smoothing) * right_P - label_smoothing * wrong_P
    return losses_P if mask_P is None else jnp.where(jnp.asarray(mask_P, bool), losses_P, 0.0)


def _count(losses_P: jax.Array, mask_P, axis=None) -> jax.Array:
    there_P = jnp.ones_like(losses_P) if mask_P is None else jnp.asarray(mask_P, bool)
    return jnp.sum(there_P, axis=axis, dtype=jnp.float32)


def _complete(winner_mask_PT, loser_mask_PT, mask_P) -> jax.Array:
    """Unmasked pairs with an unmasked entry on both sides."""
    complete_P = jnp.any(jnp.asarray(winner_mask_PT, bool), axis=-1) & jnp.any(
        jnp.asarray(loser_mask_PT, bool), axis=-1
    )
    return complete_P if mask_P is None else complete_P & jnp.asarray(mask_P, bool)
