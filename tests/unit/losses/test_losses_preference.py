"""Losses over pairs against hand values, finite differences, the joint loss and removed pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm import losses

LOG2 = np.log(2.0)
NAN = np.nan


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


# --- Bradley-Terry ----------------------------------------------------------------------------------------


def test_bradley_terry_by_hand():
    # Margins log 3 and -log 3: sigmoid 3/4 and 1/4, losses log(4/3) and log 4.
    got = losses.bradley_terry(np.log([3.0, 1.0]), np.log([1.0, 3.0]))
    np.testing.assert_allclose(got.sum, np.log(4 / 3) + np.log(4), rtol=1e-6)
    assert got.count == 2


def test_bradley_terrys_gradient_by_hand():
    # - sigmoid(-x) to the winner, + to the loser: 1/4 and 3/4.
    grads = jax.grad(lambda w, l: losses.bradley_terry(w, l).sum, argnums=(0, 1))(
        jnp.log(jnp.array([3.0, 1.0])), jnp.log(jnp.array([1.0, 3.0]))
    )
    np.testing.assert_allclose(grads[0], [-0.25, -0.75], rtol=1e-6)
    np.testing.assert_allclose(grads[1], [0.25, 0.75], rtol=1e-6)


def test_far_margins_stay_finite():
    got, grad = jax.value_and_grad(lambda w: losses.bradley_terry(w, [0.0]).sum)(jnp.array([-1e4]))
    assert got == 1e4 and grad == -1


def test_label_smoothing_by_hand_and_where_it_stops():
    # Margin log 3: 0.9 log(4/3) + 0.1 log 4. Gradient to the margin e - sigmoid(-x): 0 at x = log(0.9 / 0.1).
    got = losses.bradley_terry([np.log(3.0)], [0.0], label_smoothing=0.1)
    np.testing.assert_allclose(got.sum, 0.9 * np.log(4 / 3) + 0.1 * np.log(4), rtol=1e-6)
    grad = jax.grad(lambda w: losses.bradley_terry(w, [0.0], label_smoothing=0.1).sum)
    np.testing.assert_allclose(grad(jnp.log(jnp.array([9.0]))), 0.0, atol=1e-7)
    np.testing.assert_allclose(grad(jnp.log(jnp.array([3.0]))), 0.1 - 0.25, rtol=1e-6)


# Three turns of winners and two of losers, ragged; of the last pair the loser said nothing.
WINNER_PT = np.array([[1.0, 0.5, NAN], [2.0, 1.0, -1.0], [4.0, NAN, NAN]])
LOSER_PT = np.array([[0.5, NAN], [1.0, 1.5], [NAN, NAN]])
WINNER_MASK_PT, LOSER_MASK_PT = ~np.isnan(WINNER_PT), ~np.isnan(LOSER_PT)
SIDES = (WINNER_PT, LOSER_PT, WINNER_MASK_PT, LOSER_MASK_PT)


def test_summed_scores_by_hand():
    # Margins 1.5 - 0.5 = 1 and 2 - 2.5 = -0.5; the third pair does not count.
    got = losses.bradley_terry_sums(*SIDES)
    np.testing.assert_allclose(got.sum, np.log1p(np.exp(-1)) + np.log1p(np.exp(0.5)), rtol=1e-6)
    assert got.count == 2
    first = losses.bradley_terry_sums(*SIDES, mask_P=np.array([True, False, True]))
    np.testing.assert_allclose(first.mean(), np.log1p(np.exp(-1)), rtol=1e-6)


def test_every_turn_gets_the_gradient_of_its_trajectorys_score():
    winner_PT, loser_PT = jax.grad(
        lambda w, l: losses.bradley_terry_sums(w, l, WINNER_MASK_PT, LOSER_MASK_PT).sum, argnums=(0, 1)
    )(jnp.asarray(WINNER_PT), jnp.asarray(LOSER_PT))
    weight_P = np.array([_sigmoid(-1.0), _sigmoid(0.5), 0.0])[:, None]
    np.testing.assert_allclose(winner_PT, np.where(WINNER_MASK_PT, -weight_P, 0), rtol=1e-5)
    np.testing.assert_allclose(loser_PT, np.where(LOSER_MASK_PT, weight_P, 0), rtol=1e-5)


def test_scores_of_turns_from_tokens_by_hand():
    """The critic of SWEET-RL: beta times the mean log-ratio of a turn's tokens, added over turns."""
    phi_PTL = np.array([[[-1.0, -2.0], [-1.0, NAN]]])
    ref_PTL = np.array([[[-2.0, -4.0], [-1.5, NAN]]])
    mask_PTL = ~np.isnan(phi_PTL)
    score_PT = 0.1 * losses.masked_mean(phi_PTL - ref_PTL, mask_PTL)
    np.testing.assert_allclose(score_PT, [[0.15, 0.05]], rtol=1e-6)  # (1 + 2) / 2, 0.5
    got = losses.bradley_terry_sums(score_PT, np.zeros((1, 1)), mask_PTL.any(-1), np.ones((1, 1), bool))
    np.testing.assert_allclose(got.mean(), np.log1p(np.exp(-0.2)), rtol=1e-6)


