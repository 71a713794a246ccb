"""Credit fidelity: do advantages rank completions as their mean rewards with resampled partners do?

Advantages are computed from rewards with the partners' samples of one iteration. Here every completion is
kept, every partner answers again K times with the same parameters, and the mean reward of these joint
answers is the completion's worth (C3's credit fidelity, arXiv 2603.06859). No reward is used on both
sides, so pure-noise rewards give only chance correlations.
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.rollout.scoring import TaskScorer

DIGITS = 5  # values that differ only by rounding of a mean are ties
ALL = "all"

_rank_correlations = jax.jit(jax.vmap(credit.rank_correlation))


@dataclasses.dataclass(frozen=True)
class Fidelity:
    """How well the advantages of an agent, or of `ALL` agents, rank its completions.

    Attributes:
      fidelity: mean rank correlation, within groups, between the advantages and the worth by replay, -1..1.
      repeats: the same correlation between the worth by one half of the fresh partners and by the other
        half; no advantages could exceed it by much. Both are NaN if all groups consist of ties.
      groups: number of groups whose advantages and worth differ; ``fidelity`` is the mean over them.
      variance: mean population variance of the advantages within groups (`credit.within_group_variance`).
    """

    agent: str
    fidelity: float
    repeats: float
    groups: int
    variance: float


def partner_rewards(forest: Forest, fresh: Sequence[Turn], scorer: TaskScorer) -> tuple[np.ndarray, int]:
    """Rewards of every turn with fresh partners, float32 (turns, K), and how many answers were judged.

    Args:
      forest: forest of one turn; each joint answer has one completion of each agent.
      fresh: K turns of every agent for every item, with their own ids and requests. The k-th answer of a
        completion uses sample k of all partners, the same for all completions of a group.
      scorer: the task's scorer; equal answers are judged once. NaN where no reward applies.
    """
    fresh_texts: dict[tuple[str, int], list[str]] = {}
    for turn in fresh:
        fresh_texts.setdefault((turn.agent, turn.item), []).append(turn.text)
    size = len(next(iter(fresh_texts.values())))

    def beside(turn: Turn, k: int) -> tuple[str, ...]:
        partners = (
            turn.text if name == turn.agent else fresh_texts[name, turn.item][k] for name in scorer.agents
        )
        return tuple(partners)

    all_answers = [(turn.item, beside(turn, k)) for turn in forest.turns for k in range(size)]
    answers = list(dict.fromkeys(all_answers))
    columns = {name: [texts[n] for _, texts in answers] for n, name in enumerate(scorer.agents)}
    judgements = scorer.judge_texts([forest.items[item] for item, _ in answers], columns)
    totals = [np.nan if judgement.total is None else judgement.total for judgement in judgements]
    total_of = dict(zip(answers, totals, strict=True))
    return np.array([total_of[answer] for answer in all_answers], np.float32).reshape(-1, size), len(answers)


def by_agent(
    forest: Forest, advantages_R: np.ndarray, groups_R: np.ndarray, rewards_RK: np.ndarray
) -> list[Fidelity]:
    """`Fidelity` of every agent, in the order in which agents answer, and of `ALL`.

    Args:
      forest: the turns; arrays are indexed by their ids.
      advantages_R, groups_R: from a `systems.types.Credit`.
      rewards_RK: from `partner_rewards`.
    """
    half = rewards_RK.shape[1] // 2
    worth_R, first_R, second_R = map(_means, (rewards_RK, rewards_RK[:, :half], rewards_RK[:, half:]))
    agent_R = np.array([turn.agent for turn in forest.turns])
    rows, num_groups = [], int(groups_R.max()) + 1
    for agent in (*dict.fromkeys(agent_R.tolist()), ALL):
        of_agent_R = np.full(len(agent_R), True) if agent == ALL else agent_R == agent
        keys_R = np.where(of_agent_R, groups_R, -1)
        rho_J = rank_correlations(advantages_R, worth_R, keys_R, num_groups)
        repeats_J = rank_correlations(first_R, second_R, keys_R, num_groups)
        variance = credit.on_host(credit.within_group_variance, advantages_R, keys_R, num_groups=num_groups)
        groups = int((~np.isnan(rho_J)).sum())
        rows.append(Fidelity(agent, _mean(rho_J), _mean(repeats_J), groups, float(variance)))
    return rows


def rank_correlations(x_R: np.ndarray, y_R: np.ndarray, groups_R: np.ndarray, number: int) -> np.ndarray:
    """`credit.rank_correlation` of each group, float32 (J,), NaN where all values are ties.

    Computed group by group: all rows at once would take memory quadratic in their number. Rows with the key
    -1, and rows where x or y is NaN, belong to no group.
    """
    known_R = (groups_R >= 0) & ~np.isnan(x_R) & ~np.isnan(y_R)
    sizes_J = np.bincount(groups_R[known_R], minlength=number)
    order_R = np.argsort(np.where(known_R, groups_R, number), kind="stable")
    rows = np.split(order_R[: known_R.sum()], np.cumsum(sizes_J)[:-1])
    row_JG = np.full((number, np.bincount(groups_R[groups_R >= 0]).max()), -1)
    for j, members in enumerate(rows):
        row_JG[j, : len(members)] = members
    rounded = (np.round(np.nan_to_num(values_R), DIGITS)[row_JG] for values_R in (x_R, y_R))
    return np.ravel(_rank_correlations(*rounded, np.where(row_JG >= 0, 0, -1)))


def _means(values_RK: np.ndarray) -> np.ndarray:
    """Mean over K without NaN, (R,); NaN where all values are NaN."""
    counts_R = (~np.isnan(values_RK)).sum(axis=1)
    return np.where(counts_R > 0, np.nansum(values_RK, axis=1) / np.maximum(counts_R, 1), np.nan)


def _mean(rho_J: np.ndarray) -> float:
    return float(np.nanmean(rho_J)) if not np.isnan(rho_J).all() else np.nan
