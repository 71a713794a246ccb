"""Marginal contributions: the reward of a joint answer less the reward without an agent's part.

Rewards without a part come with the forest (`counterfactuals`), or follow from the others where all
combinations of the agents' samples were judged.
"""

import jax
import numpy as np

from jaxmarl_llm import credit, forest_metrics
from jaxmarl_llm.forest import Forest

DIGITS = 5  # of credit: what ties but for the rounding of a mean ties

# One program each, see `forest_metrics`.
_cross_counterfactuals = jax.jit(credit.cross_counterfactuals)
_free_rider_rate = jax.jit(credit.free_rider_rate)
_dominance_rate = jax.jit(credit.dominance_rate)
_rank_correlations = jax.jit(jax.vmap(credit.rank_correlation))


def agents(forest: Forest) -> tuple[str, ...]:
    """The agents in the order of the joint answers' parts."""
    return tuple(forest.turns[i].agent for i in forest.joints[0].turns)


def counterfactual_rewards(forest: Forest) -> np.ndarray | None:
    """Reward of every joint answer with each agent's part replaced, float32 (N, J); None where unknown.

    Those of the forest, else with full tables of rewards the mean over the agent's other samples
    (`credit.cross_counterfactuals`). NaN where none applies, and in tables that lack a reward.
    """
    if forest.counterfactuals is not None:
        return forest.counterfactuals
    _, tables = forest_metrics.reward_tables(forest)
    if not len(tables):
        return None
    found = np.array(_cross_counterfactuals(tables))
    found[:, np.isnan(tables).any(axis=tuple(range(1, tables.ndim)))] = np.nan
    row = {node: n for n, node in enumerate(dict.fromkeys(joint.node for joint in forest.joints))}
    places = [(row[joint.node], *(forest.turns[i].sample for i in joint.turns)) for joint in forest.joints]
    return found[(slice(None), *np.array(places).T)]


def marginals(forest: Forest) -> np.ndarray | None:
    """Reward of every joint answer less that without each agent's part, float32 (N, J); None where unknown.

    NaN where either is: unlike `credit.counterfactual_credit`, a marginal that is not known is not 0 here.
    """
    without_NJ = counterfactual_rewards(forest)
    return None if without_NJ is None else forest.totals() - without_NJ


def of_members(forest: Forest, values_NJ: np.ndarray) -> np.ndarray:
    """Values by agent and joint answer as values of `Forest.memberships`."""
    row = {agent: n for n, agent in enumerate(agents(forest))}
    joint_M, turn_M = forest.memberships()
    return values_NJ[[row[forest.turns[t].agent] for t in turn_M.tolist()], joint_M]


def over_answers(forest: Forest, values_M: np.ndarray, reduce: str = "mean") -> np.ndarray:
    """Value of every turn, float32 (turns,): mean, or sum, over the joint answers that contain it.

    ``values_M`` are of `Forest.memberships`. NaN is left out, in a sum each counts as the mean of the others;
    a turn without any other has NaN.
    """
    _, turn_M = forest.memberships()
    known_M, size = np.where(np.isnan(values_M), -1, turn_M), len(forest.turns)
    options = {"num_groups": size, "length": size}
    value_R = credit.on_host(credit.segment_mean, np.nan_to_num(values_M), known_M, **options)
    if reduce == "sum":
        value_R = value_R * credit.on_host(credit.segment_count, turn_M, **options)
    return np.where(credit.on_host(credit.segment_count, known_M, **options) > 0, value_R, np.nan)


def replayed(forest: Forest) -> np.ndarray | None:
    """Compute the worth of every turn of a tree of conversations, float32 (turns,); None for another forest.

    The mean reward of the answers that go through it, less that of its siblings: the same agent after the
    same answer (C3, arXiv 2603.06859). NaN where no reward applies to it or to any sibling.
    """
    heard = [turn for turn in forest.turns if turn.parent is not None and turn.follows is None]
    heard = [turn for turn in heard if forest.turns[turn.parent].agent != turn.agent]
    if len({turn.request for turn in heard}) == len(heard):  # nobody, or everybody alone
        return None
    joint_M, _ = forest.memberships()
    mean_R = over_answers(forest, forest.totals()[joint_M])
    request_R = np.where(np.isnan(mean_R), -1, [turn.request for turn in forest.turns])
    counts = np.bincount(request_R[request_R >= 0], minlength=len(forest.turns))
    options = {"num_groups": len(forest.turns), "baseline": "leave_one_out", "length": len(forest.turns)}
    worth_R = credit.on_host(credit.group_advantage, np.nan_to_num(mean_R), request_R, **options)
    return np.where((request_R >= 0) & (counts[request_R] > 1), worth_R, np.nan)


def metrics(forest: Forest, groups_R: np.ndarray, advantages_R: np.ndarray) -> dict[str, float]:
    """Summarise the marginals, as far as they are known, and how well the advantages rank like them.

    ``<agent>/free_rider`` and ``<agent>/dominance`` (`credit.free_rider_rate`, `credit.dominance_rate`);
    ``<agent>/marginal``, the mean, where the answers without a part were judged (over an agent's own other
    samples it is 0). ``credit/fidelity`` is `credit.credit_fidelity` within the groups of the advantages;
    the truth of a turn is its mean marginal, or in a tree of conversations what it is worth by replay.
    """
    if not forest.joints:
        return {}
    without_NJ, truth_R, found = counterfactual_rewards(forest), replayed(forest), {}
    if without_NJ is not None:
        found = _rates(forest, without_NJ)
        truth_R = over_answers(forest, of_members(forest, forest.totals() - without_NJ))
    if truth_R is not None:
        found["credit/fidelity"] = _fidelity(advantages_R, truth_R, groups_R)
    return {name: value for name, value in found.items() if not np.isnan(value)}


def _fidelity(advantages_R: np.ndarray, truth_R: np.ndarray, groups_R: np.ndarray) -> float:
    """`credit.credit_fidelity`, group by group: all rows at once would take memory of their square."""
    sizes_J = np.bincount(groups_R)
    rows = np.split(np.argsort(groups_R, kind="stable"), np.cumsum(sizes_J)[:-1])
    row_JG = np.full((len(sizes_J), sizes_J.max()), -1)
    for j, members in enumerate(rows):
        row_JG[j, : len(members)] = members
    known_JG = (row_JG >= 0) & ~np.isnan(truth_R[row_JG])
    ranked = (np.round(np.nan_to_num(values_R), DIGITS)[row_JG] for values_R in (advantages_R, truth_R))
    rho_J = np.ravel(_rank_correlations(*ranked, np.where(known_JG, 0, -1)))
    return float(np.nanmean(rho_J)) if not np.isnan(rho_J).all() else np.nan


def _rates(forest: Forest, without_NJ: np.ndarray) -> dict[str, float]:
    totals_J = forest.totals()
    values = {
        "free_rider": _free_rider_rate(totals_J, without_NJ),
        "dominance": _dominance_rate(totals_J, without_NJ),
    }
    if forest.counterfactuals is not None:
        parts_NJ = totals_J - without_NJ
        known_N = np.maximum((~np.isnan(parts_NJ)).sum(axis=1), 1)
        means_N = np.nansum(parts_NJ, axis=1) / known_N
        values["marginal"] = np.where(np.isnan(parts_NJ).all(axis=1), np.nan, means_N)
    return {
        f"{agent}/{name}": float(each[n])
        for name, each in values.items()
        for n, agent in enumerate(agents(forest))
    }