# --- DPO --------------------------------------------------------------------------------------------------


def test_dpo_by_hand():
    # beta ((-1 + 3) - (-4 + 5)) = 0.5 (2 - 1): log(1 + exp(-0.5)); without the reference 0.5 (-1 + 4) = 1.5.
    pairs = ([-1.0], [-4.0])
    refs = {"ref_winner_P": [-3.0], "ref_loser_P": [-5.0]}
    np.testing.assert_allclose(losses.dpo(*pairs, **refs, beta=0.5).mean(), np.log1p(np.exp(-0.5)), rtol=1e-6)
    np.testing.assert_allclose(losses.dpo(*pairs, beta=0.5).mean(), np.log1p(np.exp(-1.5)), rtol=1e-6)


def test_dpo_at_the_reference_is_undecided():
    pairs = {"winner_P": [-7.0, -1.0], "loser_P": [-2.0, -3.0]}
    refs = {f"ref_{name}": value for name, value in pairs.items()}
    assert losses.dpo(**pairs, **refs).mean() == pytest.approx(LOG2)


def test_dpos_gradient_is_the_documented_one():
    now, then = [jnp.array([-1.0, -2.0]), jnp.array([-4.0, -1.0])], [[-3.0, -2.0], [-5.0, -2.5]]
    grads = jax.grad(
        lambda w, l, rw, rl: losses.dpo(w, l, ref_winner_P=rw, ref_loser_P=rl, beta=0.5).sum,
        argnums=(0, 1, 2, 3),
    )(*now, *map(jnp.array, then))
    # x = 0.5 (2 - 1) and 0.5 (0 - 1.5): - beta sigmoid(-x) to the winner.
    weights_P = 0.5 * _sigmoid(-np.array([0.5, -0.75]))
    np.testing.assert_allclose(grads[0], -weights_P, rtol=1e-5)
    np.testing.assert_allclose(grads[1], weights_P, rtol=1e-5)
    assert not np.any(grads[2]) and not np.any(grads[3])


def test_turns_are_pairs_of_their_own():
    # Two trajectories of up to two turns; three pairs of turns in all.
    winner_PT, loser_PT = np.array([[-1.0, -2.0], [-1.0, NAN]]), np.array([[-2.0, -1.0], [-3.0, NAN]])
    got = losses.dpo(winner_PT, loser_PT, beta=1.0, mask_P=~np.isnan(winner_PT))
    expected = np.log1p(np.exp(-1)) + np.log1p(np.exp(1)) + np.log1p(np.exp(-2))
    np.testing.assert_allclose(got.sum, expected, rtol=1e-6)
    assert got.count == 3


def test_trajectories_are_added_up_by_hand():
    refs = np.where(WINNER_MASK_PT, 0.25, NAN), np.where(LOSER_MASK_PT, 1.0, NAN)
    got = losses.trajectory_dpo(*SIDES, ref_winner_PT=refs[0], ref_loser_PT=refs[1], beta=2.0)
    # Winners 1.5 - 0.5 and 2 - 0.75, losers 0.5 - 1 and 2.5 - 2: margins 2 (1 + 0.5) and 2 (1.25 - 0.5).
    np.testing.assert_allclose(got.sum, np.log1p(np.exp(-3)) + np.log1p(np.exp(-1.5)), rtol=1e-6)
    assert got.count == 2
    bare = losses.trajectory_dpo(*SIDES, beta=2.0)
    np.testing.assert_allclose(bare.sum, np.log1p(np.exp(-2)) + np.log1p(np.exp(1)), rtol=1e-6)


# --- multi-agent DPO --------------------------------------------------------------------------------------


def _team(seed=0, agents=3, pairs=4):
    random = np.random.default_rng(seed)
    return [jnp.asarray(random.normal(-3, 1.5, (agents, pairs)), jnp.float32) for _ in range(4)]


