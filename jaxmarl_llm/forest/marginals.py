"""Marginal contributions: the reward of a joint answer minus the reward without an agent's part.

Rewards without a part come with the forest (`counterfactuals`), or follow from the other rewards if all
combinations of the agents' samples were judged.
"""

import jax
import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.forest import metrics as forest_metrics

# One program each, see `forest_metrics`.
_cross_counterfactuals = jax.jit(credit.cross_counterfactuals)
_free_rider_rate = jax.jit(credit.free_rider_rate)
_dominance_rate = jax.jit(credit.dominance_rate)


def agents(forest: Forest) -> tuple[str, ...]:
    """The agents in the order of the joint answers' parts."""
    return tuple(forest.turns[i].agent for i in forest.joints[0].turns)


def counterfactual_rewards(forest: Forest) -> np.ndarray | None:
    """Reward of every joint answer with each agent's part replaced, float32 (N, J); None where unknown.

    They come from the forest. If it has none but full tables of rewards, they are means over the agent's
    other samples (`credit.cross_counterfactuals`). NaN where none applies, and in incomplete tables.
    """
    if forest.counterfactuals is not None:
        return forest.counterfactuals
    _, tables = forest_metrics.reward_tables(forest)
    if not len(tables):
        return None
    means = np.array(_cross_counterfactuals(tables))
    means[:, np.isnan(tables).any(axis=tuple(range(1, tables.ndim)))] = np.nan
    row = {node: n for n, node in enumerate(dict.fromkeys(joint.node for joint in forest.joints))}
    places = [(row[joint.node], *(forest.turns[i].sample for i in joint.turns)) for joint in forest.joints]
    return means[(slice(None), *np.array(places).T)]


def marginals(forest: Forest) -> np.ndarray | None:
    """Reward of every joint answer minus that without each agent's part, float32 (N, J); None where unknown.

    NaN if either is NaN: unlike in `credit.counterfactual_credit`, an unknown marginal is not 0 here.
    """
    without_NJ = counterfactual_rewards(forest)
    return None if without_NJ is None else forest.totals() - without_NJ


def of_members(forest: Forest, values_NJ: np.ndarray) -> np.ndarray:
    """Values by agent and joint answer, as one value for each pair of `Forest.memberships`."""
    row = {agent: n for n, agent in enumerate(agents(forest))}
    joint_M, turn_M = forest.memberships()
    return values_NJ[[row[forest.turns[t].agent] for t in turn_M.tolist()], joint_M]


def over_answers(forest: Forest, values_M: np.ndarray, reduce: str = "mean") -> np.ndarray:
    """Value of every turn, float32 (turns,): mean, or sum, over the joint answers that contain it.

    ``values_M`` belong to `Forest.memberships`. A NaN is ignored in a mean, and in a sum counts as the mean
    of the others; a turn with only NaN has NaN.
    """
    _, turn_M = forest.memberships()
    known_M, size = np.where(np.isnan(values_M), -1, turn_M), len(forest.turns)
    options = {"num_groups": size, "length": size}
    value_R = credit.on_host(credit.segment_mean, np.nan_to_num(values_M), known_M, **options)
    if reduce == "sum":
        value_R = value_R * credit.on_host(credit.segment_count, turn_M, **options)
    return np.where(credit.on_host(credit.segment_count, known_M, **options) > 0, value_R, np.nan)


def metrics(forest: Forest) -> dict[str, float]:
    """Summarise the marginals, if answers were judged without a part.

    ``<agent>/marginal``, the mean; ``<agent>/free_rider`` and ``<agent>/dominance``
    (`credit.free_rider_rate`, `credit.dominance_rate`), except with ``solo``, which compares an answer with a
    mean over other rollouts. Nothing if another of the agent's own samples replaced its part (``sample``, or
    the tables of ``cross``): both have the same distribution, so the mean is 0 and about half of the answers
    are no better, whether or not the team needs the agent.
    """
    if forest.counterfactuals is None or not forest.joints or forest.replaced_by == "sample":
        return {}
    return {name: value for name, value in _rates(forest).items() if not np.isnan(value)}


def _rates(forest: Forest) -> dict[str, float]:
    totals_J, without_NJ, values = forest.totals(), forest.counterfactuals, {}
    if forest.replaced_by != "solo":
        values["free_rider"] = _free_rider_rate(totals_J, without_NJ)
        values["dominance"] = _dominance_rate(totals_J, without_NJ)
    parts_NJ = totals_J - without_NJ
    known_N = np.maximum((~np.isnan(parts_NJ)).sum(axis=1), 1)
    means_N = np.nansum(parts_NJ, axis=1) / known_N
    values["marginal"] = np.where(np.isnan(parts_NJ).all(axis=1), np.nan, means_N)
    return {
        f"{agent}/{name}": float(values_N[n])
        for name, values_N in values.items()
        for n, agent in enumerate(agents(forest))
    }
