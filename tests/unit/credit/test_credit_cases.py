"""Every public function of credit: compiled, mapped, differentiated; with padding, one sample, equal ones."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from part_cases import Case, check_gradient, check_transforms, functions, same

from jaxmarl_llm import credit

NAN = np.nan
KINDS = ("padded", "single", "equal")
# Without a case: they run on the host, and return or take integers.
HOST = {"group_keys", "keys_by", "row_groups", "on_host"}
# Function: the kinds that it cannot have, and why.
EXEMPT = {
    "segment_count": (("equal",), "reads no values"),
    "aligned_credit": (("equal",), "compares nothing"),
    "cross_counterfactuals": (("single",), "refuses one sample (test_credit_joint.py)"),
    "rewards_at_end": (("equal",), "compares nothing"),
    **dict.fromkeys(("joint_advantages", "ordered_advantages"), (("padded",), "of states by themselves")),
    "influence_returns": (("padded",), "of conversations of equally many turns"),
    "transition_bonuses": (("padded", "single"), "of the same, and refuses one agent (test_credit_influence.py)"),
    **dict.fromkeys(
        ("gae", "token_gae", "agent_chained_gae", "agent_chained_token_gae", "discounted_returns"),
        (("equal",), "compares with a critic, not within a group"),
    ),
}

# Functions of values and keys: two ragged groups.
VALUES, KEYS = np.array([1.0, 2.5, 3.0, 4.0, 8.0, 3.5, 0.5]), np.array([0, 1, 0, 1, 0, 1, 0])
TURNS = np.array([[0.1, 0.9], [0.9, 0.2], [0.8, 0.7]])  # scores of two agents
AT, PADDING = [0, 3, 7], np.isin(np.arange(10), [0, 4, 9])
SHOWN = np.array([[1, 0], [0, 1], [0, 0], [1, 0], [1, 0], [0, 0], [0, 1]])


def of_rows(function, single, equal, *, size="num_groups", smooth=1, width=1):
    """The case of a function of ``width`` columns of values, and keys."""

    def run(keys, groups, *columns):
        return function(*columns, keys, **{size: groups})

    def padded():
        columns = [np.insert(VALUES[::step], AT, [NAN, np.inf, NAN]) for step in (1, -1)[:width]]
        actual = run(np.insert(KEYS, AT, [-1, 2, 99]), 2, *columns)
        by_row = actual.ndim and len(actual) == len(PADDING)
        if by_row:
            same(actual[PADDING], np.zeros(3))
        return actual[~PADDING] if by_row else actual, run(KEYS, 2, *(VALUES[::s] for s in (1, -1)[:width]))

    pairs = {
        "padded": padded,
        "single": lambda: (run(np.array([0]), 1, *[np.array([5.0])] * width), single),
        "equal": lambda: (run(np.zeros(3, int), 1, *[np.full(3, 0.1)] * width), equal),
    }
    arrays = (VALUES, VALUES[::-1].copy())[:width]
    return Case(functools.partial(run, KEYS, 2), arrays, smooth, pairs)


def contrast(values_R, group_R, *, num_groups):
    """`difference_in_means` of as many rows as there are."""
    shown = np.insert(SHOWN, AT, 1, axis=0) if len(values_R) == 10 else SHOWN[[0, 1, 2]][: len(values_R)]
    shown = SHOWN if len(values_R) == 7 else shown
    return credit.difference_in_means(values_R, shown, group_R, num_groups=num_groups)


def count(values_R, group_R, *, num_groups):
    """`segment_count`, which reads the keys alone."""
    return credit.segment_count(group_R, num_groups=num_groups)


centred = functools.partial(credit.normalise_per_agent, centre=True)
CASES = {
    "segment_count": of_rows(count, [1], [3], smooth=0),
    "segment_sum": of_rows(credit.segment_sum, [5], [0.3]),
    "segment_mean": of_rows(credit.segment_mean, [5], [0.1]),
    "segment_variance": of_rows(credit.segment_variance, [0], [0]),
    "segment_std": of_rows(credit.segment_std, [0], [0]),
    "segment_max": of_rows(credit.segment_max, [5], [0.1]),
    "segment_leave_one_out": of_rows(credit.segment_leave_one_out, [5], [0.1] * 3),
    "group_advantage": of_rows(functools.partial(credit.group_advantage, normalise=True), [0], [0] * 3),
    "normalise_per_agent": of_rows(centred, [0], [0] * 3, size="num_agents"),
    "zero_signal_share": of_rows(credit.zero_signal_share, 1, 1, smooth=0),
    "advantage_spread": of_rows(credit.advantage_spread, 0, 0),
    "within_group_variance": of_rows(credit.within_group_variance, 0, 0),
    "difference_in_means": of_rows(contrast, [NAN, NAN], [0, 0]),
    "rank_correlation": of_rows(credit.rank_correlation, [NAN], [NAN], smooth=0, width=2),
    "credit_fidelity": of_rows(credit.credit_fidelity, NAN, NAN, smooth=0, width=2),
}

# Functions of rewards [B, G, G]: what is padding is an item, a row.
TABLES = np.array([[[1.0, 2.0], [5.0, 8.0]], [[0.5, -1.0], [2.0, 3.0]]])


def of_tables(function, axes, single, equal):
    """The case of a function of full tables; ``axes``: where items are in each of its results, or None."""

    def padded():
        actual = jax.tree.leaves(function(np.insert(TABLES, 1, [[NAN, 1.0], [2.0, 3.0]], axis=0)))
        kept = [x if axis is None else np.delete(x, 1, axis) for x, axis in zip(actual, axes, strict=True)]
        return tuple(kept), tuple(jax.tree.leaves(function(TABLES)))

    pairs = {
        "padded": padded,
        "single": lambda: (tuple(jax.tree.leaves(function(np.full((1, 1, 1), 5.0)))), tuple(single)),
        "equal": lambda: (tuple(jax.tree.leaves(function(np.full((1, 2, 2), 0.1)))), tuple(equal)),
    }
    return Case(function, (TABLES,), 1, pairs)


def squares(rewards):
    """`sums_of_squares` of rewards."""
    return credit.sums_of_squares(credit.decompose_rewards(rewards))


ZEROS, NONE = np.zeros((2, 1, 2)), np.zeros((2, 1, 1))
CASES |= {
    "cross_credit": of_tables(credit.cross_credit, [1], [NONE + 5], [ZEROS + 0.1]),
    "decompose_rewards": of_tables(
        credit.decompose_rewards, [0, 1, 0],
        [[5.0], NONE, np.zeros((1, 1, 1))], [[0.1], ZEROS, np.zeros((1, 2, 2))],
    ),
    "sums_of_squares": of_tables(squares, [1, 0], [[[0], [0]], [0]], [[[0], [0]], [0]]),
    "variance_shares": of_tables(credit.variance_shares, [None, None], [[0, 0], 0], [[0, 0], 0]),
    "cross_counterfactuals": of_tables(credit.cross_counterfactuals, [1], [], [np.full((2, 1, 2, 2), 0.1)]),
    "aligned_credit": Case(
        functools.partial(credit.aligned_credit, num_agents=2), (TABLES[0],), 1,
        {
            "padded": lambda: (
                credit.aligned_credit([[1, 2], [NAN, 0]], num_agents=2)[:, :1],
                credit.aligned_credit([[1, 2]], num_agents=2),
            ),
            "single": lambda: (credit.aligned_credit([[5.0]], num_agents=2), [[[5.0]], [[5.0]]]),
        },
    ),
    "counterfactual_credit": Case(
        credit.counterfactual_credit, (TABLES[0], TABLES), 2,
        {
            "padded": lambda: (
                credit.counterfactual_credit([3.0, NAN, 2.0], [[1.0, 1.0, NAN]]), [[2.0, 0.0, 0.0]],
            ),
            "single": lambda: (credit.counterfactual_credit(3.0, [1.0, 3.0]), [2.0, 0.0]),
            "equal": lambda: (credit.counterfactual_credit([0.1] * 3, [[0.1] * 3]), [[0.0] * 3]),
        },
    ),
    "shapley_values": Case(
        credit.shapley_values, (TABLES.reshape(4, 2),), 1,
        {
            "padded": lambda: (  # a column in which one team's reward is unknown
                credit.shapley_values([[0, 0], [1, NAN], [0, 1], [3, 4]]), [[2, 0], [1, 0]],
            ),
            "single": lambda: (credit.shapley_values([1.0, 4.0]), [3.0]),
            "equal": lambda: (credit.shapley_values([0.1] * 4), [0.0, 0.0]),
        },
    ),
}  # fmt: skip

# Rates over joint answers [J]; what is not known is NaN.
REWARDS, WITHOUT = np.array([3.0, 1.0, 2.0]), np.array([[1.0, 1.5, 2.0], [3.0, 0.0, 1.0]])


def of_rates(function, single, equal):
    """The case of a rate of rewards and counterfactuals."""
    pairs = {
        "padded": lambda: (
            function([*REWARDS, NAN, 1.0], np.insert(WITHOUT, [3, 3], [[0, NAN], [0, NAN]], axis=1)),
            function(REWARDS, WITHOUT),
        ),
        "single": lambda: (function([2.0], [[1.0], [2.0]]), single),
        "equal": lambda: (function([0.1] * 3, [[0.1] * 3] * 2), equal),
    }
    return Case(function, (REWARDS, WITHOUT), 0, pairs)


CASES |= {
    "free_rider_rate": of_rates(credit.free_rider_rate, [0, 1], [1, 1]),
    "dominance_rate": of_rates(credit.dominance_rate, [1, 0], [0, 0]),
    "sign_agreement": Case(
        credit.sign_agreement, (WITHOUT - 1.2,), 0,
        {
            "padded": lambda: (credit.sign_agreement([[1.0, -1.0, NAN], [2.0, 1.0, 3.0]]), 0.5),
            "single": lambda: (credit.sign_agreement([[1.0], [2.0]]), 1.0),
            "equal": lambda: (credit.sign_agreement(np.zeros((2, 3))), NAN),
        },
    ),
}  # fmt: skip

# Functions of positions: what lies beyond a length may hold anything.
GAMMAS = {"gamma": 0.9, "lam": 0.8}
TIMES, CRITIC = np.array([[1.0, 2.0, -1.0], [0.5, 3.0, 1.0]]), np.array([[0.5, 1.0, 2.0], [1.0, -0.5, 0.25]])
RAGGED = np.array([3, 2])
TREE = np.arange(4), [-1, -1, 0, 0]
BEYOND = np.array([[0, 0, 0], [0, 0, NAN]])
TEAM = np.array([[[1.0, 2.0], [0.5, -1.0]]])  # [1, T, N]
TOKENS = np.array([[[[0.5, 1.0], [2.0, 0.25]], [[1.0, -0.5], [0.75, 3.0]]]])  # [1, T, N, L]
LENGTHS = np.array([[[2, 1], [0, 2]]])


def chained_tokens(rewards, values):
    """`agent_chained_token_gae` of ragged completions, one of them empty."""
    return credit.agent_chained_token_gae(rewards, values, LENGTHS, **GAMMAS)


def flat_chain():
    """What agents say, one after the other, as one row: the last token of each is rewarded."""
    chain = credit.gae([[1.0 * 0, 1.0, 2.0, 0.0, -1.0]], [[0.5, 1.0, 2.0, 0.75, 3.0]], [5], **GAMMAS)[0]
    dirty = np.where(np.arange(2) < LENGTHS[..., None], TOKENS, NAN)
    actual = chained_tokens(np.where(LENGTHS > 0, TEAM, NAN), dirty)
    return actual, np.array([[[chain[:2], [chain[2], 0]], [[0, 0], chain[3:]]]])


CASES |= {
    "gae": Case(
        lambda r, v: credit.gae(r, v, RAGGED, bootstrap_B=0.5, **GAMMAS), (TIMES, CRITIC), 2,
        {
            "padded": lambda: (
                credit.gae(TIMES + BEYOND, CRITIC + BEYOND, RAGGED, **GAMMAS)[1],
                np.append(credit.gae(TIMES[1, :2], CRITIC[1, :2], 2, **GAMMAS), 0),
            ),
            "single": lambda: (credit.gae([2.0], [0.5], 1, gamma=0.5, bootstrap_B=3.0), [3.0]),
        },
    ),
    "token_gae": Case(
        lambda r, v: credit.token_gae(r, v, RAGGED, **GAMMAS), (TIMES[:, 0], CRITIC), 2,
        {
            "padded": lambda: (
                credit.token_gae([1.0, 2.0], CRITIC + BEYOND, RAGGED, **GAMMAS)[1],
                np.append(credit.token_gae(2.0, CRITIC[1, :2], 2, **GAMMAS), 0),
            ),
            "single": lambda: (credit.token_gae(2.0, [0.5], 1), [1.5]),
        },
    ),
    "agent_chained_gae": Case(
        lambda r, v: credit.agent_chained_gae(r, v, [2], **GAMMAS), (TEAM, TEAM[:, ::-1] + 0.5), 2,
        {
            "padded": lambda: (
                credit.agent_chained_gae([[1.0, 2.0], [NAN, 1.0]], [[0.5, 1.0], [1.0, NAN]], 1, **GAMMAS),
                np.append(credit.agent_chained_gae([[1.0, 2.0]], [[0.5, 1.0]], 1, **GAMMAS), [[0, 0]], 0),
            ),
            "single": lambda: (credit.agent_chained_gae([[2.0]], [[0.5]], 1), [[1.5]]),
        },
    ),
    "agent_chained_token_gae": Case(
        chained_tokens, (TEAM, TOKENS), 2,
        {
            "padded": flat_chain,
            "single": lambda: (credit.agent_chained_token_gae([[2.0]], [[[0.5]]], [[1]]), [[[1.5]]]),
        },
    ),
    "discounted_returns": Case(
        lambda r: credit.discounted_returns(r, RAGGED, discount=0.9), (TIMES,), 1,
        {
            "padded": lambda: (
                credit.discounted_returns(TIMES + BEYOND, RAGGED, discount=0.5)[1], [0.5 + 1.5, 3.0, 0.0],
            ),
            "single": lambda: (credit.discounted_returns([2.0], 1), [2.0]),
        },
    ),
    "rewards_at_end": Case(
        lambda r: credit.rewards_at_end(r, RAGGED, num_tokens=3), (TIMES[:, 0],), 1,
        {
            "padded": lambda: (credit.rewards_at_end([NAN, 2.0], [0, 1], num_tokens=2), [[0, 0], [2, 0]]),
            "single": lambda: (credit.rewards_at_end(5.0, 1, num_tokens=1), [5.0]),
        },
    ),
    "backed_up_returns": Case(
        lambda r: credit.backed_up_returns(r, *TREE, turns=2, num_keys=4, backup="max"),
        (np.array([1.0, 2.0, 3.0, 5.0]),), 1,
        {
            "padded": lambda: (  # the last reward does not apply, and the row of key -1 is none
                credit.backed_up_returns(
                    [1.0, 2.0, 3.0, NAN, 9.0], [0, 1, 2, 3, -1], [-1, -1, 0, 0, 0], turns=2, num_keys=4
                ),
                [4.0, 2.0, 3.0, NAN, 0.0],
            ),
            "single": lambda: (credit.backed_up_returns([5.0], [0], [-1], turns=2, num_keys=1), [5.0]),
            "equal": lambda: (
                credit.backed_up_returns([0.1] * 3, [0, 1, 2], [-1, 0, 0], turns=2, num_keys=3),
                [0.2, 0.1, 0.1],
            ),
        },
    ),
    "joint_advantages": Case(
        functools.partial(credit.joint_advantages, discount=0.5), (VALUES, VALUES[::-1].copy()), 2,
        {
            "single": lambda: (credit.joint_advantages([3.0], [1.0], discount=0.5), [1.0]),
            "equal": lambda: (credit.joint_advantages([2.0] * 3, [1.0] * 3, discount=0.5), [0.0] * 3),
        },
    ),
    "ordered_advantages": Case(
        functools.partial(credit.ordered_advantages, discount=0.5), (TURNS, VALUES[:3]), 2,
        {
            "single": lambda: (credit.ordered_advantages([[3.0]], [1.0], discount=0.5), [[1.0]]),
            "equal": lambda: (credit.ordered_advantages([[2.0] * 2] * 3, [1.0] * 3, discount=0.5), np.zeros((3, 2))),
        },
    ),
    "influence_returns": Case(
        lambda v: credit.influence_returns(v, discount=0.3), (TURNS,), 1,
        {
            "single": lambda: (credit.influence_returns([[0.7]]), [[0.7]]),
            "equal": lambda: (credit.influence_returns(np.full((3, 2), 0.1)), np.full((3, 2), 0.1)),
        },
    ),
    "transition_bonuses": Case(
        lambda v: credit.transition_bonuses(v, with_majority=1.0, on_own=2.0, persuade=4.0, provoke=8.0), (TURNS,), 0,
        {"equal": lambda: (credit.transition_bonuses(np.full((3, 2), 0.9), on_own=1.0), np.zeros((3, 2)))},
    ),
}  # fmt: skip


def test_every_public_function_has_a_case():
    assert set(CASES) | HOST == set(functions(credit))
    for name, case in CASES.items():
        left_out, _ = EXEMPT.get(name, ((), ""))
        assert set(KINDS) - set(left_out) <= set(case.pairs), name


@pytest.mark.parametrize("name", CASES)
def test_compiled_and_mapped(name):
    check_transforms(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_gradient(name):
    check_gradient(CASES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name, kind", [
    (name, kind) for name in CASES for kind in KINDS if kind not in EXEMPT.get(name, ((),))[0]
])  # fmt: skip
def test_padding_one_sample_and_no_variance(name, kind):
    same(*CASES[name].pairs[kind]())


def test_what_lacks_some_rewards_by_hand():
    # Agent 0: 1 and (5 + 8) / 2; agent 1: (1 + 5) / 2 and 8; in a sum the unknown counts as the others' mean.
    holed = np.array([[[1.0, NAN], [5.0, 8.0]]])
    same(credit.cross_credit(holed), [[[1.0, 6.5]], [[3.0, 8.0]]])
    same(credit.cross_credit(holed, reduce="sum"), [[[2.0, 13.0]], [[6.0, 16.0]]])
    same(credit.cross_credit([[[NAN, NAN], [5.0, 8.0]]]), [[[NAN, 6.5]], [[5.0, 8.0]]])
    gradient = jax.grad(lambda x: jnp.nansum(credit.cross_credit(x)))(jnp.asarray(holed))
    same(gradient, [[[1.5, 0.0], [1.0, 1.5]]])  # 1 + 1/2, none; 1/2 + 1/2, 1/2 + 1


SAYS = {
    "shapes": r"Args:|\[[^\]]*\]",
    "gradient": r"gradient|differentiable|linear|constant",
    "source": r"\d{4}\.\d{4,5}|CoMLRL|\b(18|19|20)\d\d\b",
}
# Plain statistics and bookkeeping have no source; the module says what the gradient of the former is.
ARITHMETIC = {name for name in credit.__all__ if name.startswith("segment_")}
UNSAID = {
    "source": HOST | ARITHMETIC | {"dominance_rate", "sign_agreement", "zero_signal_share", "rewards_at_end"},
    "gradient": HOST | ARITHMETIC,
    "shapes": {"on_host"},
}


@pytest.mark.parametrize("what", SAYS)
def test_every_docstring_has_shapes_gradient_and_source(what):
    silent = {f for f in functions(credit) if not re.search(SAYS[what], getattr(credit, f).__doc__, re.I)}
    assert silent <= UNSAID[what], silent - UNSAID[what]
