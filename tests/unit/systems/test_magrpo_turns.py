"""MAGRPO in two turns: returns of trees and chains, weights, and batches, by hand."""

import dataclasses

import numpy as np
import pytest
import tiny
from hand_made_forests import TREE, Tree, aligned

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.update import collate


def test_returns_of_an_aligned_tree_by_hand():
    # joint 0: 1 + mean(3, 5) = 5; joint 1: 2 + mean(0, 4) = 4; both agents alike
    assert magrpo.joint_returns(TREE).tolist() == [5, 4, 3, 5, 0, 4]
    assert magrpo.returns(TREE).tolist() == [5, 4, 5, 4, 3, 5, 3, 5, 0, 4, 0, 4]
    advantages = magrpo.advantages(TREE, CreditConfig())
    assert advantages.tolist() == [0.5, -0.5] * 2 + [-1, 1] * 2 + [-2, 2] * 2


def test_the_discount_is_honoured():
    # joint 0: 1 + 0.5 * 4 = 3; joint 1: 2 + 0.5 * 2 = 3: no difference left
    config = CreditConfig(discount=0.5)
    assert magrpo.joint_returns(TREE, config)[:2].tolist() == [3, 3]
    assert magrpo.advantages(TREE, config)[:4].tolist() == [0, 0, 0, 0]
    assert magrpo.joint_returns(TREE, CreditConfig(discount=0.0)).tolist() == [1, 2, 3, 5, 0, 4]


def test_other_backups():
    # joint 0: 1 + max(3, 5), joint 1: 2 + max(0, 4): the same; last answers: (3 + 5) / 2, (0 + 4) / 2
    assert magrpo.joint_returns(TREE, CreditConfig(backup="max")).tolist() == [6, 6, 3, 5, 0, 4]
    assert magrpo.joint_returns(TREE, CreditConfig(backup="last")).tolist() == [4, 2, 3, 5, 0, 4]
    actual = magrpo.joint_returns(TREE, CreditConfig(backup="last", discount=0.5))
    assert actual.tolist() == [2, 1, 3, 5, 0, 4]
    assert magrpo.advantages(TREE, CreditConfig(backup="max"))[:4].tolist() == [0, 0, 0, 0]


def test_where_a_node_ended_early_its_answers_are_last_ones():
    # After joint 0 come 3 and 5, which end; after joint 1 comes 2, 2, and after the first of those 8 and 6.
    tree = Tree("aligned").node([1.0, 1.0]).node([3.0, 5.0], 0).node([2.0, 2.0], 1).node([8.0, 6.0], 4)
    actual = magrpo.joint_returns(tree.forest(), CreditConfig(backup="last"))
    # joint 0: (3 + 5) / 2; joint 4: (8 + 6) / 2; joint 1: (7 + 2) / 2
    assert actual.tolist() == [4, 4.5, 3, 5, 7, 2, 8, 6]
    # As the best of the ways: 1 + 5 and, for the turn that was left out, the mean 4; 1 + 2 + 8
    actual = magrpo.joint_returns(tree.forest(), CreditConfig(backup="max", turns=3))
    assert actual[:2].tolist() == [10, 11]


def test_returns_of_a_cross_tree_by_hand():
    # Joint answers (a, b) = 00, 01, 10, 11 earn 0, 1, 2, 3; after joint k come k, k, k, k + 4: mean k + 1.
    tree = Tree("cross").node([0.0, 1.0, 2.0, 3.0])
    for k in range(4):
        tree.node([k, k, k, k + 4.0], follows=k)
    forest = tree.forest()
    # 0 + 1, 1 + 2, 2 + 3, 3 + 4
    assert magrpo.joint_returns(forest)[:4].tolist() == [1, 3, 5, 7]
    # a0 = (1 + 3) / 2, a1 = (5 + 7) / 2, b0 = (1 + 5) / 2, b1 = (3 + 7) / 2
    # later a0 = b0 = k, a1 = b1 = k + 2
    expected = [2, 6, 3, 5] + [value for k in range(4) for value in (k, k + 2, k, k + 2)]
    assert magrpo.returns(forest).tolist() == expected
    assert magrpo.returns(forest, CreditConfig(reduce="sum")).tolist() == [2 * value for value in expected]
    assert magrpo.advantages(forest, CreditConfig())[:4].tolist() == [-2, 2, -1, 1]


