"""Numbers of an iteration that follow from its forest alone: rewards by part, and what each agent's group told it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.forest import Forest


def reward_metrics(forest: Forest, task: Any) -> dict[str, float]:
    """Mean reward parts and return over all joint answers, on the 0..100 scale, keyed ``train/<part>``."""
    rows = [j.judgement.scores for j in forest.joints if j.judgement.total is not None]
    if not rows:
        return {}
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return {f"train/{name}": float(value) for name, value in task.normalise(means).items()}


def agent_metrics(forest: Forest, returns_R: np.ndarray, groups_R: np.ndarray, advantages_R: np.ndarray) -> dict:
    """Per agent, keyed ``<agent>/<name>``: advantage spread, share of groups without signal, lengths, cut-off share.

    Args:
      forest: turns with ids 0, 1, ..; the arrays are indexed by them.
      returns_R, groups_R, advantages_R: return, group key and advantage of every turn.
    """
    out = {}
    for agent in dict.fromkeys(turn.agent for turn in forest.turns):
        turns = [turn for turn in forest.turns if turn.agent == agent]
        ids = [turn.id for turn in turns]
        number = {"num_groups": int(groups_R.max()) + 1}
        row = {
            "advantage_spread": credit.advantage_spread(advantages_R[ids], groups_R[ids], **number),
            "zero_signal": credit.zero_signal_share(returns_R[ids], groups_R[ids], **number),
            "completion_length": np.mean([len(turn.completion) for turn in turns]),
            "truncated": np.mean([not turn.finished for turn in turns]),
        }
        out |= {f"{agent}/{name}": float(value) for name, value in row.items()}
    return out


def update_metrics(agents: tuple[str, ...], metrics: Mapping[str, Any]) -> dict[str, float]:
    """The update's metrics, arrays (N,), keyed ``<agent>/<name>``."""
    named = {name: np.asarray(values) for name, values in metrics.items()}
    return {f"{agent}/{name}": float(values[n]) for name, values in named.items() for n, agent in enumerate(agents)}


def tokens(forest: Forest) -> int:
    """Completion tokens of the iteration."""
    return sum(len(turn.completion) for turn in forest.turns)
