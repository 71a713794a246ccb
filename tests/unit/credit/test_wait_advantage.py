"""Advantages over waiting: by hand, and parts that add up to the whole."""

import jax
import numpy as np
import pytest

from jaxmarl_llm import credit


def test_by_hand():
    """gamma = .5: V = Q(s, w) / gamma = .8; Q(s, a) = .9; after the first agent .7, after the second .6."""
    assert float(credit.joint_advantages([0.9], [0.4], discount=0.5)[0]) == pytest.approx(0.1)
    parts = credit.ordered_advantages([[0.7, 0.6, 0.9]], [0.4], discount=0.5)
    np.testing.assert_allclose(parts, [[-0.1, -0.1, 0.3]], atol=1e-6)
    # Waiting changes nothing, and costs a step.
    assert float(credit.joint_advantages([0.4], [0.4], discount=0.5)[0]) == pytest.approx(-0.4)


@pytest.mark.parametrize("agents", [1, 2, 5])
def test_local_advantages_add_up_to_the_joint_one(agents):
    rng = np.random.default_rng(agents)
    q_XN, wait_X = rng.uniform(-1, 1, (400, agents)), rng.uniform(-1, 1, 400)
    for discount in (0.3, 0.95, 1.0):
        parts_XN = jax.jit(credit.ordered_advantages, static_argnames="discount")(q_XN, wait_X, discount=discount)
        joint_X = credit.joint_advantages(q_XN[:, -1], wait_X, discount=discount)
        np.testing.assert_allclose(np.asarray(parts_XN, np.float64).sum(1), joint_X, atol=1e-6)


def test_who_waits_after_another_agent_has_no_advantage():
    parts = credit.ordered_advantages([[0.7, 0.7, 0.7]], [0.4], discount=0.9)
    assert parts[0, 1:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("discount", [0, -0.5, 1.5])
def test_a_discount_with_which_waiting_says_nothing(discount):
    for call in (credit.joint_advantages, credit.ordered_advantages):
        with pytest.raises(ValueError, match=f"discount={discount}; allowed: above 0, up to 1"):
            call([[0.5]] if call is credit.ordered_advantages else [0.5], [0.5], discount=discount)