def test_in_a_chain_what_follows_is_shared():
    # Only joint 1 was handed on, and earned mean(0, 4) = 2 later. Both get that: 1 and 2 decide.
    chain = aligned(([0.0, 4.0], 1))
    assert magrpo.joint_returns(chain, CreditConfig(chain=True)).tolist() == [3, 4, 0, 4]
    assert magrpo.advantages(chain, CreditConfig(chain=True))[:2].tolist() == [-0.5, 0.5]
    # The best of what followed is shared as well: other returns, the same advantages. The last: none at all.
    assert magrpo.joint_returns(chain, CreditConfig(chain=True, backup="max")).tolist() == [5, 6, 0, 4]
    for backup, wanted in (("max", [-0.5, 0.5]), ("last", [0, 0])):
        actual = magrpo.advantages(chain, CreditConfig(chain=True, backup=backup))
        assert actual[:2].tolist() == wanted
    # As a tree, joint 0 would be blamed for having no successor.
    assert magrpo.joint_returns(chain).tolist() == [1, 4, 0, 4]


def test_what_an_answer_is_worth_does_not_depend_on_whether_another_problem_went_on():
    """One node of rewards 1 and 3 of two turns ends; a second problem's does, or goes on."""
    config = CreditConfig(baseline="none", turns=2)
    alone = Tree("aligned").node([1.0, 3.0]).forest()
    beside = Tree("aligned").node([1.0, 3.0]).node([0.0, 0.0]).node([5.0, 7.0], 2).forest()
    # each with the mean 2 of the turn that was left out
    assert magrpo.advantages(alone, config)[:4].tolist() == [3, 5, 3, 5]
    assert magrpo.advantages(beside, config)[:4].tolist() == [3, 5, 3, 5]


def test_the_losses_of_later_turns_weigh_as_in_the_return():
    """Of two problems with two answers each one answer goes on: one node of the four that there could be."""
    tree = Tree("aligned").node([1.0, 2.0]).node([4.0, 4.0]).node([0.0, 4.0], 1)
    made = tree.forest()
    # n = 2 answers of an agent, the node's share of the return is 1/2 (problems) * 1/2 (answers before it),
    # half of that for each of its two answers
    assert magrpo.return_weights(made, CreditConfig(turns=2)).tolist() == [1] * 8 + [0.25] * 4
    assert magrpo.return_weights(made, CreditConfig(turns=2, discount=0.5)).tolist() == [1] * 8 + [0.125] * 4
    # in a chain nothing but the problems has a share
    assert magrpo.return_weights(made, CreditConfig(turns=2, chain=True)).tolist() == [1] * 8 + [0.5] * 4
    assert magrpo.return_weights(made, CreditConfig(turn_loss="mean")).tolist() == [1] * 12
    assert magrpo.advantages(made, CreditConfig(turns=2))[8:].tolist() == [-0.5, 0.5] * 2
    assert magrpo.advantages(made, CreditConfig(turns=2, turn_loss="mean"))[8:].tolist() == [-2, 2] * 2
    # where every answer goes on nothing is weighed but the discount
    assert magrpo.return_weights(TREE, CreditConfig(turns=2)).tolist() == [1] * 12
    assert magrpo.return_weights(TREE, CreditConfig(discount=0.5)).tolist() == [1] * 4 + [0.5] * 8
    with pytest.raises(ValueError, match="turn_loss='sum'; allowed: return, mean"):
        CreditConfig(turn_loss="sum")


