"""marginals.py and systems/ccpo.py by hand: two by two and three samples, trees, what does not apply."""

import dataclasses

import numpy as np
import pytest
from hand_made_forests import ALL, judged_nodes
from hand_made_forests import TREE as TWO_TURNS

from jaxmarl_llm.config import base_config, validate
from jaxmarl_llm.forest import marginals
from jaxmarl_llm.systems import ccpo
from jaxmarl_llm.systems.magrpo import CreditConfig

NAN = np.nan
# Samples of a in rows: marginals of a are differences down a column, of b along a row.
TABLE = [1.0, 2.0, 5.0, 8.0]
OF_A, OF_B = [-4.0, -6.0, 4.0, 6.0], [-1.0, 1.0, -3.0, 3.0]


def cross(*tables):
    return judged_nodes(*(list(zip(ALL, table, strict=True)) for table in tables))


def aligned(rewards, without_NJ):
    """Three samples of a and b, and what each joint answer would have earned without either."""
    node = [((g, g), reward) for g, reward in enumerate(rewards)]
    made = judged_nodes(node, samples=3)
    return dataclasses.replace(made, counterfactuals=np.array(without_NJ, np.float32))


THREE = aligned([1.0, 2.0, 6.0], [[0, 2, 7], [1, 1, 1]])  # marginals 1, 0, -1 of a, and 0, 1, 5 of b


def test_of_a_full_table_the_other_samples_say_it():
    forest = cross(TABLE)
    assert marginals.marginals(forest).tolist() == [OF_A, OF_B]
    # Against an agent's own samples half of its answers are no better, whatever the agent does.
    assert marginals.metrics(forest) == {}


def test_no_free_riders_among_an_agents_own_samples():
    """An agent that everything depends on, and one that does nothing: both would have 1/2 or 1 of it."""
    needed = aligned([1.0, 2.0, 4.0], [[0, 0, 0], [1, 2, 4]])
    actual = marginals.metrics(dataclasses.replace(needed, replaced_by="nothing"))
    assert (actual["a/free_rider"], actual["b/free_rider"]) == (0, 1)
    assert (actual["a/dominance"], actual["b/dominance"]) == (1, 0)
    sampled = aligned([1.0, 2.0, 4.0], [[2, 4, 1], [1, 2, 4]])  # of a: its next sample's
    actual = marginals.metrics(dataclasses.replace(sampled, replaced_by="sample"))
    assert actual == {}
    again = marginals.metrics(dataclasses.replace(needed, replaced_by="solo"))  # means over conversations
    assert set(again) == {"a/marginal", "b/marginal"}


def test_a_table_that_lacks_a_reward_says_nothing():
    forest = cross(TABLE, [1.0, None, 0.0, 0.0])
    unknown = [NAN] * 4
    np.testing.assert_array_equal(marginals.marginals(forest), [OF_A + unknown, OF_B + unknown])
    assert marginals.metrics(forest) == {}
    assert marginals.metrics(cross([1.0, None, 0.0, 0.0])) == {}


def test_three_samples_judged_without_each_agent():
    assert marginals.marginals(THREE).tolist() == [[1, 0, -1], [0, 1, 5]]
    actual = marginals.metrics(THREE)
    assert actual == pytest.approx({
        "a/marginal": 0, "b/marginal": 2, "a/free_rider": 2 / 3, "b/free_rider": 1 / 3,
        "a/dominance": 1 / 3, "b/dominance": 2 / 3,
    })  # fmt: skip
    assert marginals.marginals(dataclasses.replace(THREE, counterfactuals=None)) is None


def test_where_either_reward_does_not_apply():
    forest = aligned([1.0, 2.0, None], [[0, NAN, 7], [NAN, NAN, NAN]])
    np.testing.assert_array_equal(marginals.marginals(forest), [[1, NAN, NAN], [NAN] * 3])
    # Only the first joint answer says something, of a alone.
    assert marginals.metrics(forest) == {"a/marginal": 1, "a/free_rider": 0}


def test_no_difference_at_all():
    forest = aligned([2.0, 2.0, 2.0], [[2, 2, 2], [2, 2, 2]])
    actual = marginals.metrics(forest)
    assert actual == {f"{agent}/{name}": value for agent in "ab"
                     for name, value in (("marginal", 0), ("free_rider", 1), ("dominance", 0))}  # fmt: skip
    assert ccpo.assign(forest, CreditConfig()).advantages.tolist() == [0] * 6


