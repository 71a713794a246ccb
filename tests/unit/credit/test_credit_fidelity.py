"""What one can see of credit: rates and agreements by hand, rank correlations against two other ways."""

import itertools

import jax
import numpy as np
import pytest
from group_returns import GROUP_R, RETURNS_R, STD_0

from jaxmarl_llm import credit

NAN = np.nan
RANDOM = np.random.default_rng(4)


def test_zero_signal_share_and_spread_by_hand():
    # Of groups 0 (signal), 1 (none) and the empty group 2: one of two.
    group_R = np.where(GROUP_R == 2, 9, GROUP_R)
    assert credit.zero_signal_share(RETURNS_R, group_R, num_groups=3) == 0.5
    advantages_R = credit.group_advantage(RETURNS_R, group_R, num_groups=3)
    spread = credit.advantage_spread(advantages_R, group_R, num_groups=3)
    np.testing.assert_allclose(spread, STD_0 / 2, rtol=1e-6)
    within = credit.within_group_variance(RETURNS_R, group_R, num_groups=3)
    np.testing.assert_allclose(within, 26 / 3 / 2, rtol=1e-6)


# Three agents, five joint answers. Marginals:
#   agent 0:   2    0   1   nan  -1
#   agent 1:   0   -1   1    1    0
#   agent 2:   0    0   0    1    0
REWARDS_J = np.array([2.0, 1.0, 3.0, 1.0, 0.0])
WITHOUT_NJ = REWARDS_J - np.array([[2, 0, 1, NAN, -1], [0, -1, 1, 1, 0], [0, 0, 0, 1, 0]])


def test_free_riders_by_hand():
    # Agent 0 of four: second, last; agent 1 of five: first, second, last; agent 2: all but the fourth.
    actual = credit.free_rider_rate(REWARDS_J, WITHOUT_NJ)
    np.testing.assert_allclose(actual, [2 / 4, 3 / 5, 4 / 5], rtol=1e-6)
    # A fall by 1 is none: only the first is left for agent 0.
    actual = credit.free_rider_rate(REWARDS_J, WITHOUT_NJ, tolerance=1.0)
    np.testing.assert_allclose(actual, [3 / 4, 1, 1], rtol=1e-6)
    # Joint answers that are none count nowhere.
    actual = credit.free_rider_rate([2.0, NAN], [[1.0, 5.0], [2.0, 5.0]])
    np.testing.assert_array_equal(actual, [0, 1])
    assert np.isnan(credit.free_rider_rate([2.0], [[NAN]])).all()


def test_dominance_by_hand():
    # The fourth lacks a counterfactual. Of the others, agent 0 explains the first alone; the third needs two.
    np.testing.assert_allclose(credit.dominance_rate(REWARDS_J, WITHOUT_NJ), [1 / 4, 0, 0], rtol=1e-6)
    assert np.isnan(credit.dominance_rate([NAN], [[1.0], [1.0]])).all()


def test_rates_of_cross_rewards_with_other_samples_as_counterfactuals():
    # Only agent 0 matters: its good sample, half of all joint answers, falls; agent 1 never does.
    rewards = np.array([[[0.0, 0.0], [1.0, 1.0]]])
    without = credit.cross_counterfactuals(rewards)
    assert credit.free_rider_rate(rewards, without).tolist() == [0.5, 1]
    assert credit.dominance_rate(rewards, without).tolist() == [0.5, 0]


def test_rounding_is_no_contribution():
    assert credit.free_rider_rate([1.0], [[1 - 1e-6], [1 - 1e-4]]).tolist() == [1, 0]
    assert credit.free_rider_rate([1.0], [[1 - 1e-6], [1 - 1e-4]], tolerance=0.0).tolist() == [0, 0]
    assert credit.dominance_rate([1.0], [[1 - 1e-6], [1 - 1e-4]]).tolist() == [0, 1]


def agreement(advantages_NJ):
    """The definition, pair by pair."""
    same = differ = 0
    for column in np.asarray(advantages_NJ).T:
        for first, second in itertools.combinations(column, 2):
            same += first * second > 0
            differ += first * second < 0
    return same / (same + differ)


def test_agreement_of_signs():
    # Pairs: (1, 3) agree, (-1, 2) do not, 0 and NaN say nothing.
    assert credit.sign_agreement([[1.0, -1.0, 0.0, NAN], [3.0, 2.0, 1.0, 1.0]]) == 0.5
    assert np.isnan(credit.sign_agreement([[0.0, 1.0], [1.0, 0.0]]))
    assert np.isnan(credit.sign_agreement([[1.0, 2.0]]))  # one agent
    shared = credit.aligned_credit([[1.0, -2.0]], num_agents=3).reshape(3, -1)
    assert credit.sign_agreement(shared) == 1
    for agents in (2, 3, 4):
        advantages_NJ = np.round(RANDOM.normal(size=(agents, 20)))  # some are 0
        np.testing.assert_allclose(
            credit.sign_agreement(advantages_NJ), agreement(advantages_NJ), rtol=1e-6
        )


def spearman(x, y):
    """Pearson's correlation of ranks, those that tie by a loop over sorted runs."""

    def ranks(values):
        order, actual = np.argsort(values, kind="stable"), np.empty(len(values))
        start = 0
        for stop in range(1, len(values) + 1):
            if stop == len(values) or values[order[stop]] != values[order[start]]:
                actual[order[start:stop]] = (start + 1 + stop) / 2
                start = stop
        return actual

    return np.corrcoef(ranks(x), ranks(y))[0, 1]


