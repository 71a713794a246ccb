"""The forest's bookkeeping, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from jaxmarl_llm import forest
from jaxmarl_llm.forest import Forest, Joint


def joints(*rows):
    return tuple(Joint(0, turns, SimpleNamespace(total=total)) for turns, total in rows)


def test_aligned_answers_pair_equal_samples():
    assert forest.joint_samples("aligned", agents=3, samples=2) == [(0, 0, 0), (1, 1, 1)]


def test_cross_answers_are_all_combinations_the_last_agent_first():
    assert forest.joint_samples("cross", agents=2, samples=2) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len(forest.joint_samples("cross", agents=3, samples=4)) == 4**3


def test_other_modes_are_an_error():
    with pytest.raises(ValueError, match=r"joint_mode='all' is not one of \('aligned', 'cross'\)"):
        forest.joint_samples("all", 2, 2)


def test_memberships_list_every_pair_of_joint_and_turn():
    # Two agents, two samples each: turns 0, 1 of the first, 2, 3 of the second; two of the four combinations.
    made = Forest(("item",), (), joints(((0, 2), 1.0), ((0, 3), 4.0)))
    joint_M, turn_M = made.memberships()
    assert joint_M.tolist() == [0, 0, 1, 1] and turn_M.tolist() == [0, 2, 0, 3]
    assert made.totals().tolist() == [1.0, 4.0] and made.totals().dtype == np.float32


def test_a_reward_that_does_not_apply_is_nan():
    np.testing.assert_array_equal(Forest((), (), joints(((0,), None), ((1,), 2.0))).totals(), [np.nan, 2.0])
