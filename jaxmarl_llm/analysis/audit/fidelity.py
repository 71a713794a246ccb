"""Does credit rank completions as replay does? Rewards beside partners that were drawn anew, as the truth.

Advantages come of rewards beside the partners that an iteration happened to draw. Here every completion is
kept as it is, every partner answers again K times from the same parameters, and the mean reward of these
answers is what the completion is worth (C3's credit fidelity, arXiv 2603.06859). No reward is in both: of
rewards that are noise nothing comes out but chance.
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.rollout.scoring import TaskScorer

DIGITS = 5  # what ties but for the rounding of a mean ties
ALL = "all"

_rank_correlations = jax.jit(jax.vmap(credit.rank_correlation))


@dataclasses.dataclass(frozen=True)
class Fidelity:
    """How the advantages of an agent, or of `ALL`, rank its completions.

    Attributes:
      fidelity: mean rank correlation within groups of the advantages with the worth by replay, -1..1.
      repeats: the same of the worth by one half of the fresh partners with that by the other half: what
        better advantages could not exceed by much. Both NaN where no group has an order.
      groups: groups whose advantages and worth differ, of which ``fidelity`` is the mean.
      variance: mean population variance of the advantages within groups (`credit.within_group_variance`).
    """

    agent: str
    fidelity: float
    repeats: float
    groups: int
    variance: float


def partner_rewards(forest: Forest, fresh: Sequence[Turn], scorer: TaskScorer) -> tuple[np.ndarray, int]:
    """Rewards of every turn beside fresh partners, float32 (turns, K), and how many answers were judged.

    Args:
      forest: of one turn, each joint answer a turn of each agent.
      fresh: K turns of every agent for every item, ids and requests of their own. Sample k of all partners
        stands beside a completion in its k-th answer, the same for all completions of a group.
      scorer: of the task; equal answers are judged once. NaN where no reward applies.
    """
    said: dict[tuple[str, int], list[str]] = {}
    for turn in fresh:
        said.setdefault((turn.agent, turn.item), []).append(turn.text)
    size = len(next(iter(said.values())))

    def beside(turn: Turn, k: int) -> tuple[str, ...]:
        partners = (turn.text if name == turn.agent else said[name, turn.item][k] for name in scorer.agents)
        return tuple(partners)

    wanted = [(turn.item, beside(turn, k)) for turn in forest.turns for k in range(size)]
    answers = list(dict.fromkeys(wanted))
    columns = {name: [texts[n] for _, texts in answers] for n, name in enumerate(scorer.agents)}
    judgements = scorer.judge_texts([forest.items[item] for item, _ in answers], columns)
    totals = [np.nan if judgement.total is None else judgement.total for judgement in judgements]
    known = dict(zip(answers, totals, strict=True))
    return np.array([known[answer] for answer in wanted], np.float32).reshape(-1, size), len(answers)


def by_agent(
    forest: Forest, advantages_R: np.ndarray, groups_R: np.ndarray, rewards_RK: np.ndarray
) -> list[Fidelity]:
    """`Fidelity` of every agent, in order of speaking, and of `ALL`.

    Args:
      forest: the turns; arrays are indexed by their ids.
      advantages_R, groups_R: of a `systems.types.Credit`.
      rewards_RK: of `partner_rewards`.
    """
    half = rewards_RK.shape[1] // 2
    worth_R, first_R, second_R = map(_means, (rewards_RK, rewards_RK[:, :half], rewards_RK[:, half:]))
    agent_R = np.array([turn.agent for turn in forest.turns])
    found, number = [], int(groups_R.max()) + 1
    for agent in (*dict.fromkeys(agent_R.tolist()), ALL):
        own_R = np.full(len(agent_R), True) if agent == ALL else agent_R == agent
        keys_R = np.where(own_R, groups_R, -1)
        rho_J = rank_correlations(advantages_R, worth_R, keys_R, number)
        repeats_J = rank_correlations(first_R, second_R, keys_R, number)
        variance = credit.on_host(credit.within_group_variance, advantages_R, keys_R, num_groups=number)
        groups = int((~np.isnan(rho_J)).sum())
        found.append(Fidelity(agent, _mean(rho_J), _mean(repeats_J), groups, float(variance)))
    return found


def rank_correlations(x_R: np.ndarray, y_R: np.ndarray, groups_R: np.ndarray, number: int) -> np.ndarray:
    """`credit.rank_correlation` of each group, float32 (J,), NaN where there is no order.

    Group by group: all rows at once would take memory of their square. Rows of the key -1, and those of
    which x or y is NaN, are in no group.
    """
    known_R = (groups_R >= 0) & ~np.isnan(x_R) & ~np.isnan(y_R)
    sizes_J = np.bincount(groups_R[known_R], minlength=number)
    order_R = np.argsort(np.where(known_R, groups_R, number), kind="stable")
    rows = np.split(order_R[: known_R.sum()], np.cumsum(sizes_J)[:-1])
    row_JG = np.full((number, np.bincount(groups_R[groups_R >= 0]).max()), -1)
    for j, members in enumerate(rows):
        row_JG[j, : len(members)] = members
    ranked = (np.round(np.nan_to_num(values_R), DIGITS)[row_JG] for values_R in (x_R, y_R))
    return np.ravel(_rank_correlations(*ranked, np.where(row_JG >= 0, 0, -1)))


def _means(values_RK: np.ndarray) -> np.ndarray:
    """Mean over K without NaN, (R,); NaN where there is nothing else."""
    known_R = (~np.isnan(values_RK)).sum(axis=1)
    return np.where(known_R > 0, np.nansum(values_RK, axis=1) / np.maximum(known_R, 1), np.nan)


def _mean(rho_J: np.ndarray) -> float:
    return float(np.nanmean(rho_J)) if not np.isnan(rho_J).all() else np.nan
