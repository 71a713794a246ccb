"""Targets of Q*: fitted Q iteration against value iteration written out, best roll-outs, completions, aggregates."""

import numpy as np
import pytest

from jaxmarl_llm.credit import q_targets


def random_tree(seed, steps=40):
    """Parents before their children, rewards on the way, at most so many steps."""
    chance = np.random.default_rng(seed)
    parent_S = np.array([chance.integers(-1, s) for s in range(steps)])
    return chance.normal(size=steps).astype(np.float32), parent_S


def value_iteration(reward_S, parent_S, discount):
    """Oracle: Q by recursion, from the last step to the first, in float64."""
    q_S = reward_S.astype(np.float64)
    for s in reversed(range(len(q_S))):
        children = [q_S[c] for c in range(len(q_S)) if parent_S[c] == s]
        q_S[s] = reward_S[s] + (discount * max(children) if children else 0.0)
    return q_S


def depth_of(parent_S):
    depth_S = np.zeros(len(parent_S), int)
    for s, parent in enumerate(parent_S):
        depth_S[s] = 1 + (depth_S[parent] if parent >= 0 else 0)
    return int(depth_S.max())


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("seed", range(3))
def test_fitted_q_of_a_table_is_value_iteration(seed, discount):
    reward_S, parent_S = random_tree(seed)
    wanted_S, values_S = value_iteration(reward_S, parent_S, discount), np.zeros(len(reward_S), np.float32)
    for _ in range(depth_of(parent_S)):
        values_S = q_targets.fitted(values_S, reward_S, parent_S, discount=discount)
    np.testing.assert_allclose(values_S, wanted_S, atol=1e-5)
    again_S = q_targets.fitted(values_S, reward_S, parent_S, discount=discount)
    np.testing.assert_allclose(again_S, values_S, atol=1e-5)  # nothing changes any more
    best_S = q_targets.best_rollout(reward_S, parent_S, depth=depth_of(parent_S), discount=discount)
    np.testing.assert_allclose(best_S, wanted_S, atol=1e-5)


def test_fitted_targets_are_of_the_values_given():
    """One step alone: the children's values count, not what they are worth."""
    targets_S = q_targets.fitted([9.0, 2.0, 3.0, -4.0], [1.0, 0.5, 0.0, 0.0], [-1, 0, 0, 1], discount=0.5)
    assert targets_S.tolist() == [1.0 + 0.5 * 3.0, 0.5 + 0.5 * -4.0, 0.0, 0.0]


def test_completions_count_the_answers_of_one_author_alone():
    #       0: first step;  1, 2, 3 after it;  4 and 5 after 1, 6 after 2
    parent_S = [-1, 0, 0, 0, 1, 1, 2]
    reward_S = [0.25, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    own_S = [False, False, False, False, True, True, False]
    targets_S = q_targets.completions(reward_S, parent_S, own_S, depth=3)
    np.testing.assert_allclose(targets_S, [0.75, 0.5, np.nan, np.nan, 1.0, 0.0, np.nan])
    half_S = q_targets.completions(reward_S, parent_S, own_S, depth=3, discount=0.5)
    np.testing.assert_allclose(half_S[:2], [0.25 + 0.5 * 0.25, 0.25])


@pytest.mark.parametrize("how, wanted", [("min", -0.5), ("max", 1.0), ("sum", 0.75), ("last", 0.25)])
def test_what_a_prefix_has_earned(how, wanted):
    assert q_targets.aggregate([1.0, -0.5, 0.25], how) == wanted
    assert q_targets.aggregate([], how) == 0.0


def test_what_is_refused():
    with pytest.raises(ValueError, match="aggregate='mean' is unknown; allowed: min, max, sum, last"):
        q_targets.aggregate([1.0], "mean")
    with pytest.raises(ValueError, match="discount=1.5; allowed: 0 to 1"):
        q_targets.fitted([0.0], [0.0], [-1], discount=1.5)
