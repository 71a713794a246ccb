"""Backups of trees and chains, by hand and against a recursion over a random tree."""

import functools

import jax
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxmarl_llm import credit

#            0: 1                1: 2
#       2: 3      3: 5        4: 0    5: -4
#      6: 1  7: 7                     8: 2
REWARDS = np.array([1.0, 2.0, 3.0, 5.0, 0.0, -4.0, 1.0, 7.0, 2.0])
BEFORE = np.array([-1, -1, 0, 0, 1, 1, 2, 2, 5])
TREE = {"turns": 3, "num_keys": 9}

EXPECTED = {
    # 2: 3 + (1 + 7) / 2 = 7; 5: -4 + 2; 0: 1 + (7 + 5) / 2; 1: 2 + (0 - 2) / 2
    ("mean", 1.0): [7, 1, 7, 5, 0, -2, 1, 7, 2],
    # 2: 3 + 7 = 10; 0: 1 + max(10, 5); 1: 2 + max(0, -2)
    ("max", 1.0): [11, 2, 10, 5, 0, -2, 1, 7, 2],
    # 2: (1 + 7) / 2; 5: 2; 0: (4 + 5) / 2; 1: (0 + 2) / 2
    ("last", 1.0): [4.5, 1, 4, 5, 0, 2, 1, 7, 2],
    # 2: 3 + 4 / 2 = 5; 5: -4 + 1; 0: 1 + (5 + 5) / 4; 1: 2 + (0 - 3) / 4
    ("mean", 0.5): [3.5, 1.25, 5, 5, 0, -3, 1, 7, 2],
    # 2: 3 + 7 / 2 = 6.5; 0: 1 + 6.5 / 2; 1: 2 + 0 / 2
    ("max", 0.5): [4.25, 2, 6.5, 5, 0, -3, 1, 7, 2],
    # 2: 4 / 2; 5: 2 / 2; 0: (2 + 5) / 4; 1: (0 + 1) / 4
    ("last", 0.5): [1.75, 0.25, 2, 5, 0, 1, 1, 7, 2],
}


@pytest.mark.parametrize("backup, discount", EXPECTED)
def test_a_tree_by_hand(backup, discount):
    actual = credit.backed_up_returns(REWARDS, np.arange(9), BEFORE, **TREE, discount=discount, backup=backup)
    np.testing.assert_allclose(actual, EXPECTED[backup, discount], rtol=1e-6)


def test_every_backup_is_tested_above():
    assert {backup for backup, _ in EXPECTED} == set(credit.BACKUPS)


@pytest.mark.parametrize("backup", credit.BACKUPS)
def test_with_one_turn_the_return_is_the_reward(backup):
    actual = credit.backed_up_returns([1.0, -2.0], [0, 1], [-1, -1], turns=1, num_keys=2, backup=backup)
    assert actual.tolist() == [1, -2]


@pytest.mark.parametrize("backup, wanted", [
    # Node 0 has answers 1 and 2; node 1, after one of them, 0 and 4.
    ("mean", [1 + 2, 2 + 2, 0, 4]),
    ("max", [1 + 4, 2 + 4, 0, 4]),
    ("last", [2, 2, 0, 4]),  # answers of one node cannot be told apart by what follows them all
])  # fmt: skip
def test_answers_of_a_chains_node_share_what_follows(backup, wanted):
    keys = {"own_R": [0, 0, 1, 1], "after_R": [-1, -1, 0, 0]}
    actual = credit.backed_up_returns([1.0, 2.0, 0.0, 4.0], **keys, turns=2, num_keys=2, backup=backup)
    assert actual.tolist() == wanted


def recursion(rewards, before, discount, backup):
    """The definition, node by node, in Python."""

    def value(j):
        after = [value(c) for c in range(len(before)) if before[c] == j and not np.isnan(rewards[c])]
        after = [one for one in after if not np.isnan(one)]
        if not after:
            return rewards[j]
        later = discount * (max(after) if backup == "max" else sum(after) / len(after))
        return later if backup == "last" else rewards[j] + later

    return [np.nan if np.isnan(rewards[j]) else value(j) for j in range(len(before))]


@pytest.mark.parametrize("backup", credit.BACKUPS)
def test_a_random_tree_with_rewards_that_do_not_apply(backup):
    random = np.random.default_rng(5)
    rewards = random.normal(size=40)
    rewards[random.permutation(40)[:6]] = np.nan
    before = np.array([-1] * 4 + [random.integers(0, j) for j in range(4, 40)])
    depth = 1 + max(len(list(ancestors(j, before))) for j in range(40))
    actual = credit.backed_up_returns(
        rewards, np.arange(40), before, turns=depth, num_keys=40, discount=0.9, backup=backup
    )
    np.testing.assert_allclose(actual, recursion(rewards, before, 0.9, backup), rtol=1e-4, atol=1e-5)


def ancestors(j, before):
    while before[j] >= 0:
        j = before[j]
        yield j


@pytest.mark.parametrize("backup", credit.BACKUPS)
def test_padding_jit_vmap_and_gradients(backup):
    function = functools.partial(credit.backed_up_returns, **TREE, discount=0.9, backup=backup)
    actual = function(REWARDS, np.arange(9), BEFORE)
    # Rows that are none, in the middle and at the end, claim to follow others.
    places = [4, 9]
    padded = function(*(np.insert(column, places, fill) for column, fill in (
        (REWARDS, np.nan), (np.arange(9), -1), (BEFORE, 0))))  # fmt: skip
    np.testing.assert_array_equal(np.delete(padded, [4, 10]), actual)
    np.testing.assert_array_equal(padded[np.array([4, 10])], 0)
    many = np.stack([REWARDS, REWARDS[::-1]])
    mapped = jax.jit(jax.vmap(function, in_axes=(0, None, None)))(many, np.arange(9), BEFORE)
    np.testing.assert_allclose(mapped[0], actual, rtol=1e-6)
    np.testing.assert_allclose(mapped[1], function(many[1], np.arange(9), BEFORE), rtol=1e-6)
    of_rewards = jax.jit(lambda rewards: function(rewards, np.arange(9), BEFORE))
    check_grads(of_rewards, (REWARDS.astype(np.float32),), order=1, rtol=1e-2, atol=1e-2, eps=1e-2)


@pytest.mark.parametrize("options, message", [
    ({"discount": 1.5}, "discount=1.5; allowed: 0 to 1"),
    ({"backup": "min"}, "backup='min' is unknown; allowed: mean, max, last"),
    ({"own_R": np.arange(8)}, r"\(9,\).*\(8,\)"),
])  # fmt: skip
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        arrays = {"rewards_R": REWARDS, "own_R": np.arange(9), "after_R": BEFORE}
        credit.backed_up_returns(**arrays | TREE | options)