def _joint(winner_NP, loser_NP, ref_winner_NP, ref_loser_NP, beta):
    """DPO of the team as one policy: log-probs of joint answers are sums over agents."""
    delta_P = (winner_NP - loser_NP - ref_winner_NP + ref_loser_NP).sum(0)
    return jnp.log1p(jnp.exp(-beta * delta_P)).sum()


@pytest.mark.parametrize("with_reference", [True, False])
def test_madpos_gradients_are_those_of_the_joint_loss(with_reference):
    winner, loser, *refs = _team()
    refs = refs if with_reference else [jnp.zeros_like(winner)] * 2
    named = dict(zip(("ref_winner_NP", "ref_loser_NP"), refs, strict=True)) if with_reference else {}
    got = losses.madpo(winner, loser, **named, beta=0.7)
    assert got.sum.shape == got.count.shape == (3,) and got.count.tolist() == [4, 4, 4]
    np.testing.assert_allclose(got.sum, [_joint(winner, loser, *refs, 0.7)] * 3, rtol=1e-5)
    together = jax.grad(lambda w, l: losses.madpo(w, l, **named, beta=0.7).sum.sum(), argnums=(0, 1))
    joint = jax.grad(lambda w, l: _joint(w, l, *refs, 0.7), argnums=(0, 1))
    for a, b in zip(together(winner, loser), joint(winner, loser), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_each_agents_loss_teaches_that_agent_only():
    winner, loser, *_ = _team(1)
    for n in range(3):
        grad_NP = np.array(jax.grad(lambda w, n=n: losses.madpo(w, loser).sum[n])(winner))
        assert np.abs(grad_NP[n]).min() > 0
        grad_NP[n] = 0
        assert not grad_NP.any()


def test_madpo_by_hand():
    # Deltas 1 and 2, beta 0.5: margin 1.5 for both; gradient to each winner - 0.5 sigmoid(-1.5).
    winner, loser = jnp.array([[-1.0], [-2.0]]), jnp.array([[-2.0], [-4.0]])
    loss_N = losses.madpo(winner, loser, beta=0.5).mean()
    np.testing.assert_allclose(loss_N, np.full(2, np.log1p(np.exp(-1.5))), rtol=1e-6)
    grads = jax.grad(lambda w: losses.madpo(w, loser, beta=0.5).mean().sum())(winner)
    np.testing.assert_allclose(grads, np.full((2, 1), -0.5 * _sigmoid(-1.5)), rtol=1e-6)


def test_one_agent_is_dpo():
    winner, loser, *refs = (x[:1] for x in _team(2))
    named = dict(zip(("ref_winner_NP", "ref_loser_NP"), refs, strict=True))
    plain = {name.replace("NP", "P"): x[0] for name, x in named.items()}
    alone = losses.madpo(winner, loser, **named, label_smoothing=0.2)
    np.testing.assert_allclose(
        alone.sum[0], losses.dpo(winner[0], loser[0], **plain, label_smoothing=0.2).sum, rtol=1e-6
    )


@pytest.mark.parametrize("call, message", [
    (lambda: losses.bradley_terry([0.0] * 2, [0.0] * 3), r"loser_P has shape \(3,\); winner_P \(2,\) allows"),
    (lambda: losses.bradley_terry(np.zeros(2), np.zeros(2), mask_P=[True]), r"mask_P has shape \(1,\)"),
    (lambda: losses.bradley_terry([0.0], [0.0], label_smoothing=0.5), "label_smoothing=0.5; allowed: 0 to"),
    (lambda: losses.dpo([0.0], [0.0], beta=0), "beta=0; allowed: a number above 0"),
    (lambda: losses.dpo([0.0], [0.0], ref_winner_P=[0.0]), "ref_loser=None; allowed: both"),
    (lambda: losses.dpo([0.0], [0.0], ref_loser_P=[0.0]), "ref_winner=None"),
    (lambda: losses.dpo([0.0], [0.0], ref_winner_P=[0.0, 1.0], ref_loser_P=[0.0]), r"ref_winner has shape"),
    (lambda: losses.madpo(np.zeros((2, 3)), np.zeros((2, 3)), mask_P=np.ones((2, 3), bool)),
     r"mask_P has shape \(2, 3\); pairs_P \(3,\)"),
    (lambda: losses.trajectory_dpo(*SIDES[:3], np.ones((3, 3), bool)), r"values_BL has shape \(3, 2\)"),
])  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