@pytest.mark.parametrize("decimals", [0, 1, 6])  # many ties, some, none
def test_rank_correlation_equals_pearsons_of_ranks(decimals):
    x = RANDOM.normal(size=30).round(decimals)
    y = (0.5 * x + RANDOM.normal(size=30)).round(decimals)
    (actual,) = credit.rank_correlation(x, y)
    np.testing.assert_allclose(actual, spearman(x, y), rtol=1e-5)


def test_rank_correlation_equals_scipys():
    stats = pytest.importorskip("scipy.stats")
    x = RANDOM.integers(0, 5, size=25)
    y = RANDOM.integers(0, 5, size=25) - x
    (actual,) = credit.rank_correlation(x, y)
    np.testing.assert_allclose(actual, stats.spearmanr(x, y).statistic, rtol=1e-5)


def test_rank_correlation_within_groups():
    keys = np.array([0, 1, 0, 1, 0, 1, 2, 2, -1, 0, 1])
    x, y = RANDOM.normal(size=(2, 11)).round(1)
    x[6:8], x[8] = 1.0, NAN  # group 2 has no order; a row that is none
    actual = credit.rank_correlation(x, y, keys, num_groups=4)
    for j in (0, 1):
        np.testing.assert_allclose(actual[j], spearman(x[keys == j], y[keys == j]), rtol=1e-5)
    assert np.isnan(actual[2:]).all()
    np.testing.assert_allclose(
        credit.credit_fidelity(x, y, keys, num_groups=4), (actual[0] + actual[1]) / 2, rtol=1e-6
    )


def test_credit_fidelity_tells_cross_from_aligned():
    """Agent 1 earns what its own sample is worth; the partner's luck hides it from aligned credit."""
    # Rewards: agent 0's sample adds 0, 10, 20, 30; agent 1's 3, 2, 1, 0. Aligned, they rise along the
    # diagonal, against what agent 1's samples are worth.
    rewards = 10.0 * np.arange(4)[:, None] + np.arange(3.0, -1, -1)[None]
    truth = [3.0, 2.0, 1.0, 0.0]
    aligned = credit.aligned_credit(np.diag(rewards)[None], num_agents=2)[1, 0]
    assert credit.credit_fidelity(aligned, truth) == -1
    assert credit.credit_fidelity(credit.cross_credit(rewards[None])[1, 0], truth) == 1


def test_nothing_to_rank():
    assert np.isnan(credit.credit_fidelity([1.0, 1.0], [1.0, 2.0]))
    assert np.isnan(credit.credit_fidelity([1.0], [1.0]))


def test_jit_and_vmap():
    x, y = RANDOM.normal(size=(2, 3, 8))
    keys = np.array([0, 0, 0, 1, 1, 1, 1, -1])

    def fidelity(x, y):
        return credit.credit_fidelity(x, y, keys, num_groups=2)

    actual = jax.jit(jax.vmap(fidelity))(x, y)
    np.testing.assert_allclose(actual, [fidelity(*row) for row in zip(x, y, strict=True)], rtol=1e-5)
    for function in (credit.free_rider_rate, credit.dominance_rate):
        np.testing.assert_allclose(
            jax.jit(function)(REWARDS_J, WITHOUT_NJ), function(REWARDS_J, WITHOUT_NJ), rtol=1e-6
        )
    np.testing.assert_allclose(jax.jit(credit.sign_agreement)(x), agreement(x), rtol=1e-6)


@pytest.mark.parametrize("call, message", [
    (lambda: credit.sign_agreement([1.0, 2.0]), r"\[agents, joint answers\]"),
    (lambda: credit.free_rider_rate([1.0], [1.0]), r"allowed: \[..\] and \[N, ..\]"),
    (lambda: credit.rank_correlation([1.0], [1.0, 2.0]), r"\(2,\).*\(1,\)"),
])  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_rows_with_nan_are_no_rows():
    nan = float("nan")
    share = lambda returns, groups: float(credit.zero_signal_share(returns, groups, num_groups=2))  # noqa: E731
    assert share([1.0, 1.0, nan], [0, 0, 0]) == 1.0
    assert np.isnan(share([nan, nan], [0, 0])) and np.isnan(share([1.0, 2.0], [-1, -1]))
    assert float(credit.rank_correlation([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, nan])[0]) == pytest.approx(1)
    assert float(credit.credit_fidelity([4.0, 1.0, 2.0, 3.0], [nan, 1.0, 2.0, 3.0])) == pytest.approx(1)
    for spread, wanted in ((credit.advantage_spread, (1 + 0) / 2), (credit.within_group_variance, (1 + 0) / 2)):
        # Group 0 keeps 1 and 3, group 1 one row, group 2 none.
        values, groups = [1.0, nan, 3.0, 5.0, nan], [0, 0, 0, 1, 2]
        assert float(spread(values, groups, num_groups=4)) == pytest.approx(wanted)
        assert float(spread([nan], [0], num_groups=1)) == float(spread([1.0], [-1], num_groups=1)) == 0.0
    # The last group must not get the rows without a number.
    rho = credit.rank_correlation([1.0, 2.0, nan, 1.0, 2.0], [1.0, 2.0, 0.0, 2.0, 1.0], [0, 0, 0, 1, 1], num_groups=2)
    assert rho.tolist() == pytest.approx([1, -1])
