"""Influence-aware returns and transition bonuses (MAPoRL): tables by hand, and what each option leaves out."""

import doctest
import itertools

import jax
import numpy as np
import pytest

from jaxmarl_llm.credit import influence
from jaxmarl_llm.credit.influence import influence_returns, transition_bonuses

# V_a = (0, 1, 1), V_b = (1, 0, 1)
SCORES_TN = np.array([[0, 1], [1, 0], [1, 1]], np.float32)


def test_the_table_by_hand():
    """g = .3, of the first turn (V + .3 * .5 + .09 * 1) / 1.39, of the second (V + .3 * 1) / 1.3."""
    returns_TN = influence_returns(SCORES_TN, discount=0.3)
    np.testing.assert_allclose(returns_TN[:, 0], [0.24 / 1.39, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(returns_TN[:, 1], [1.24 / 1.39, 0.3 / 1.3, 1], rtol=1e-6)
    np.testing.assert_allclose(returns_TN.round(4), [[0.1727, 0.8921], [1, 0.2308], [1, 1]], atol=1e-6)


@pytest.mark.parametrize("discount", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("share", influence.SHARES)
def test_the_equation(discount, share):
    scores_TN = np.random.default_rng(0).random((4, 3))
    shared_TN = scores_TN.mean(1, keepdims=True) if share == "all" else scores_TN
    for t, n in itertools.product(range(4), range(3)):
        later = sum(discount ** (k - t) * shared_TN[k, min(n, shared_TN.shape[1] - 1)] for k in range(t + 1, 4))
        scale = sum(discount ** (k - t) for k in range(t, 4))
        actual = influence_returns(scores_TN, discount=discount, share=share)[t, n]
        assert actual == pytest.approx((scores_TN[t, n] + later) / scale, rel=1e-5)


def test_what_the_other_horizons_leave_out():
    """With the current turn, or one's own answers, nothing that the other one earns later is counted."""
    changed = SCORES_TN.copy()
    changed[1:, 1] = 1 - changed[1:, 1]  # b's later answers

    def of_first(**options):
        return [float(influence_returns(scores, **options)[0, 0]) for scores in (SCORES_TN, changed)]

    for options in (dict(horizon="current"), dict(share="individual"), dict(horizon="last", share="individual")):
        before, after = of_first(**options)
        assert before == after
    for options in ({}, dict(horizon="last")):
        before, after = of_first(**options)
        assert before != after
    np.testing.assert_array_equal(influence_returns(SCORES_TN, horizon="current"), [[0.5] * 2, [0.5] * 2, [1] * 2])
    np.testing.assert_array_equal(influence_returns(SCORES_TN, horizon="last"), np.ones((3, 2)))
    np.testing.assert_array_equal(
        influence_returns(SCORES_TN, horizon="current", share="individual"), SCORES_TN
    )  # fmt: skip


# Own answer before and after, the others' majority before: 1 right, 0 wrong, None undecided; who pays, and the sign.
OWN = [
    (0, 1, 1, "with_majority", 1), (0, 1, 0, "on_own", 1), (1, 0, 0, "with_majority", -1), (1, 0, 1, "on_own", -1),
    (0, 1, None, "on_own", 1), (1, 0, None, "on_own", -1),
    *((same, same, others, "", 0) for same in (0, 1) for others in (0, 1, None)),
]  # fmt: skip


@pytest.mark.parametrize("before, after, others, paid, sign", OWN)
def test_the_table_of_own_changes(before, after, others, paid, sign):
    """Of three agents two keep their answers, which agree or do not."""
    rest = (0, 1) if others is None else (others, others)
    scores_TN = np.array([(before, *rest), (after, *rest)], np.float32)
    for name in ("with_majority", "on_own"):
        bonuses_TN = transition_bonuses(scores_TN, **{name: 2.0})
        np.testing.assert_array_equal(bonuses_TN[0], 0)
        np.testing.assert_array_equal(bonuses_TN[1], [2.0 * sign * (name == paid), 0, 0])


# Own answer, the other one's before and after; who pays, and the sign: plus where the other one becomes right.
LED = [
    (1, 0, 1, "persuade", 1), (0, 0, 1, "provoke", 1), (0, 1, 0, "persuade", -1), (1, 1, 0, "provoke", -1),
    *((own, same, same, "", 0) for own in (0, 1) for same in (0, 1)),
]  # fmt: skip


@pytest.mark.parametrize("own, before, after, paid, sign", LED)
@pytest.mark.parametrize("then", [0, 1])
def test_the_table_of_the_others_changes(own, before, after, paid, sign, then):
    """Whatever the agent itself answers then; of several others the share counts."""
    for name in ("persuade", "provoke"):
        bonuses_TN = transition_bonuses([[own, before], [then, after]], **{name: 3.0})
        assert bonuses_TN[0, 0] == 3.0 * sign * (name == paid) and bonuses_TN[1, 0] == 0
        three = transition_bonuses([[own, before, 1], [then, after, 1]], **{name: 3.0})
        assert three[0, 0] == 1.5 * sign * (name == paid)


def test_bonuses_add_up_and_need_a_half():
    """.5 is right, .49 is not."""
    options = dict(with_majority=1.0, on_own=2.0, persuade=4.0, provoke=8.0)
    whole = transition_bonuses(SCORES_TN, **options)
    parts = [transition_bonuses(SCORES_TN, **{name: value}) for name, value in options.items()]
    np.testing.assert_allclose(whole, sum(parts))
    # a becomes right as b was, b wrong as a was; then b becomes right as a was; a led b to wrong (persuade), b led a
    # to right, and in the second turn a led b to right.
    np.testing.assert_array_equal(whole, [[-4, 4], [1 + 4, -1], [0, 1]])
    np.testing.assert_array_equal(transition_bonuses([[0.49, 1.0], [0.5, 1.0]], with_majority=1.0)[1], [1, 0])
    batch = transition_bonuses(np.stack([SCORES_TN, SCORES_TN[::-1]]), **options)
    np.testing.assert_array_equal(batch[0], whole)
    np.testing.assert_array_equal(jax.jit(lambda x: transition_bonuses(x, **options))(SCORES_TN), whole)


@pytest.mark.parametrize("call, message", [
    (lambda: influence_returns([0.0, 1.0]), r"scores \(2,\); allowed: \[.., T, N\]"),
    (lambda: influence_returns(SCORES_TN, horizon="both"), "horizon='both'; allowed: discounted, current, last"),
    (lambda: influence_returns(SCORES_TN, share="half"), "share='half'; allowed: all, individual"),
    (lambda: influence_returns(SCORES_TN, discount=1.5), "discount"),
    (lambda: transition_bonuses(SCORES_TN, persuade=-1.0), "persuade=-1.0; allowed: at least 0"),
    (lambda: transition_bonuses([[1.0], [0.0]], on_own=1.0), "scores are of 1 agent; bonuses need two or more"),
])  # fmt: skip
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_examples():
    assert doctest.testmod(influence).attempted == 2 and doctest.testmod(influence).failed == 0
