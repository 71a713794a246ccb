"""Problems of several forests as one forest: numbers, and credit that does not depend on the company."""

import dataclasses

import numpy as np
import pytest
from hand_made_forests import TREE, Tree

from jaxmarl_llm.forest.problems import combined
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.testing.forests import small_forest

ONE = small_forest(("a", "b"), ((1.0, 2.0), (3.0, 3.0), (0.0, 5.0)))  # 4 turns and 2 joint answers for each


def test_numbers_count_on_from_forest_to_forest():
    actual = combined([(ONE, [2, 0]), (ONE, [1])])
    assert [item.task_id for item in actual.items] == ["item 2", "item 0", "item 1"]
    assert [turn.id for turn in actual.turns] == list(range(12))
    # In the order of the forest that they are from: 0 before 2, though 2 is the first item.
    assert [turn.text for turn in actual.turns] == [f"text {i}" for i in (0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7)]
    assert [turn.item for turn in actual.turns] == [1] * 4 + [0] * 4 + [2] * 4
    assert [turn.request for turn in actual.turns] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [joint.turns for joint in actual.joints] == [(0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11)]
    assert [joint.item for joint in actual.joints] == [1, 1, 0, 0, 2, 2]
    assert [joint.node for joint in actual.joints] == [0, 0, 1, 1, 2, 2]
    assert [joint.total for joint in actual.joints] == [1, 2, 0, 5, 3, 3]


def test_what_is_no_problem_s_own_is_left_out():
    whole = dataclasses.replace(ONE, extra_answers=3, extra_tokens=4, replaced_by="nothing", unused=(ONE,))
    actual = combined([(whole, [0])])
    assert (actual.extra_answers, actual.extra_tokens, actual.unused) == (0, 0, ())
    assert actual.replaced_by == "nothing"


def test_counterfactuals_go_with_their_joint_answers():
    first = dataclasses.replace(ONE, counterfactuals=np.arange(12, dtype=np.float32).reshape(2, 6))
    actual = combined([(first, [1]), (ONE, [0])])
    assert actual.counterfactuals.tolist() == [[2, 3, 0.5, 0.5], [8, 9, 0.5, 0.5]]
    assert combined([(first, [1]), (dataclasses.replace(ONE, counterfactuals=None), [0])]).counterfactuals is None


def test_all_and_none():
    assert combined([(TREE, [0])]) == TREE
    nothing = combined([(TREE, []), (TREE, [])])
    assert (nothing.items, nothing.turns, nothing.joints) == ((), (), ())


def test_pointers_to_turns_and_answers():
    turns = [dataclasses.replace(turn, parent=turn.id - 1, shown=(0, turn.id - 1)) for turn in ONE.turns[1:]]
    joints = [dataclasses.replace(joint, heard=(joint.turns[0],)) for joint in ONE.joints]
    linked = dataclasses.replace(ONE, turns=(ONE.turns[0], *turns), joints=tuple(joints))
    one = combined([(linked, [0])])
    actual = combined([(ONE, [1]), (one, [0])])
    assert [(turn.parent, turn.shown) for turn in actual.turns[4:]] == [
        (None, ()), (4, (4, 4)), (5, (4, 5)), (6, (4, 6)),
    ]  # fmt: skip
    assert [joint.heard for joint in actual.joints] == [(), (), (4,), (5,)]
    after = combined([(ONE, [1]), (TREE, [0])])
    assert [joint.follows for joint in after.joints] == [None, None, None, None, 2, 2, 3, 3]


@pytest.mark.parametrize("options", [{}, {"turn_loss": "mean"}, {"baseline": "max"}, {"normalise": True}])
def test_advantages_of_a_problem_do_not_depend_on_the_other_forest(options):
    other = Tree("aligned").node([4.0, 1.0]).node([2.0, 2.0], 0).node([7.0, 0.0], 1).forest()
    config = CreditConfig(turns=2, **options)
    apart = [magrpo.advantages(forest, config) for forest in (TREE, other)]
    # Means over the groups of a turn: with twice as many groups, a share of the return is half, and its factor 1.
    np.testing.assert_allclose(
        magrpo.advantages(combined([(TREE, [0]), (other, [0])]), config), np.concatenate(apart), rtol=1e-6
    )