@pytest.mark.parametrize("discount, first", [(1.0, [9, 5]), (0.5, [1 + 2 + 1, 1 + 1 + 0.5])])
def test_a_node_that_ended_early_counts_as_if_it_went_on_as_good(discount, first):
    # After joint 0 comes a node that earns 3 and 5, mean 4, and ends; after joint 1 nodes of 2, and again 2.
    # Joint 0: 1 + 4 + 4; joint 1: 1 + 2 + 2. Without the turn that was left out it would be 5 each.
    tree = Tree("aligned").node([1.0, 1.0]).node([3.0, 5.0], 0).node([2.0, 2.0], 1)
    tree.node([2.0, 2.0], 4).node([2.0, 2.0], 5)
    config = CreditConfig(discount=discount, turns=3, turn_loss="mean")
    actual = magrpo.joint_returns(tree.forest(), config)
    assert actual[:2].tolist() == first
    assert actual[2:4].tolist() == [3 + 4 * discount, 5 + 4 * discount]  # alike: it decides nothing here
    assert magrpo.advantages(tree.forest(), config)[4:8].tolist() == [-1, 1, -1, 1]


def test_rewards_that_do_not_apply_count_nowhere():
    # joint 0: 1 + 5, the other successor has no reward; joint 1's own reward is missing, so it has no return
    tree = Tree("aligned").node([1.0, None]).node([None, 5.0], 0).node([0.0, 4.0], 1).forest()
    np.testing.assert_array_equal(magrpo.joint_returns(tree), [6, np.nan, np.nan, 5, 0, 4])


def test_turn_weights_scale_the_advantages():
    weighted = magrpo.advantages(TREE, CreditConfig(turn_weights=(1.2, 0.8)))
    np.testing.assert_allclose(weighted, [0.6, -0.6] * 2 + [-0.8, 0.8] * 2 + [-1.6, 1.6] * 2, rtol=1e-6)
    with pytest.raises(ValueError, match=r"turn_weights=\(1.0,\); there are 2 turns"):
        magrpo.advantages(TREE, CreditConfig(turn_weights=(1.0,)))


def test_a_batch_per_turn():
    first, second = collate.collate(TREE, np.arange(12.0), tiny.stack(), max_new_tokens=8)
    assert first.tokens_NRL.shape[:2] == (2, 2) and second.tokens_NRL.shape[:2] == (2, 4)
    assert first.advantages_NR.tolist() == [[0, 1], [2, 3]]
    assert second.advantages_NR.tolist() == [[4, 5, 8, 9], [6, 7, 10, 11]]  # node after node
    assert second.lengths_NR.tolist() == [[2, 3, 2, 3]] * 2
    assert second.prompt_lengths_NB.tolist() == [[4, 4]] * 2


def test_groups_of_different_sizes_in_one_turn_are_refused():
    turns = [dataclasses.replace(turn, request=0 if turn.id < 3 else 1) for turn in TREE.turns[:4]]
    turns = [dataclasses.replace(turn, agent="a", turn=0) for turn in turns]
    with pytest.raises(ValueError, match="agent 'a' was asked for different numbers .* turn 0: 3, 1"):
        collate.collate(Forest(("x",), tuple(turns), ()), np.ones(4), tiny.stack(), max_new_tokens=8)


def test_batches_have_the_size_of_the_full_tree_where_nodes_ended_early():
    # Two items: 2 and 4 sizes are possible for the second turn; three of the four answers went on.
    tree = Tree("aligned").node([1.0, 2.0]).node([1.0, 2.0])
    for follows in (0, 1, 2):
        tree.node([1.0, 2.0], follows)
    forest = Forest(("x", "y"), tuple(tree.turns), tuple(tree.joints))
    _, second = collate.collate(forest, np.ones(20), tiny.stack(), max_new_tokens=8)
    assert second.prompts_NBP.shape[1] == 4
    assert second.lengths_NR.tolist() == [[2, 3] * 3 + [0, 0]] * 2
    assert second.advantages_NR[:, 6:].tolist() == [[0, 0]] * 2