def test_ccpo_by_hand():
    credit = ccpo.assign(THREE, CreditConfig())
    assert credit.returns.tolist() == [1, 0, -1, 0, 1, 5]
    assert credit.advantages.tolist() == [1, 0, -1, -2, -1, 3]
    assert ccpo.assign(THREE, CreditConfig("none")).advantages.tolist() == [1, 0, -1, 0, 1, 5]
    # of a the mean of the others is -0.5, 0, 0.5
    advantages = ccpo.assign(THREE, CreditConfig("leave_one_out")).advantages
    assert advantages.tolist() == [1.5, 0, -1.5, -3, -1.5, 4.5]
    assert credit.metrics()["b/marginal"] == 2
    with pytest.raises(ValueError, match="CCPO needs counterfactual rewards"):
        ccpo.assign(cross(TABLE), CreditConfig())


def test_ccpo_leaves_out_what_is_not_known():
    # a: 1, -, - and b: -, 1, 5
    forest = aligned([1.0, 2.0, 6.0], [[0, NAN, NAN], [NAN, 1, 1]])
    assert ccpo.assign(forest, CreditConfig()).advantages.tolist() == [0, 0, 0, 0, -2, 2]
    forest = aligned([1.0, 2.0, None], [[0, 2, 7], [1, 1, 1]])
    assert ccpo.assign(forest, CreditConfig()).advantages.tolist() == [0.5, -0.5, 0, -0.5, 0.5, 0]


def test_ccpo_counts_what_follows():
    # Joint answers 5 and 4 with what follows (test_magrpo_turns), less 1 and 3 without a, 0 and 0 without b.
    later = [[0] * 4, [0] * 4]
    without = np.concatenate([[[1, 3], [0, 0]], later], axis=1)
    forest = dataclasses.replace(TWO_TURNS, counterfactuals=without.astype(np.float32))
    credit = ccpo.assign(forest, CreditConfig())
    assert credit.returns.tolist() == [4, 1, 5, 4, 3, 5, 3, 5, 0, 4, 0, 4]
    assert credit.advantages[:4].tolist() == [1.5, -1.5, 0.5, -0.5]


CCPO = {"train.system": "ccpo", "train.counterfactual": "nothing"}


@pytest.mark.parametrize("fields, text", [
    ({"train.system": "ccpo"}, "train.counterfactual='': train.system='ccpo' needs 'nothing' or 'sample' or"),
    (CCPO | {"train.joint_mode": "cross"}, "train.joint_mode='cross' what others earn without an agent"),
    (CCPO | {"train.counterfactual": "solo", "train.protocol": "pipeline"}, "system='ccpo' needs 'none'"),
    ({"train.counterfactual": "solo"}, "'simultaneous' nobody hears the others, say 'nothing'"),
    ({"train.counterfactual": "sample", "train.joint_mode": "cross"}, "judged and logged already, say ''"),
    ({"train.counterfactual": "sample", "train.system": "iac", "train.group": 1}, "has no other sample"),
    ({"train.counterfactual": "nothing", "train.protocol": "tree"}, "replays what follows"),
    ({"train.counterfactual": "nothing", "team.agents": ("main",)}, "nobody beside the agent"),
    ({"train.counterfactual": "reference", "team.mode": "full"}, "team.mode is 'full'"),
])  # fmt: skip
def test_what_the_config_does_not_allow(fields, text):
    config = base_config()
    config.update_from_flattened_dict(fields)
    with pytest.raises(ValueError) as caught:
        validate(config)
    assert text in str(caught.value)


@pytest.mark.parametrize("fields", [
    {"train.counterfactual": "reference", "train.joint_mode": "cross"},
    CCPO | {"train.joint_mode": "cross", "train.baseline": "none"},
    CCPO | {"train.counterfactual": "solo", "train.protocol": "pipeline", "train.baseline": "none"},
])  # fmt: skip
def test_what_it_allows(fields):
    config = base_config()
    config.update_from_flattened_dict(fields)
    validate(config)
